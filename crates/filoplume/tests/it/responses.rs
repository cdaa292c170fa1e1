//! Statuses and headers with and without content.

#![allow(clippy::unwrap_used, reason = "these are tests, helpers included")]

use filoplume::prelude::*;
use filoplume::testing::TestResponse;
use filoplume::{Headers, StatusCode};

fn headers() -> Headers {
    let mut headers = Headers::new();
    headers.append("x-a", "b").unwrap();
    headers
}

/// Returns a summary of a response: its status, `x-a`, and content.
fn summary(response: &TestResponse) -> String {
    let header = response.header("x-a").unwrap_or("-");
    format!("{} {header} {}", response.status().as_u16(), response.text())
}

#[test]
fn status_headers_and_content_are_responses_in_every_combination() {
    const X: [(&str, &str); 1] = [("x-a", "b")];
    let owned = || [("x-a".to_owned(), "b".to_owned())];
    let app = App::new()
        .get("/status", || (StatusCode::CREATED, X))
        .get("/owned", move || (StatusCode::CREATED, owned()))
        .get("/map", || (StatusCode::CREATED, headers()))
        .get("/alone", || X)
        .get("/map-alone", headers)
        .get("/content", || (X, "text"))
        .get("/all", || (StatusCode::ACCEPTED, X, "text"))
        .get("/ok", || -> Result<_> { Ok((StatusCode::CREATED, X)) });
    let client = app.test();
    for (path, expected) in [
        ("/status", "201 b "),
        ("/owned", "201 b "),
        ("/map", "201 b "),
        ("/alone", "200 b "),
        ("/map-alone", "200 b "),
        ("/content", "200 b text"),
        ("/all", "202 b text"),
        ("/ok", "201 b "),
    ] {
        assert_eq!(summary(&client.get(path).send()), expected, "{path}");
    }
}

#[test]
fn an_error_status_with_headers_is_rendered_like_an_error() {
    const X: [(&str, &str); 1] = [("x-a", "b")];
    let app = App::new()
        .get("/value", || (StatusCode::GONE, X))
        .get("/map", || (StatusCode::GONE, headers()))
        .get("/error", || -> Result<(), _> { Err((StatusCode::GONE, X)) })
        .get("/typed", || (StatusCode::GONE, [("x-a", "b"), ("content-type", "text/csv")]));
    let client = app.test();
    let problem = r#"410 b {"title":"Gone","status":410}"#;
    for (path, expected) in
        [("/value", problem), ("/map", problem), ("/error", problem), ("/typed", "410 b ")]
    {
        assert_eq!(summary(&client.get(path).send()), expected, "{path}");
    }
}

#[test]
fn invalid_headers_beside_a_status_are_a_500() {
    let app = App::new()
        .get("/value", || (StatusCode::CREATED, [("x-a", "b\r\nc: d")]))
        .get("/name", || (StatusCode::CREATED, [("x a", "b")]))
        .get("/alone", || [("x-a", "b\nc")])
        .get("/error", || (StatusCode::GONE, [("x-a", "b\nc")]))
        .get("/all", || (StatusCode::CREATED, [("", "b")], "text"));
    let client = app.test();
    for path in ["/value", "/name", "/alone", "/error", "/all"] {
        client.get(path).send().assert_status(500).assert_no_header("x-a");
    }
}
