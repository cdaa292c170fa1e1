//! A form is the same wherever it is cut and however its fields are read, and a well-formed one has
//! the fields that were encoded.

#![no_main]

use std::io::Read;
use std::sync::LazyLock;

use filoplume::extract::{MultipartLimits, MultipartRejection};
use filoplume::prelude::*;
use filoplume::testing::TestClient;
use filoplume_fuzz::{Seen, answers, ask};
use libfuzzer_sys::fuzz_target;

const TYPE: (&str, &[u8]) = ("content-type", b"multipart/form-data; boundary=xyz");
const DELIMITER: &[u8] = b"\r\n--xyz";

/// Name, file name and content.
type Part = (String, Option<String>, Vec<u8>);

/// The fields, and the error that ended the form, if there was one.
type Fields = (Vec<Part>, Option<String>);

struct Fixture {
    client: TestClient,
    fields: Seen<Fields>,
}

/// Reads all fields, and the content of each by `read`.
fn fields(
    mut form: Multipart,
    read: impl Fn(filoplume::extract::Field<'_>) -> Result<Vec<u8>, String>,
) -> Fields {
    form.set_limits(
        MultipartLimits::new()
            .parts_max(8)
            .head_bytes_max(256)
            .field_bytes_max(512)
            .memory_bytes_max(512),
    );
    let mut found = Vec::new();
    loop {
        let field = match form.next_field() {
            Ok(Some(field)) => field,
            Ok(None) => return (found, None),
            Err(rejection) => {
                // A form that has failed continues to fail.
                assert!(form.next_field().is_err());
                return (found, Some(rejection.to_string()));
            }
        };
        let (name, file_name) = (field.name().to_owned(), field.file_name().map(str::to_owned));
        if let Some(name) = &file_name {
            assert!(
                !name.contains(['/', '\\', '\0', '\r', '\n'])
                    && !["", ".", ".."].contains(&name.as_str()),
                "{name:?}"
            );
        }
        assert!(field.is_file() || file_name.is_none());
        match read(field) {
            Ok(content) => found.push((name, file_name, content)),
            Err(error) => return (found, Some(error)),
        }
    }
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let seen = Seen::default();
    let (collected, read, skipped) = (Seen::clone(&seen), Seen::clone(&seen), Seen::clone(&seen));
    let by_pieces = |mut field: filoplume::extract::Field<'_>| {
        let mut content = Vec::new();
        let mut piece = [0; 3];
        loop {
            match field.read(&mut piece).map_err(MultipartError::told)? {
                0 => return Ok(content),
                read => content.extend_from_slice(&piece[..read]),
            }
        }
    };
    let app = App::new()
        .post("/collect", move |form: Multipart| {
            collected.put(fields(form, |field| {
                field.bytes().map(|bytes| bytes.to_vec()).map_err(|error| error.to_string())
            }));
        })
        .post("/read", move |form: Multipart| read.put(fields(form, by_pieces)))
        .post("/skip", move |form: Multipart| skipped.put(fields(form, |_| Ok(Vec::new()))))
        .post("/type", |_: Multipart| ());
    Fixture { client: app.test().without_cookies(), fields: seen }
});

/// The text of an error that occurs while a field is read.
struct MultipartError;

impl MultipartError {
    fn told(error: std::io::Error) -> String {
        let rejection =
            error.get_ref().and_then(|inner| inner.downcast_ref::<MultipartRejection>());
        rejection.map_or_else(|| error.to_string(), ToString::to_string)
    }
}

/// Returns a request with the content in chunks of `length` bytes.
fn chunked(content: &[u8], length: usize) -> Vec<u8> {
    let head = b"POST /collect HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
        content-type: multipart/form-data; boundary=xyz\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut request = head.to_vec();
    for chunk in content.chunks(length) {
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    request
}

/// Sends a content in several ways, and checks that the fields are the same.
fn check(content: &[u8]) -> Fields {
    let Fixture { client, fields } = &*FIXTURE;
    assert_eq!(ask(client, Method::POST, b"/collect", &[TYPE], content).status, 200);
    let whole = fields.take().expect("the form was read");
    assert_eq!(ask(client, Method::POST, b"/read", &[TYPE], content).status, 200);
    assert_eq!(fields.take().as_ref(), Some(&whole), "read by pieces");
    for length in [1, 5] {
        let answer = answers(&client.raw(chunked(content, length)), &[Method::POST]);
        assert_eq!(answer.len(), 1);
        assert_eq!(fields.take().as_ref(), Some(&whole), "in chunks of {length}");
    }
    assert_eq!(ask(client, Method::POST, b"/skip", &[TYPE], content).status, 200);
    let (skipped, error) = fields.take().expect("the form was skipped");
    assert_eq!(error, whole.1, "skipped");
    let names = |parts: &[Part]| {
        parts.iter().map(|(name, file, _)| (name.clone(), file.clone())).collect::<Vec<_>>()
    };
    assert!(names(&skipped).starts_with(&names(&whole.0)));
    whole
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fuzz_target!(|input: &[u8]| {
    check(input);
    let delimited =
        [b"--xyz\r\ncontent-disposition: form-data; name=a\r\n\r\n".as_slice(), input].concat();
    check(&delimited);

    // A form as a browser encodes it, with a text and a file in turn.
    let mut content = Vec::new();
    let mut sent: Vec<Part> = Vec::new();
    for (at, text) in input.split(|&byte| byte == 0).take(8).enumerate() {
        let text = text.get(..512).unwrap_or(text);
        if contains(&[b"\r\n", text, b"\r\n"].concat(), DELIMITER) {
            continue;
        }
        let is_file = at % 2 == 1;
        let disposition = format!(
            "form-data; name=\"field {at}\"{}",
            if is_file { "; filename=\"a b.txt\"" } else { "" }
        );
        content.extend_from_slice(
            format!("--xyz\r\nContent-Disposition: {disposition}\r\n\r\n").as_bytes(),
        );
        content.extend_from_slice(text);
        content.extend_from_slice(b"\r\n");
        sent.push((format!("field {at}"), is_file.then(|| "a b.txt".to_owned()), text.to_vec()));
    }
    content.extend_from_slice(b"--xyz--\r\n");
    assert_eq!(check(&content), (sent, None));

    // The client also chooses the boundary and the heads of parts.
    let client = &FIXTURE.client;
    if filoplume_fuzz::is_field_value(input) && input.len() < 4096 {
        for before in [b"multipart/form-data; boundary=".as_slice(), b"multipart/form-data;", b""] {
            let status = ask(
                client,
                Method::POST,
                b"/type",
                &[("content-type", &[before, input].concat())],
                b"",
            )
            .status;
            assert!([200, 400, 415].contains(&status), "{status}");
        }
        let head = [
            b"--xyz\r\ncontent-disposition: form-data; name=a; filename=".as_slice(),
            input,
            b"\r\n\r\n\r\n--xyz--",
        ]
        .concat();
        check(&head);
    }
});
