//! Parsing and writing of cookies.

use super::*;

fn sent(cookie: impl Into<Cookie<'static>>) -> Result<String, String> {
    let mut response = Response::default();
    add_set_cookie(&mut response, cookie.into(), true).map_err(|error| error.to_string())?;
    Ok(response.headers().get_str("set-cookie").unwrap_or_default().to_owned())
}

#[test]
fn pairs_are_read_leniently() {
    let read = |pair: &str| parse(pair.as_bytes());
    let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
    assert_eq!(read(" a=b "), pair("a", "b"));
    assert_eq!(read("a=\"b\""), pair("a", "b"));
    assert_eq!(read("a=b=c"), pair("a", "b=c"));
    assert_eq!(read("a="), pair("a", ""));
    assert_eq!(read("a=%C3%A4%20%3B"), pair("a", "ä ;"));
    assert_eq!(read("a=100%"), pair("a", "100%"));
    assert_eq!(read("a=%FF"), pair("a", "%FF"), "no UTF-8: left as it is");
    assert_eq!(read("=b"), None);
    assert_eq!(read("a"), None);
    assert_eq!(read(""), None);
    assert_eq!(parse(b"a=\xff"), None);
}

#[test]
fn values_round_trip() {
    for value in ["plain", "a b", "a;b, c", "100%", "%41", "\"quoted\"", "ä\\ö", "line\r\nend", ""]
    {
        let line = sent(("name", value)).expect("it can be sent");
        let (pair, attributes) = line.split_once(';').expect("it has attributes");
        assert_eq!(attributes, " HttpOnly; SameSite=Lax; Secure; Path=/", "{line}");
        assert_eq!(parse(pair.as_bytes()), Some(("name".to_owned(), value.to_owned())), "{line}");
    }
}

#[test]
fn invalid_and_oversized_cookies_are_an_error() {
    assert!(sent(("na me", "x")).is_err_and(|error| error.contains("not a token")));
    assert!(sent(("", "x")).is_err());
    assert!(sent(("a\r\nset-cookie: b", "x")).is_err());
    let cookie = Cookie::build(("a", "b")).path("/; Domain=evil.example");
    assert!(sent(cookie).is_err_and(|error| error.contains("semicolon")));
    for text in ["a;b", "a\r\nb", "a\tb"] {
        let cookies =
            [Cookie::build(("a", "b")).path(text), Cookie::build(("a", "b")).domain(text)];
        for cookie in cookies {
            assert!(sent(cookie).is_err_and(|error| error.contains("semicolon")), "{text:?}");
        }
    }
    let around = sent(("a", "")).expect("it can be sent").len();
    let longest = "x".repeat(SET_COOKIE_BYTES_MAX - around);
    assert_eq!(sent(("a", longest)).expect("it can be sent").len(), SET_COOKIE_BYTES_MAX);
    let long = "x".repeat(SET_COOKIE_BYTES_MAX - around + 1);
    assert!(
        sent(("a", long)).is_err_and(|error| error.contains("4096") && error.contains("session"))
    );
}

#[test]
fn prefixed_cookies_get_their_required_attributes() {
    let cookie = Cookie::build(("__Host-a", "b")).path("/x").domain("example.org").secure(false);
    assert_eq!(sent(cookie), Ok("__Host-a=b; HttpOnly; SameSite=Lax; Secure; Path=/".to_owned()));
    for name in ["__Secure-a", "__secure-a", "__HOST-a"] {
        let line = sent(Cookie::build((name, "b")).secure(false)).expect("it can be sent");
        assert!(line.contains("; Secure"), "{line}");
    }
    let cookie = Cookie::build(("a", "b")).same_site(SameSite::None).http_only(false);
    assert_eq!(sent(cookie), Ok("a=b; SameSite=None; Secure; Path=/".to_owned()));
}

/// A change after the response would be lost in silence.
#[test]
fn a_change_after_the_response_is_logged() {
    let kept = Arc::new(Mutex::new(None));
    let keeper = Arc::clone(&kept);
    let handler = move |cookies: Cookies| {
        cookies.add(("early", "1"));
        *keeper.lock() = Some(cookies);
        "hi"
    };
    let response = crate::App::new().get("/", handler).test().get("/").send();
    assert_eq!(response.cookie("early"), Some("1"));
    let cookies = kept.lock().take().expect("the handler was called");
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || cookies.add(("late", "1")));
    let log = String::from_utf8_lossy(&log.0.lock()).into_owned();
    assert!(log.contains("after the response was made") && log.contains("late"), "{log}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
