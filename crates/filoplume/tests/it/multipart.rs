//! Forms with files.

#![allow(clippy::needless_pass_by_value, reason = "rows read better with values")]

use std::io::Read;

use expect_test::{Expect, expect};
use filoplume::extract::MultipartLimits;
use filoplume::prelude::*;
use filoplume::testing::{TestClient, TestResponse};
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

const TYPE: &str = "multipart/form-data; boundary=xyz";

fn part(parameters: &str, content: &str) -> String {
    format!("--xyz\r\nContent-Disposition: form-data; {parameters}\r\n\r\n{content}\r\n")
}

fn form(parts: &[(&str, &str)]) -> String {
    let parts: Vec<_> =
        parts.iter().map(|(parameters, content)| part(parameters, content)).collect();
    format!("{}--xyz--\r\n", parts.concat())
}

fn showing_errors(app: App) -> TestClient {
    app.present_errors(|error, _| {
        Some(Response::from(error.detail().unwrap_or("(nothing)").to_owned()))
    })
    .test()
}

#[track_caller]
fn check(response: &TestResponse, expected: Expect) {
    expected.assert_eq(&format!("{} {}", response.status().as_u16(), response.text()));
}

fn list(mut form: Multipart) -> Result<String> {
    let mut lines = String::new();
    while let Some(field) = form.next_field()? {
        let file = field.file_name().map(str::to_owned);
        let line = format!("{} {file:?} {:?}", field.name(), field.content_type());
        lines += &format!("{line} {:?}\n", field.text()?);
    }
    Ok(lines)
}

fn small(mut form: Multipart) -> Result<String> {
    form.set_limits(
        MultipartLimits::new()
            .parts_max(2)
            .memory_bytes_max(3)
            .field_bytes_max(5)
            .total_bytes_max(300),
    );
    let mut lengths = Vec::new();
    while let Some(mut field) = form.next_field()? {
        if field.is_file() {
            let mut content = Vec::new();
            lengths.push(field.read_to_end(&mut content)?);
        } else {
            lengths.push(field.bytes()?.len());
        }
    }
    Ok(format!("{lengths:?}"))
}

/// A form with a text and a file.
fn two_fields() -> String {
    form(&[
        ("name=\"title\"", "A cat"),
        ("name=photo; filename=\"a/cat.png\"\r\nContent-Type: image/png", "meow"),
    ])
}

fn send(client: &TestClient, content_type: &str, content: impl Into<Vec<u8>>) -> TestResponse {
    client.post("/").header("content-type", content_type).body(content).send()
}

#[test]
fn fields_are_read_in_order() {
    let client = showing_errors(App::new().post("/", list));
    let two = two_fields();
    check(
        &send(&client, TYPE, two),
        expect![[r#"
        200 title None None "A cat"
        photo Some("cat.png") Some("image/png") "meow"
    "#]],
    );
    check(&send(&client, "multipart/form-data; boundary=\"xyz\"", form(&[])), expect!["200 "]);
}

#[test]
fn only_a_content_type_with_a_boundary_is_a_form() {
    let client = showing_errors(App::new().post("/", list));
    let two = two_fields();
    check(
        &send(&client, "multipart/mixed; boundary=xyz", two.as_str()),
        expect![
            "415 the content must be a form with files: send `content-type: multipart/form-data`"
        ],
    );
    check(
        &send(&client, "multipart/form-data", two.as_str()),
        expect!["400 the content type has no valid `boundary` of 1 to 70 characters"],
    );
    check(
        &client.post("/").body(two.as_str()).send(),
        expect![
            "415 the content must be a form with files: send `content-type: multipart/form-data`"
        ],
    );
    let twice = client
        .post("/")
        .header("content-type", TYPE)
        .header("content-type", TYPE)
        .body(two.as_str());
    check(
        &twice.send(),
        expect![
            "415 the content must be a form with files: send `content-type: multipart/form-data`"
        ],
    );
}

#[test]
fn a_malformed_form_is_a_400_with_its_place() {
    let client = showing_errors(App::new().post("/", list));
    let two = two_fields();
    check(
        &send(&client, TYPE, ""),
        expect![
            "400 the form is malformed before the first part, at byte 0: it ends before the final \
             boundary"
        ],
    );
    check(
        &send(&client, TYPE, &two[..two.len() - 6]),
        expect![
            "400 the form is malformed in part 2, at byte 171: it ends before the final boundary"
        ],
    );
    check(
        &send(&client, TYPE, form(&[("filename=x", "")])),
        expect![
            "400 the form is malformed in part 1, at byte 5: the head of the part needs one \
             `Content-Disposition: form-data` with one name"
        ],
    );
}

#[test]
fn a_text_that_is_not_utf8_is_a_400() {
    let client = showing_errors(App::new().post("/", list));
    let not_utf8 = [
        form(&[("name=a", "")]).replace("--xyz--\r\n", "").as_bytes(),
        b"--xyz\r\nContent-Disposition: form-data; name=b\r\n\r\nab\xff\r\n--xyz--",
    ]
    .concat();
    check(&send(&client, TYPE, not_utf8), expect!["400 `b` is not UTF-8 from byte 2 on"]);
}

#[test]
fn a_form_over_a_limit_is_a_413() {
    let app = App::new().post("/", small).route("/route", post(list).content_bytes_max(100));
    let client = showing_errors(app);
    let send = |path: &str, content: &str| {
        client.post(path).header("content-type", TYPE).body(content).send()
    };
    check(
        &send("/", &form(&[("name=a", "123"), ("name=b; filename=c", "12345")])),
        expect!["200 [3, 5]"],
    );
    check(
        &send("/", &form(&[("name=a", "1234")])),
        expect!["413 `a` is longer than the 3 bytes that are accepted"],
    );
    check(
        &send("/", &form(&[("name=a; filename=b", "123456")])),
        expect!["413 `a` is longer than the 5 bytes that are accepted"],
    );
    check(
        &send("/", &form(&[("name=a", ""), ("name=a", ""), ("name=a", "")])),
        expect!["413 the form has more than the 2 parts that are accepted"],
    );
    check(
        &send("/", &(form(&[("name=a", "")]) + &"x".repeat(300))),
        expect!["413 the form is longer than the 300 bytes that are accepted"],
    );
    check(
        &send("/route", &form(&[("name=a", &"x".repeat(100))])),
        expect!["413 the content is longer than the 100 bytes that this route accepts"],
    );
}

#[test]
fn unread_fields_are_skipped() {
    let client = showing_errors(App::new().post("/", |mut form: Multipart| -> Result<String> {
        let mut names = Vec::new();
        while let Some(mut field) = form.next_field()? {
            names.push(field.name().to_owned());
            if field.name() == "half" {
                field.read_exact(&mut [0; 2])?;
            }
        }
        Ok(names.join(" "))
    }));
    let long = "x".repeat(100_000);
    let content = form(&[("name=none", &long), ("name=half", &long), ("name=last", "")]);
    check(
        &client.post("/").header("content-type", TYPE).body(content).send(),
        expect!["200 none half last"],
    );
}

#[test]
fn files_are_saved_completely_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_owned();
    let client = showing_errors(App::new().post(
        "/{name}",
        move |Path(name): Path<String>, mut form: Multipart| -> Result<String> {
            let mut saved = 0;
            while let Some(field) = form.next_field()? {
                saved += field.save_to(to.join(&name))?;
            }
            Ok(saved.to_string())
        },
    ));
    let send = |path: &str, content: &str| {
        client.post(path).header("content-type", TYPE).body(content).send()
    };
    let long = "line\r\n".repeat(20_000);
    let content = form(&[("name=a; filename=b", &long)]);
    check(&send("/one", &content), expect!["200 120000"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("one")).unwrap(), long);
    // The file exists already, which is a mistake of the program and not of the client.
    check(&send("/one", &content), expect!["500 (nothing)"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("one")).unwrap(), long);
    check(
        &send("/two", &content[..60_000]),
        expect![
            "400 the form is malformed in part 1, at byte 60000: it ends before the final boundary"
        ],
    );
    assert!(!folder.path().join("two").exists());
}

/// The system's message does not say which file it is.
#[test]
fn a_file_that_cannot_be_created_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("file");
    let expected = format!("NotFound: cannot create {}: ", path.display());
    let in_body = path.clone();
    let app = App::new()
        .post("/field", move |mut form: Multipart| -> Result<String> {
            let error = form.next_field()?.unwrap().save_to(&path).unwrap_err();
            Ok(format!("{:?}: {error}", error.kind()))
        })
        .post("/body", move |mut body: Body| {
            let error = body.save_to(&in_body).unwrap_err();
            format!("{:?}: {error}", error.kind())
        });
    let client = app.test();
    let content = form(&[("name=a; filename=b", "text")]);
    for path in ["/field", "/body"] {
        let answer = client.post(path).header("content-type", TYPE).body(content.clone()).send();
        assert!(answer.text().starts_with(&expected), "{path}: {}", answer.text());
    }
}

#[test]
fn a_connection_is_used_again_after_a_form() {
    let service = App::new().post("/", list).build().unwrap();
    let content = form(&[("name=a", "1")]) + "an epilogue";
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {TYPE}\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    let requests = [head.as_str(), &content, &head, &content].concat();
    let config = ServerConfig::default();
    let answers = filoplume_runtime::answer_in_process(
        &service,
        filoplume::Peer::Unix,
        requests.as_bytes(),
        &config,
    );
    let answers = String::from_utf8(answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A panic would be a 500.
    #[test]
    fn no_input_is_a_server_error(
        content in proptest::collection::vec(any::<u8>(), 0..80),
        text in "[a-z\"=; \\\\*'%-]{0,40}",
    ) {
        let client = App::new().post("/", list).test();
        let head = format!("--xyz\r\nContent-Disposition: form-data; name=a; {text}\r\n\r\n");
        for content in [content.clone(), [head.as_bytes(), &content].concat()] {
            let answer = client.post("/").header("content-type", TYPE).body(content).send();
            prop_assert!(answer.status().is_client_error(), "{answer:?}");
        }
        let content_type = format!("multipart/form-data; {text}");
        let request = client.post("/").header("content-type", &content_type);
        let answer = request.body(form(&[("name=a", "")])).send();
        prop_assert!(!answer.status().is_server_error(), "{answer:?}");
    }
}

/// Regression: a field had a separate limit of 32 MiB, whatever the route accepted.
#[test]
fn a_field_may_be_as_long_as_the_route_accepts() {
    const MEBIBYTE: usize = 1024 * 1024;
    let count = |mut form: Multipart| -> Result<String> {
        let Some(mut field) = form.next_field()? else {
            return Err(Error::bad_request("an empty form"));
        };
        Ok(std::io::copy(&mut field, &mut std::io::sink())?.to_string())
    };
    let app = App::new()
        .route("/raised", post(count).content_bytes_max(40 * MEBIBYTE as u64))
        .route("/lowered", post(count).content_bytes_max(100));
    let client = app.test();
    let send = |path: &str, length: usize| {
        let content = form(&[("name=a; filename=b", &"x".repeat(length))]);
        client.post(path).header("content-type", TYPE).body(content).send()
    };
    send("/raised", 33 * MEBIBYTE).assert_status(200).assert_text(&(33 * MEBIBYTE).to_string());
    send("/raised", 41 * MEBIBYTE).assert_status(413);
    send("/lowered", 200).assert_status(413);
}
