//! Extractors: optional values, validation, and every part of a request.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]
#![allow(clippy::needless_pass_by_value, reason = "rows read better with values")]

mod hostile;
mod rejections;
mod value_memory;

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use expect_test::{Expect, expect};
use filoplume::extract::headers::{Accept, ContentType, Host, Origin, UserAgent};
use filoplume::extract::{
    FormRejection, HeaderMap, HeaderRejection, JsonRejection, PathRejection, Proxies,
    QueryRejection, RawQuery, Target, TypedHeader,
};
use filoplume::prelude::*;
use filoplume::testing::{TestClient, TestResponse};
use filoplume::{Headers, Peer, Server, Version};
use garde::Validate;
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use serde::Deserialize;

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// Compares a response, one line per header: the status, the messages of errors, and their fields.
#[track_caller]
fn check(response: &TestResponse, expected: Expect) {
    let status = response.status().as_u16();
    let text = match serde_json::from_slice::<serde_json::Value>(response.body()) {
        Ok(problem) if problem["detail"].is_string() => {
            problem["detail"].as_str().unwrap().to_owned()
        }
        _ => response.text().to_owned(),
    };
    expected.assert_eq(&format!("{status} {text}"));
}

/// Adds a presentation that shows the message and the fields of an error.
fn showing_errors(app: App) -> TestClient {
    app.present_errors(|error, _| {
        let mut text = error.detail().unwrap_or("(nothing)").to_owned();
        for field in error.fields() {
            text += &format!("\n  {}: {}", field.field, field.message);
        }
        Some(Response::from(text))
    })
    .test()
}

fn show(value: impl Debug) -> String {
    format!("{value:?}")
}

fn post(client: &TestClient, content_type: &str, content: impl Into<Vec<u8>>) -> TestResponse {
    client.post("/").header("content-type", content_type).body(content).send()
}

#[derive(Debug, Deserialize, Validate)]
struct Item {
    #[garde(length(min = 1, max = 10))]
    name: String,
    #[garde(range(min = 1))]
    count: u8,
}

#[derive(Debug, Deserialize, Validate)]
struct Order {
    #[garde(email)]
    mail: String,
    #[garde(dive)]
    items: Vec<Item>,
}

#[derive(Debug, Deserialize, Validate)]
struct Search {
    #[garde(length(min = 2))]
    q: String,
    #[garde(skip)]
    page: Option<u32>,
    #[serde(default)]
    #[garde(skip)]
    tag: Vec<String>,
}

struct Cats(u32);

impl TypedHeader for Cats {
    const NAME: &'static str = "X-Cats";
    type Error = std::num::ParseIntError;

    fn parse(value: &str) -> Result<Self, Self::Error> {
        value.parse().map(Self)
    }
}

#[test]
fn optional_values_are_options() {
    let form = |note: Option<Form<HashMap<String, String>>>| show(note.map(|Form(map)| map));
    let app = App::new()
        .post("/json", |note: Option<Json<Vec<u8>>>| show(note.map(|Json(list)| list)))
        .route("/form", get(form).post(form))
        .get("/extension", |note: Option<Extension<u8>>| {
            show(note.map(|Extension(number)| number))
        });
    let client = showing_errors(app);
    check(&client.post("/json").send(), expect!["200 None"]);
    check(
        &client.post("/json").header("content-type", JSON).body("[1]").send(),
        expect!["200 Some([1])"],
    );
    check(
        &client.post("/json").body("[1]").send(),
        expect!["415 the content must be JSON: send `content-type: application/json`"],
    );
    check(&client.post("/form").send(), expect!["200 None"]);
    check(&client.get("/form").send(), expect!["200 None"]);
    check(&client.get("/form?").send(), expect!["200 None"]);
    check(&client.get("/form?a=b").send(), expect![[r#"200 Some({"a": "b"})"#]]);
    client.post("/form").body("a=b").send().assert_status(415);
    // Content of a type that is not supported does not count as absent, even if it is empty.
    for path in ["/json", "/form"] {
        client.post(path).header("content-type", "text/plain").send().assert_status(415);
    }
    check(
        &client.post("/form").header("content-type", FORM).body("a=b").send(),
        expect![[r#"200 Some({"a": "b"})"#]],
    );
    check(&client.get("/extension").send(), expect!["200 None"]);
}

#[test]
fn content_without_a_byte_has_no_coding_to_decode() {
    let client = App::new().post("/", |content: Vec<u8>| content.len().to_string()).test();
    let post =
        |content: &str| client.post("/").header("content-encoding", "gzip").body(content).send();
    post("").assert_text("0");
    post("a").assert_status(415).assert_header("accept-encoding", "identity");
}

/// An app whose routes validate what they extract.
fn validating() -> TestClient {
    let app = App::new()
        .post("/json", |Valid(Json(order)): Valid<Json<Order>>| show(order.items.len()))
        .post("/form", |Valid(Form(search)): Valid<Form<Search>>| {
            show((search.q, search.page, search.tag))
        })
        .get("/query", |Valid(Query(search)): Valid<Query<Search>>| search.q)
        .post(
            "/question",
            |order: Result<
                Valid<Json<Order>>,
                filoplume::extract::ValidRejection<JsonRejection>,
            >|
             -> Result<String> { Ok(order?.mail.clone()) },
        );
    showing_errors(app)
}

fn post_json(client: &TestClient, path: &str, content: &str) -> TestResponse {
    client.post(path).header("content-type", JSON).body(content).send()
}

#[test]
fn validation_errors_are_listed_by_field() {
    let client = validating();
    let wrong = r#"{"mail":"nobody","items":[{"name":"x","count":1},{"name":"","count":0}]}"#;
    check(
        &post_json(&client, "/json", r#"{"mail":"a@b.cd","items":[{"name":"x","count":1}]}"#),
        expect!["200 1"],
    );
    check(
        &post_json(&client, "/json", wrong),
        expect![[r#"
        422 3 fields are not valid
          items[1].count: lower than 1
          items[1].name: length is lower than 1
          mail: not a valid email: value is missing `@`"#]],
    );
    check(
        &post_json(&client, "/json", r#"{"mail":"nobody","items":[]}"#),
        expect![[r#"
        422 `mail` is not valid: not a valid email: value is missing `@`
          mail: not a valid email: value is missing `@`"#]],
    );
    check(
        &post_json(&client, "/question", wrong),
        expect![[r#"
        422 3 fields are not valid
          items[1].count: lower than 1
          items[1].name: length is lower than 1
          mail: not a valid email: value is missing `@`"#]],
    );
    check(
        &client.post("/form").header("content-type", FORM).body("q=a").send(),
        expect![[r#"
        422 `q` is not valid: length is lower than 2
          q: length is lower than 2"#]],
    );
    check(
        &client.get("/query?q=a").send(),
        expect![[r#"
        422 `q` is not valid: length is lower than 2
          q: length is lower than 2"#]],
    );
}

#[test]
fn what_cannot_be_read_is_rejected_before_its_validation() {
    let client = validating();
    check(
        &post_json(&client, "/json", "{"),
        expect!["400 the content is not JSON: EOF while parsing an object at line 1 column 1"],
    );
    check(
        &post_json(&client, "/question", "{"),
        expect!["400 the content is not JSON: EOF while parsing an object at line 1 column 1"],
    );
    check(
        &client.get("/query").send(),
        expect![[r#"
        400 the query cannot be read: `q` is wrong: it is missing
          q: it is missing"#]],
    );
}

#[test]
fn only_the_first_of_many_validation_errors_are_listed() {
    let client = validating();
    let many = format!(
        r#"{{"mail":"a@b.cd","items":[{}]}}"#,
        [r#"{"name":"","count":1}"#; 5_000].join(",")
    );
    let answer = post_json(&client, "/json", &many);
    answer.assert_status(422);
    assert!(
        answer.text().starts_with("5000 fields are not valid; these are the first\n"),
        "{answer:?}"
    );
    assert_eq!(answer.text().lines().count(), 101);
}

#[test]
fn all_parts_of_the_head_can_be_extracted() {
    let app = App::new()
        .get(
            "/a",
            |method: Method,
             version: Version,
             Target(target): Target,
             RawQuery(query): RawQuery,
             peer: Peer| {
                format!("{method} {version:?} {target} {query} {}", peer != Peer::Unix)
            },
        )
        .get("/headers", |headers: Headers, map: HeaderMap| {
            format!("{:?} {:?}", headers.get_str("x-a"), map.get_all("x-a").iter().count())
        })
        .post("/bytes", |bytes: Vec<u8>| show(bytes))
        .post("/text", |text: String| text);
    let client = showing_errors(app);
    check(&client.get("/a?b=%20").send(), expect!["200 GET Http11 /a?b=%20 b=%20 true"]);
    check(
        &client.get("/headers").header("x-a", "1").header("X-A", "2").send(),
        expect![[r#"200 Some("1") 2"#]],
    );
    check(&client.post("/bytes").body([0, 255]).send(), expect!["200 [0, 255]"]);
    check(&client.post("/text").body("ö").send(), expect!["200 ö"]);
    check(
        &client.post("/text").body(b"ab\xff".to_vec()).send(),
        expect!["400 the content is not UTF-8 from byte 2 on"],
    );
    check(
        &client.post("/text").body(vec![b'a'; 2 * 1024 * 1024 + 1]).send(),
        expect!["413 the content is longer than the 2097152 bytes that this route accepts"],
    );
}
