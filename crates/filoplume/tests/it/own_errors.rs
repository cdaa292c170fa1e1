//! Error types of the app that define their own response.

#![allow(clippy::unwrap_used, reason = "these are tests, helpers included")]

use std::fmt;
use std::sync::Arc;

use filoplume::middleware::{Jwt, JwtError};
use filoplume::prelude::*;
use parking_lot::Mutex;

#[derive(Debug)]
enum ShopError {
    SoldOut,
    Moved,
    Broken,
}

impl std::error::Error for ShopError {}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SoldOut => "sold out",
            Self::Moved => "moved",
            Self::Broken => "the till is broken",
        })
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Result<Response> {
        match self {
            Self::SoldOut => Err(Error::conflict("sold out")),
            Self::Moved => Redirect::to("/elsewhere").into_response(),
            Self::Broken => Err(Error::unavailable("closed")),
        }
    }
}

fn take(item: &str) -> Result<String, ShopError> {
    match item {
        "tea" => Ok("tea".to_owned()),
        "house" => Err(ShopError::Moved),
        "till" => Err(ShopError::Broken),
        _ => Err(ShopError::SoldOut),
    }
}

fn app() -> App {
    App::new()
        .get("/own/{item}", |Path(item): Path<String>| take(&item))
        .get("/any/{item}", |Path(item): Path<String>| -> Result<String> { Ok(take(&item)?) })
        .get("/chosen", || -> Result<()> {
            Err(Error::bad_request("no").with_source(ShopError::SoldOut))
        })
        .get("/other", || -> Result<String> { Ok("x".parse::<u32>()?.to_string()) })
}

/// Regression: `?` turned it into a 500 without a warning.
#[test]
fn an_error_type_of_the_app_keeps_its_status_after_a_question_mark() {
    let client = app().error_response::<ShopError>().test();
    for path in ["/own", "/any"] {
        client.get(&format!("{path}/tea")).send().assert_status(200).assert_text("tea");
        client
            .get(&format!("{path}/unicorn"))
            .send()
            .assert_status(409)
            .assert_contains("sold out");
        client
            .get(&format!("{path}/house"))
            .send()
            .assert_status(303)
            .assert_header("location", "/elsewhere");
        client.get(&format!("{path}/till")).send().assert_status(503).assert_contains("closed");
    }
    client.get("/chosen").send().assert_status(400);
    client.get("/other").send().assert_status(500);
}

#[test]
fn map_error_takes_precedence() {
    let app = app().error_response::<ShopError>();
    let client = app.map_error(|_: &ShopError| Error::from_status(StatusCode::GONE)).test();
    client.get("/any/unicorn").send().assert_status(410);
    client.get("/own/unicorn").send().assert_status(409);
}

#[test]
fn a_token_that_is_not_valid_is_a_401_after_a_question_mark() {
    fn app() -> Result<App> {
        let jwt = Jwt::hs256("a secret of 32 random bytes at least")?;
        let name = |State(jwt): State<Jwt>, Path(token): Path<String>| -> Result<String> {
            Ok(jwt.verify(&token)?["sub"].to_string())
        };
        let own = |State(jwt): State<Jwt>| jwt.verify("made up").map(drop);
        Ok(App::new().get("/any/{token}", name).get("/own", own).state(jwt))
    }
    let client = app().expect("the secret is long enough").test();
    for path in ["/any/made-up", "/own"] {
        let response = client.get(path).send();
        response.assert_status(401).assert_contains("the token is not valid");
        let challenge = response.header("www-authenticate").expect("a 401 has a challenge");
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    }
    let gone = |_: &JwtError| Error::from_status(StatusCode::GONE);
    let client = app().expect("the secret is long enough").map_error(gone).test();
    client.get("/any/made-up").send().assert_status(410);
}

/// The log output of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(app: App, path: &str) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let client = app.test();
    tracing::subscriber::with_default(subscriber, || client.get(path).send());
    let text = log.0.lock().clone();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_lost_status_is_a_warning_with_the_fix() {
    let text = logged(app(), "/any/unicorn");
    assert!(
        text.contains("own_errors::ShopError` implements `IntoResponse`, but `?` converted it"),
        "{text}"
    );
    assert!(text.contains("`.error_response::<ShopError>()`"), "{text}");
    assert!(!logged(app(), "/other").contains("IntoResponse"));
    assert!(!logged(app(), "/own/unicorn").contains("IntoResponse"));
    let kept = logged(app().error_response::<ShopError>(), "/any/till");
    assert!(kept.contains("the till is broken") && !kept.contains("IntoResponse"), "{kept}");

    let page =
        app().development(true).test().get("/any/unicorn").header("accept", "text/html").send();
    page.assert_status(500).assert_contains("error_response::&lt;ShopError&gt;()");
}
