//! `Range`, `If-Range` and the conditions: what is sent is exactly what a simple model of RFC 9110
//! says, and lies within the file.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use filoplume::prelude::*;
use filoplume::testing::TestClient;
use filoplume_fuzz::{Answer, ask, is_field_value};
use libfuzzer_sys::fuzz_target;

struct Served {
    path: String,
    content: Vec<u8>,
    etag: String,
    date: String,
}

struct Fixture {
    client: TestClient,
    files: Vec<Served>,
    _folder: tempfile::TempDir,
}

const LENGTHS: [usize; 5] = [0, 1, 10, 300, 70_000];

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let content = |length: usize| {
        (0..length)
            .map(|at| u8::try_from(at * 7 % 251).expect("it is below 251"))
            .collect::<Vec<_>>()
    };
    for length in LENGTHS {
        fs::write(folder.path().join(format!("{length}.bin")), content(length))
            .expect("the file can be written");
    }
    let client = App::new().files("/", StaticFiles::folder(folder.path())).test();
    let serve = |length: usize| {
        let path = format!("/{length}.bin");
        // The tag of a file that was just written is weak. Asks again until it is strong.
        loop {
            let answer = ask(&client, Method::GET, path.as_bytes(), &[], b"");
            let etag = answer.header("etag").expect("files have tags").to_owned();
            if !etag.starts_with("W/") {
                let date = answer.header("last-modified").expect("files have dates").to_owned();
                return Served { path, content: content(length), etag, date };
            }
            std::thread::yield_now();
        }
    };
    let files = LENGTHS.map(serve).into();
    Fixture { client, files, _folder: folder }
});

/// What a `Range` selects, according to the model.
enum Model {
    /// The field has no effect.
    Ignored,
    Unsatisfiable,
    /// For each byte, whether it is requested.
    Bytes(Vec<bool>),
}

/// Evaluates a `ranges-specifier` (RFC 9110, 14.1.1) byte by byte.
fn model(value: &[u8], length: usize) -> Model {
    let Some(set) = std::str::from_utf8(value).ok().and_then(|value| {
        let (unit, set) = value.split_once('=')?;
        unit.trim().eq_ignore_ascii_case("bytes").then_some(set)
    }) else {
        return Model::Ignored;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that is too large becomes the maximum. No content is that long.
    let number = |text: &str| text.parse::<usize>().unwrap_or(usize::MAX);
    let specs: Vec<&str> = set
        .split(',')
        .map(|spec| spec.trim_matches([' ', '\t']))
        .filter(|spec| !spec.is_empty())
        .collect();
    let mut bytes = vec![false; length];
    let mut ask_for = |from: usize, end: usize| {
        bytes.iter_mut().take(end).skip(from).for_each(|byte| *byte = true)
    };
    for spec in &specs {
        let Some((first, last)) = spec.split_once('-') else { return Model::Ignored };
        match (is_number(first), is_number(last)) {
            (true, true) if number(first) > number(last) => return Model::Ignored,
            (true, true) => ask_for(number(first), number(last).saturating_add(1)),
            (true, false) if last.is_empty() => ask_for(number(first), length),
            (false, true) if first.is_empty() => {
                if length == 0 && number(last) > 0 {
                    return Model::Ignored;
                }
                ask_for(length.saturating_sub(number(last)), length);
            }
            _ => return Model::Ignored,
        }
    }
    // The framework documents this maximum.
    if specs.is_empty() || specs.len() > 32 {
        return Model::Ignored;
    }
    if !bytes.contains(&true) { Model::Unsatisfiable } else { Model::Bytes(bytes) }
}

/// Parses `bytes first-last/length`, and checks that it lies within the file.
fn content_range(value: &str, file: &Served) -> (usize, usize) {
    let (range, length) = value
        .strip_prefix("bytes ")
        .and_then(|value| value.split_once('/'))
        .expect("it is a range");
    assert_eq!(length.parse(), Ok(file.content.len()));
    let (first, last) = range.split_once('-').expect("it has an end");
    let (first, last): (usize, usize) =
        (first.parse().expect("a number"), last.parse().expect("a number"));
    assert!(first <= last && last < file.content.len(), "{value}");
    (first, last)
}

/// Returns the ranges of a `206`. Compares each with the file.
fn ranges(answer: &Answer, file: &Served) -> Vec<(usize, usize)> {
    if let Some(value) = answer.header("content-range") {
        let (first, last) = content_range(value, file);
        assert_eq!(file.content.get(first..=last), Some(&*answer.content));
        return vec![(first, last)];
    }
    let content_type = answer.header("content-type").expect("parts have a boundary");
    let boundary =
        content_type.strip_prefix("multipart/byteranges; boundary=").expect("these are parts");
    let mut rest = answer.content.as_slice();
    let mut found = Vec::new();
    while let Some(part) = rest.strip_prefix(format!("\r\n--{boundary}\r\n").as_bytes()) {
        let end =
            part.windows(4).position(|window| window == b"\r\n\r\n").expect("a part has a head");
        let (head, content) = part.split_at(end);
        let head = std::str::from_utf8(head).expect("heads are text");
        let value = head
            .lines()
            .find_map(|line| line.strip_prefix("content-range: "))
            .expect("a part says which");
        let (first, last) = content_range(value, file);
        let (bytes, behind) = content.get(4..).expect("the empty line").split_at(last - first + 1);
        assert_eq!(file.content.get(first..=last), Some(bytes));
        found.push((first, last));
        rest = behind;
    }
    assert_eq!(rest, format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(found.len() > 1);
    found
}

fn is_whole(answer: &Answer, file: &Served) -> bool {
    answer.status == 200 && answer.content == file.content
}

/// Makes a well-formed `Range` from the input. Its ranges often overlap, touch or contain each
/// other.
fn made(input: &[u8], length: usize) -> String {
    let specs = input.chunks(2).take(12).map(|pair| {
        let (first, more) =
            (usize::from(pair[0]), usize::from(pair.get(1).copied().unwrap_or_default()));
        let first = first * (length + 2) / 256;
        match more {
            0 => format!("{first}-"),
            1 => format!("-{first}"),
            _ => format!("{first}-{}", first + (more - 2) * (length + 2) / 512),
        }
    });
    format!("bytes={}", specs.collect::<Vec<_>>().join(","))
}

/// Checks the answer to a `Range` without conditions.
fn check_range(file: &Served, range: &[u8]) {
    let client = &FIXTURE.client;
    let answer = ask(client, Method::GET, file.path.as_bytes(), &[("range", range)], b"");
    match model(range.trim_ascii(), file.content.len()) {
        Model::Ignored => assert!(is_whole(&answer, file), "{answer:?}"),
        Model::Unsatisfiable => {
            assert_eq!(answer.status, 416, "{answer:?}");
            assert_eq!(
                answer.header("content-range"),
                Some(&*format!("bytes */{}", file.content.len()))
            );
        }
        Model::Bytes(expected) => {
            assert_eq!(answer.status, 206, "{answer:?}");
            let found = ranges(&answer, file);
            let mut sent = vec![false; file.content.len()];
            for &(first, last) in &found {
                assert!(!sent[first..=last].contains(&true), "no byte is sent twice: {found:?}");
                sent[first..=last].fill(true);
            }
            assert!(sent == expected, "{found:?}");
        }
    }
    let head = ask(client, Method::HEAD, file.path.as_bytes(), &[("range", range)], b"");
    assert_eq!(head.status, 200, "a `Range` is for `GET`");
    assert_eq!(head.header("content-length"), Some(&*file.content.len().to_string()));
}

/// Returns a line of the input as the value of a field. `E` stands for the tag of the file and `D`
/// for its date.
fn value(line: &[u8], file: &Served) -> Vec<u8> {
    line.iter()
        .flat_map(|byte| match byte {
            b'E' => file.etag.as_bytes().to_vec(),
            b'D' => file.date.as_bytes().to_vec(),
            _ => vec![*byte],
        })
        .collect()
}

const CONDITIONS: [&str; 5] =
    ["if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];

fuzz_target!(|input: &[u8]| {
    let Some((&choice, input)) = input.split_first() else { return };
    let Fixture { client, files, .. } = &*FIXTURE;
    let file = files.get(usize::from(choice) % LENGTHS.len()).expect("there are so many");
    let mut values = input
        .split(|&byte| byte == b'\n')
        .map(|line| value(line, file))
        .filter(|line| is_field_value(line));
    let range = values.next().unwrap_or_default();
    if range.len() > 4096 {
        return;
    }

    check_range(file, &range);
    check_range(file, made(input, file.content.len()).as_bytes());

    // With conditions.
    let others: Vec<Vec<u8>> =
        values.take(CONDITIONS.len()).filter(|value| value.len() < 4096).collect();
    let mut lines: Vec<(&str, &[u8])> = vec![("range", &range)];
    lines.extend(
        CONDITIONS
            .iter()
            .zip(&others)
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (*name, &**value)),
    );
    let answer = ask(client, Method::GET, file.path.as_bytes(), &lines, b"");
    let given = |wanted: &str| {
        lines.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.trim_ascii())
    };
    match answer.status {
        200 => assert!(is_whole(&answer, file)),
        206 => {
            ranges(&answer, file);
            let if_range = given("if-range");
            let is_current = |value: &[u8]| {
                let date = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| httpdate::parse_http_date(text).ok());
                // The date counts once its second is over, because no later write can have the same
                // date.
                value == file.etag.as_bytes()
                    || date.is_some_and(|date| httpdate::fmt_http_date(date) == file.date)
            };
            assert!(if_range.is_none_or(is_current), "{if_range:?}");
        }
        304 => {
            assert!(answer.content.is_empty() && answer.header("etag") == Some(&*file.etag));
            assert!(given("if-none-match").is_some() || given("if-modified-since").is_some());
        }
        412 => assert!(given("if-match").is_some() || given("if-unmodified-since").is_some()),
        400 => assert!(given("if-match").is_some()),
        416 => {
            assert!(matches!(model(range.trim_ascii(), file.content.len()), Model::Unsatisfiable))
        }
        status => panic!("{status}"),
    }
    // If the conditions match for sure, only one answer is right.
    if given("if-match").is_none() && given("if-unmodified-since").is_none() {
        match given("if-none-match") {
            Some(value) if value == file.etag.as_bytes() || value == b"*" => {
                assert_eq!(answer.status, 304)
            }
            None if given("if-modified-since") == Some(file.date.as_bytes()) => {
                assert_eq!(answer.status, 304)
            }
            _ => {}
        }
    }
});
