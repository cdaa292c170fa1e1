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

/// An error of the app, as a value and not in a `Result`.
struct SoldOut;

impl IntoResponse for SoldOut {
    fn into_response(self) -> Result<Response> {
        Err(Error::conflict("sold out"))
    }
}

#[test]
fn headers_around_an_error_status_are_sent() {
    const X: [(&str, &str); 2] = [("x-a", "b"), ("content-type", "text/csv")];
    let client = App::new()
        .get("/status", || (X, StatusCode::UNAUTHORIZED))
        .get("/map", || (headers(), StatusCode::UNAUTHORIZED))
        .get("/error", || (X, Error::not_found("no tea")))
        .get("/own", || (X, SoldOut))
        .get("/all", || (StatusCode::ACCEPTED, X, SoldOut))
        .get("/done", || (X, StatusCode::NO_CONTENT))
        .test();
    for (path, expected) in [
        ("/status", r#"401 b {"title":"Unauthorized","status":401}"#),
        ("/map", r#"401 b {"title":"Unauthorized","status":401}"#),
        ("/error", r#"404 b {"title":"Not Found","status":404,"detail":"no tea"}"#),
        ("/own", r#"409 b {"title":"Conflict","status":409,"detail":"sold out"}"#),
        ("/all", r#"409 b {"title":"Conflict","status":409,"detail":"sold out"}"#),
        ("/done", "204 b "),
    ] {
        let response = client.get(path).send();
        assert_eq!(summary(&response), expected, "{path}");
        if response.status() != 204 {
            response.assert_header("content-type", "application/problem+json");
        }
    }
}

/// As around a value: the outer header counts, and each cookie stays.
#[test]
fn headers_around_an_error_replace_those_of_the_same_name() {
    const OUTER: [(&str, &str); 2] = [("Retry-After", "9"), ("set-cookie", "b=2")];
    let error = || -> Result<Error> {
        Ok(Error::conflict("no")
            .with_header("retry-after", "1")?
            .with_header("set-cookie", "a=1")?)
    };
    let inner = [("retry-after", "1"), ("set-cookie", "a=1")];
    let client = App::new()
        .get("/value", move || (OUTER, (inner, "text")))
        .get("/error", move || -> Result<_> { Ok((OUTER, error()?)) })
        .get("/status", move || (OUTER, (inner, StatusCode::CONFLICT)))
        .get("/pair", move || (StatusCode::CONFLICT, (OUTER, (inner, "text"))))
        .get("/added", move || -> Result<_> {
            let mut headers = Headers::new();
            headers.append("link", "</b>")?;
            Ok((headers, error()?.with_header("link", "</a>")?))
        })
        .test();
    for path in ["/value", "/error", "/status", "/pair"] {
        let response = client.get(path).send();
        let all = |name| response.headers_all(name).collect::<Vec<_>>();
        assert_eq!(all("retry-after"), ["9"], "{path}");
        assert_eq!(all("set-cookie"), ["a=1", "b=2"], "{path}");
    }
    let added = client.get("/added").send();
    assert_eq!(added.headers_all("link").collect::<Vec<_>>(), ["</a>", "</b>"]);
}

/// With two, each client would decide for itself which one it believes.
#[test]
fn headers_that_a_response_has_once_replace_those_of_the_value() {
    let headers = |rows: &[(&str, &str)]| {
        let mut headers = Headers::new();
        rows.iter().for_each(|(name, value)| headers.append(name, *value).unwrap());
        headers
    };
    let csv = headers(&[("Content-Type", "text/csv"), ("x-a", "1"), ("x-a", "2")]);
    let place = headers(&[("location", "/b")]);
    let later = headers(&[("retry-after", "9")]);
    let busy = || Error::unavailable("busy").with_header("retry-after", "1");
    let client = App::new()
        .get("/csv", move || (csv.clone(), "a,b"))
        .get("/to", move || (place.clone(), Redirect::to("/a")))
        .get("/busy", move || -> Result<_> { Ok((later.clone(), busy()?)) })
        .test();
    let rows = [
        ("/csv", "content-type", &["text/csv"][..]),
        ("/csv", "x-a", &["1", "2"]),
        ("/to", "location", &["/b"]),
        ("/busy", "retry-after", &["9"]),
    ];
    for (path, name, expected) in rows {
        let response = client.get(path).send();
        assert_eq!(response.headers_all(name).collect::<Vec<_>>(), expected, "{path} {name}");
    }
}

/// Otherwise a missing page would stay in caches for as long as the page itself.
#[test]
fn headers_of_a_value_are_not_those_of_the_error_in_its_place() {
    const X: [(&str, &str); 1] = [("x-a", "b")];
    let client = App::new()
        .get("/none", || (X, None::<String>))
        .get("/err", || (X, Err::<String, _>(Error::not_found("no tea"))))
        .get("/json", || (X, Json([((), ())].into_iter().collect::<Unserializable>())))
        .test();
    for path in ["/none", "/err", "/json"] {
        client.get(path).send().assert_no_header("x-a");
    }
}

/// JSON cannot have a unit as the name of a field.
type Unserializable = std::collections::HashMap<(), ()>;

#[test]
fn a_value_that_has_no_json_is_named_as_the_cause() {
    let app = || App::new().get("/", || Json(std::collections::HashMap::from([((1, 2), 3)])));
    let response = app().development(true).test().get("/").send();
    response
        .assert_status(500)
        .assert_contains("the value cannot be written as JSON")
        .assert_contains("key must be a string");
    let app = app().map_error(|_: &serde_json::Error| Error::conflict("no JSON"));
    app.test().get("/").send().assert_status(409);
}
