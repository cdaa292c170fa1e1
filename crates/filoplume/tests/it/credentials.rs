//! Credentials are neither in `Debug` output nor in the log.
#![allow(clippy::unwrap_used, reason = "these are tests, helpers included")]

use std::fmt::Debug;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use filoplume::Key;
use filoplume::extract::{AuthorizationRejection, Basic, Bearer, HeaderMap};
use filoplume::middleware::{
    BasicAuth, BearerAuth, Csrf, CsrfToken, Jwt, JwtKey, Logger, RateLimit, RedisCounters, Sessions,
};
use filoplume::prelude::*;
use filoplume::session::RedisStore;
use filoplume::testing::MultipartForm;
use parking_lot::Mutex;

/// The secret to search for. It is long enough for a key, and parts of it are recognised too.
const SECRET: &str = "s3same-0pen-s3same-0pen-s3same-0pen-s3same-0pen-s3same-0pen-s3same-0pen";
const PART: &str = "s3same";

/// A Redis server that does not exist, with a password.
const REDIS: &str = "redis://user:s3same-redis@127.0.0.1:1/";

/// Asserts that a text contains the secret in no form.
#[track_caller]
fn assert_clean(what: &str, text: &str) {
    let bytes: Vec<_> = PART.bytes().map(|byte| byte.to_string()).collect();
    // Base64 has three alignments. For each, this is the middle part of the encoding, which does
    // not depend on what is around the secret.
    let encoded = |skip: usize| {
        let text = format!("{}{PART}", "x".repeat(skip));
        let encoded = STANDARD.encode(text);
        encoded
            .get((skip * 4).div_ceil(3)..encoded.trim_end_matches('=').len() - 1)
            .unwrap()
            .to_owned()
    };
    for form in [PART.to_owned(), bytes.join(", "), encoded(0), encoded(1), encoded(2)] {
        assert!(!text.contains(&form), "{what} shows {form}: {text}");
    }
}

#[track_caller]
fn check(what: &str, value: &impl Debug) {
    assert_clean(what, &format!("{value:?}"));
    assert_clean(what, &format!("{value:#?}"));
}

#[test]
fn the_search_finds_a_credential_in_every_form() {
    for text in [
        format!("password={SECRET}"),
        format!("{:?}", SECRET.as_bytes()),
        STANDARD.encode(format!("ada:{SECRET}")),
        STANDARD.encode(format!("bob1:{SECRET}")),
        STANDARD.encode(format!("carol:{SECRET}")),
    ] {
        assert!(std::panic::catch_unwind(|| assert_clean("", &text)).is_err(), "{text}");
    }
}

fn key() -> Key {
    Key::from_secret(SECRET).unwrap()
}

#[test]
fn configuration_shows_no_credentials() {
    check("Key", &key());
    check("JwtKey", &JwtKey::hs256(SECRET).unwrap().id("1"));
    check("Jwt", &Jwt::hs256(SECRET).unwrap().key(JwtKey::hs512(SECRET).unwrap()));
    check("BasicAuth", &BasicAuth::user("ada", SECRET));
    check("BearerAuth", &BearerAuth::tokens([SECRET]));
    check("Csrf", &Csrf::new());
    check("Sessions", &Sessions::in_cookie(key()).old_key(key()));
    check("RedisCounters", &RedisCounters::new(REDIS));
    check("RateLimit", &RateLimit::per_second(1).redis(REDIS));
    for error in [
        RedisStore::connect(REDIS).err(),
        RedisStore::connect("redis://user:s3same@:x:y/").err(),
        RedisStore::connect("s3same").err(),
        Key::from_secret(PART).err(),
        JwtKey::hs256(PART).err(),
    ] {
        let error = error.unwrap();
        check("Error", &error);
        assert_clean("Error", &error.to_string());
    }
    let app = || {
        App::new()
            .get("/", |State(key): State<Key>| format!("{key:?}"))
            .with(BasicAuth::user("ada", SECRET))
            .with(RateLimit::per_second(1).redis(REDIS))
            .state(key())
            .files("/files", StaticFiles::folder(".").header("x-api-key", SECRET))
    };
    check("App", &app());
    check("StaticFiles", &StaticFiles::folder(".").header("x-api-key", SECRET));
    check("Router", &Router::new().state(key()).with(BearerAuth::tokens([SECRET])));
    check("Route", &get(|| "").with(BearerAuth::tokens([SECRET])));
    check("AppService", &app().build().unwrap());
    check("MultipartForm", &MultipartForm::new().text("password", SECRET));
}

/// Returns an app that uses credentials in every possible place.
fn app() -> App {
    #[allow(clippy::needless_pass_by_value, reason = "handlers take their parameters by value")]
    fn handler(
        basic: Result<Basic, AuthorizationRejection>,
        bearer: Result<Bearer, AuthorizationRejection>,
        cookies: Cookies,
        session: Session,
        headers: HeaderMap,
        request: Request,
    ) -> Result<Response> {
        session.insert("password", SECRET)?;
        check("Basic", &basic);
        check("Bearer", &bearer);
        check("Cookies", &cookies);
        check("ProtectedCookies", &cookies.encrypted(&key()));
        cookies.set("remember", SECRET);
        check("Cookies", &cookies);
        check("Session", &session);
        check("CsrfToken", &CsrfToken::of(&session)?);
        check("HeaderMap", &headers);
        check("Request", &request);
        check("Headers", request.headers());
        let mut response = Response::from("done");
        response.add_header("set-cookie", format!("own={SECRET}"))?;
        check("Response", &response);
        Ok(response)
    }
    App::new()
        .post("/", handler)
        .get("/fails", |_: Session| {
            Err::<(), _>(Error::internal(std::io::Error::other("the disk is full")))
        })
        .get("/panics", |_: Request| -> &'static str { panic!("a handler gives up") })
        .with(Logger::new())
        .with(|request: Request, next: Next<'_>| {
            check("Next", &next);
            check("Context", &next.context());
            check("Request", &request);
            let response = next.run(request);
            check("Response", &response);
            response
        })
        .with(
            RateLimit::per_second(100)
                .redis(RedisCounters::new(REDIS).timeout(Duration::from_millis(50))),
        )
        .with(Sessions::in_cookie(key()))
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_request_with_credentials_leaves_none_in_debug_output_and_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        for is_development in [false, true] {
            let client = app().development(is_development).test();
            for (target, name, status) in [
                ("/", "POST", 200),
                ("/fails", "GET", 500),
                ("/panics", "GET", 500),
                ("/nowhere", "GET", 404),
            ] {
                for authorization in ["basic", "bearer"] {
                    let method = Method::from_bytes(name.as_bytes()).unwrap();
                    let request = client
                        .request(method, target)
                        .cookie("session", SECRET)
                        .cookie("own", SECRET);
                    let request = request.header("x-api-key", SECRET);
                    let request = match authorization {
                        "basic" => request.basic("ada", SECRET),
                        _ => request.bearer(SECRET),
                    };
                    check("TestRequest", &request);
                    // If a check in the handler failed, the status would be `500`.
                    let response = request.clone().send();
                    assert_eq!(response.status().as_u16(), status, "{target}");
                    check("TestResponse", &response);
                    // The response is not checked: with it, the content that the test itself has
                    // sent is printed.
                    let form = request.form(&[("password", SECRET)]);
                    check("TestRequest", &form);
                    form.send();
                    check("TestClient", &client);
                }
            }
        }
    });
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(log.contains("POST") && log.contains("the disk is full"), "the log was read: {log}");
    assert_clean("the log", &log);
}
