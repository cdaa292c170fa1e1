//! Responses and assertions about them.

use std::fmt;

use filoplume_runtime::{Headers, StatusCode};

use super::exchange::{SentRequest, compare, printable, write_content};
use super::parse::{ParsedResponse, parse};
use super::target::resolve;

/// The response of an app. A failed assertion prints the whole exchange.
///
/// ```
/// use filoplume::prelude::*;
/// use serde_json::json;
///
/// let app = App::new().get("/notes/1", || Json(json!({"title": "milk", "done": false})));
/// let response = app.test().get("/notes/1").send();
/// response.assert_status(200).assert_json(&json!({"done": false, "title": "milk"}));
/// assert_eq!(response.json::<serde_json::Value>()["title"], "milk");
/// ```
pub struct TestResponse {
    request: SentRequest,
    status: StatusCode,
    headers: Headers,
    body: Vec<u8>,
}

impl TestResponse {
    #[track_caller]
    pub(super) fn parse(answer: &[u8], request: SentRequest) -> Self {
        match parse(answer, &request.method) {
            Ok(ParsedResponse { status, headers, body }) => Self { request, status, headers, body },
            Err(error) => {
                panic!(
                    "the response is not valid HTTP: {error}\n{request}\n{}",
                    String::from_utf8_lossy(answer)
                )
            }
        }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the first value of a header, if it is UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get_str(name)
    }

    /// Returns all values of a header that are UTF-8.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", |cookies: Cookies| {
    ///     cookies.set("a", "1");
    ///     cookies.set("b", "2");
    /// });
    /// assert_eq!(app.test().get("/").send().headers_all("set-cookie").count(), 2);
    /// ```
    pub fn headers_all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).filter_map(|value| std::str::from_utf8(value).ok())
    }

    /// Returns all headers.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Returns the value of a cookie that this response sets.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().post("/theme", |cookies: Cookies| cookies.set("theme", "dark"));
    /// assert_eq!(app.test().post("/theme").send().cookie("theme"), Some("dark"));
    /// ```
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let pairs = self
            .headers_all("set-cookie")
            .filter_map(|cookie| cookie.split(';').next()?.split_once('='));
        pairs.into_iter().find(|(of, _)| of.trim() == name).map(|(_, value)| value.trim())
    }

    /// Returns the content.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the content as text.
    ///
    /// # Panics
    ///
    /// If it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        match std::str::from_utf8(&self.body) {
            Ok(text) => text,
            Err(error) => panic!("the content is not text: {error}\n{self:?}"),
        }
    }

    /// Returns the content, parsed as JSON.
    ///
    /// # Panics
    ///
    /// If it is not JSON, or not a `T`.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => {
                panic!(
                    "the content is not the expected {}: {error}\n{self:?}",
                    crate::core::names::type_name_of::<T>()
                )
            }
        }
    }

    /// Fails the test unless the response has this status.
    ///
    /// # Panics
    ///
    /// If the status is another one.
    #[track_caller]
    pub fn assert_status(&self, status: u16) -> &Self {
        let found = self.status.as_u16();
        assert!(found == status, "expected the status {status}, got {found}\n{self:?}");
        self
    }

    /// Fails the test unless a header has this value. If there are several, the first one counts.
    ///
    /// # Panics
    ///
    /// If the header is missing or has another value.
    #[track_caller]
    pub fn assert_header(&self, name: &str, value: &str) -> &Self {
        match self.header(name) {
            Some(found) => {
                assert!(
                    found == value,
                    "expected `{name}: {value}`, got `{name}: {found}`\n{self:?}"
                );
            }
            None => panic!("expected `{name}: {value}`, and there is no such header\n{self:?}"),
        }
        self
    }

    /// Fails the test if the response has this header.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", || "hi").test();
    /// client.get("/").send().assert_no_header("set-cookie");
    /// ```
    ///
    /// # Panics
    ///
    /// If the response has the header.
    #[track_caller]
    pub fn assert_no_header(&self, name: &str) -> &Self {
        assert!(!self.headers.contains(name), "expected no header `{name}`\n{self:?}");
        self
    }

    /// Fails the test unless the content is this text.
    ///
    /// # Panics
    ///
    /// If the content is another one.
    #[track_caller]
    pub fn assert_text(&self, text: &str) -> &Self {
        assert!(
            self.body == text.as_bytes(),
            "unexpected content: {}\n{self:?}",
            compare(text, &String::from_utf8_lossy(&self.body))
        );
        self
    }

    /// Fails the test unless the content contains this text.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", || Html("<ul><li>tea</li></ul>")).test();
    /// client.get("/").send().assert_contains("<li>tea</li>");
    /// ```
    ///
    /// # Panics
    ///
    /// If the content does not contain it.
    #[track_caller]
    pub fn assert_contains(&self, text: &str) -> &Self {
        assert!(self.text().contains(text), "expected {text:?} in the content\n{self:?}");
        self
    }

    /// Fails the test unless the content is this JSON value. The order of members does not matter.
    ///
    /// # Panics
    ///
    /// If the content is another one; the message lists each difference.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn assert_json<T: serde::Serialize + ?Sized>(&self, value: &T) -> &Self {
        let expected = match serde_json::to_value(value) {
            Ok(expected) => expected,
            Err(error) => panic!("the expected value cannot be expressed in JSON: {error}"),
        };
        let differences = super::difference::differences(&expected, &self.json());
        assert!(
            differences.is_empty(),
            "unexpected JSON:\n- {}\n{self:?}",
            differences.join("\n- ")
        );
        self
    }

    /// Returns the target of a redirect within the app: a path, resolved against the requested one.
    pub(super) fn redirect_target(&self) -> Option<String> {
        let is_redirect = matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let location = self.header("location").filter(|_| is_redirect)?;
        resolve(self.request.target(), location)
    }

    /// Returns the target of the request. After redirects it is the last one.
    #[cfg(feature = "sessions")]
    pub(super) fn target(&self) -> &str {
        self.request.target()
    }

    /// Returns the method and target of the request.
    #[cfg(feature = "sessions")]
    pub(super) fn requested(&self) -> String {
        format!("{} {}", self.request.method, self.request.target())
    }
}

/// Prints the exchange: the request after `>`, the response after `<`. Values of
/// [secret](Headers::is_secret) headers are hidden.
impl fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.request)?;
        writeln!(f, "< {}", self.status)?;
        for (name, value) in self.headers.iter() {
            writeln!(f, "< {name}: {}", printable(name, value))?;
        }
        write_content(f, "< ", &self.body)
    }
}
