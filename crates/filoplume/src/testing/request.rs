//! Builds and sends requests of the test client.

use std::fmt;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use filoplume_runtime::{Method, Peer, StatusCode};

use super::client::TestClient;
use super::content::{Content, encoded};
use super::exchange::{SentRequest, printable};
#[cfg(feature = "sessions")]
use super::forms::PageForms;
use super::multipart::MultipartForm;
use super::response::TestResponse;
use super::target::path_of;

/// Length of a chunk: short, so that there are several.
const CHUNK_BYTES: usize = 1000;

/// The host of requests that do not name one.
pub(super) const DEFAULT_HOST: &str = "localhost";

const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// A request to an app.
///
/// ```
/// use filoplume::prelude::*;
///
/// let client = App::new().post("/login", |text: String| text).test();
/// let response =
///     client.post("/login").form(&[("user", "ada"), ("password", "a&b c")]).send();
/// response.assert_text("user=ada&password=a%26b+c");
/// ```
#[derive(Clone)]
#[must_use = "nothing is sent until `send` is called"]
pub struct TestRequest<'a> {
    client: &'a TestClient,
    method: Method,
    target: String,
    headers: Vec<(String, String)>,
    cookies: Vec<(String, String)>,
    content: Option<Content>,
    /// The page whose CSRF token is added when the request is sent.
    #[cfg(feature = "sessions")]
    page: Option<PageForms>,
    peer: Peer,
    version: &'static str,
    is_chunked: bool,
    redirects_max: u32,
}

impl<'a> TestRequest<'a> {
    pub(super) fn new(client: &'a TestClient, method: Method, target: &str) -> Self {
        Self {
            client,
            method,
            target: target.to_owned(),
            headers: Vec::new(),
            cookies: Vec::new(),
            content: None,
            #[cfg(feature = "sessions")]
            page: None,
            peer: client.default_peer(),
            version: "HTTP/1.1",
            is_chunked: false,
            redirects_max: 0,
        }
    }

    /// Adds a header. A `cookie` header replaces all cookies that the client keeps.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new()
    ///     .get("/", |request: Request| request.header("x-tag").unwrap_or("none").to_owned())
    ///     .test();
    /// client.get("/").header("x-tag", "blue").send().assert_text("blue");
    /// ```
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a cookie for this request. It replaces the client's cookie of that name.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", |cookies: Cookies| cookies.get("theme")).test();
    /// client.get("/").cookie("theme", "dark").send().assert_text("dark");
    /// client.get("/").send().assert_status(404);
    /// ```
    pub fn cookie(mut self, name: &str, value: &str) -> Self {
        self.cookies.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets `Authorization: Bearer` with this token.
    ///
    /// ```
    /// use filoplume::extract::Bearer;
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", |Bearer(token): Bearer| token).test();
    /// client.get("/").bearer("t0ken").send().assert_text("t0ken");
    /// ```
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Sets `Authorization: Basic` with these credentials (RFC 7617).
    ///
    /// ```
    /// use filoplume::middleware::BasicAuth;
    /// use filoplume::prelude::*;
    ///
    /// let client =
    ///     App::new().get("/", || "welcome").with(BasicAuth::user("ada", "sesame")).test();
    /// client.get("/").basic("ada", "sesame").send().assert_text("welcome");
    /// client.get("/").basic("ada", "guess").send().assert_status(401);
    /// ```
    pub fn basic(self, user: &str, password: &str) -> Self {
        let credentials = STANDARD.encode(format!("{user}:{password}"));
        self.header("authorization", &format!("Basic {credentials}"))
    }

    /// Sends the CSRF token of a page, as a browser does with the form that is sent to this target.
    ///
    /// The field is added to a [`form`](Self::form) and to a [`multipart`](Self::multipart) form.
    /// In the latter it has the same place as in the page: before or after the files. A `POST`
    /// without content sends the form if the page has one for the target. Any other request counts
    /// as one of a script, which sends the first token of the page in a header.
    ///
    /// ```
    /// use filoplume::Key;
    /// use filoplume::middleware::{Csrf, CsrfToken, Sessions};
    /// use filoplume::prelude::*;
    ///
    /// let page = |token: CsrfToken| {
    ///     Html(format!("<form method=post action=/buy>{}</form>", token.field()))
    /// };
    /// let client = App::new()
    ///     .get("/", page)
    ///     .post("/buy", || "bought")
    ///     .with(Sessions::in_cookie(Key::generate()))
    ///     .with(Csrf::new())
    ///     .test();
    /// let page = client.get("/").send();
    /// client.post("/buy").form(&[("item", "tea")]).csrf(&page).send().assert_text("bought");
    /// ```
    ///
    /// # Panics
    ///
    /// [`send`](Self::send) panics if the page has no such form, or if it has no token. The message
    /// lists the forms of the page.
    #[cfg(feature = "sessions")]
    #[track_caller]
    pub fn csrf(mut self, page: &TestResponse) -> Self {
        self.page = Some(PageForms::of(page));
        self
    }

    /// Adds pairs to the query.
    ///
    /// ```
    /// use filoplume::extract::RawQuery;
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/search", |RawQuery(query): RawQuery| query).test();
    /// client
    ///     .get("/search?page=2")
    ///     .query(&[("q", "tea & milk")])
    ///     .send()
    ///     .assert_text("page=2&q=tea+%26+milk");
    /// ```
    pub fn query<N: AsRef<str>, V: AsRef<str>>(mut self, pairs: &[(N, V)]) -> Self {
        let query = encoded(pairs);
        if !query.is_empty() {
            self.target.push(if self.target.contains('?') { '&' } else { '?' });
            self.target.push_str(&query);
        }
        self
    }

    /// Sets the content.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.content = Some(Content::Bytes(body.into()));
        self
    }

    /// Sets the content to JSON, with its type.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use serde_json::json;
    ///
    /// let client =
    ///     App::new().post("/", |Json(tags): Json<Vec<String>>| tags.join(" and ")).test();
    /// client.post("/").json(&json!(["red", "blue"])).send().assert_text("red and blue");
    /// ```
    ///
    /// # Panics
    ///
    /// If the value cannot be expressed in JSON.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::Serialize + ?Sized>(self, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(json) => self.body(json).typed("application/json"),
            Err(error) => panic!("the content of a request cannot be made JSON: {error}"),
        }
    }

    /// Sets the content to a form, with its type.
    pub fn form<N: AsRef<str>, V: AsRef<str>>(mut self, pairs: &[(N, V)]) -> Self {
        self.content = Some(Content::Form(encoded(pairs)));
        self.typed(FORM_TYPE)
    }

    /// Sets the content to a form with files, with its type.
    pub fn multipart(mut self, form: MultipartForm) -> Self {
        self.content = Some(Content::Multipart(form));
        self.typed(&MultipartForm::content_type())
    }

    /// Sends the content in chunks, without a `Content-Length`, as a client does that does not know
    /// the length.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().post("/", |text: String| text).test();
    /// client.post("/").body("hi").chunked().send().assert_text("hi");
    /// ```
    pub fn chunked(mut self) -> Self {
        self.is_chunked = true;
        self
    }

    /// Sets the address that the request comes from.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", |client: ClientAddr| client.to_string()).test();
    /// client.get("/").peer(([192, 0, 2, 7], 4711).into()).send().assert_text("192.0.2.7");
    /// ```
    pub fn peer(mut self, address: SocketAddr) -> Self {
        self.peer = Peer::Tcp(address);
        self
    }

    /// Uses HTTP/1.0.
    ///
    /// ```
    /// use filoplume::Version;
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", |version: Version| format!("{version:?}")).test();
    /// assert_ne!(client.get("/").http_10().send().text(), client.get("/").send().text());
    /// ```
    pub fn http_10(mut self) -> Self {
        self.version = "HTTP/1.0";
        self
    }

    /// Follows up to `count` redirects within the app, as a browser does. `303`, and also `301` and
    /// `302` after a `POST`, are followed with `GET`; `307` and `308` with the same method and
    /// content. The response is that of the last request.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .post("/notes", || Redirect::to("/notes/1"))
    ///     .get("/notes/{id}", || "a note");
    /// app.test().post("/notes").follow_redirects(1).send().assert_text("a note");
    /// ```
    pub fn follow_redirects(mut self, count: u32) -> Self {
        self.redirects_max = count;
        self
    }

    /// Sends the request and returns the response.
    ///
    /// # Panics
    ///
    /// If the response is not valid HTTP, there are more redirects than allowed, or the token of
    /// [`csrf`](Self::csrf) cannot be sent. If the target does not begin with a slash.
    #[track_caller]
    pub fn send(mut self) -> TestResponse {
        self.check_target();
        #[cfg(feature = "sessions")]
        self.add_csrf_token();
        let redirects_max = self.redirects_max;
        let mut redirects = 0;
        loop {
            let response = self.exchange();
            if redirects_max == 0 {
                return response;
            }
            let Some(target) = response.redirect_target() else { return response };
            assert!(
                redirects < redirects_max,
                "redirected more often than {redirects_max} times, at last with\n{response:?}"
            );
            redirects += 1;
            self.redirect(response.status(), target);
        }
    }

    /// Panics if a slash was forgotten: the plain `400` of the server would not say so. The other
    /// forms of a target may be tested (RFC 9112, 3.2).
    #[track_caller]
    fn check_target(&self) {
        let target = &self.target;
        let has_form = target.starts_with('/') || target == "*" || target.contains("://");
        assert!(
            has_form || self.method == Method::CONNECT,
            "the target `{target}` has no slash at its start: write `/{target}`"
        );
    }

    fn typed(mut self, content_type: &str) -> Self {
        self.add_type(content_type);
        self
    }

    fn add_type(&mut self, content_type: &str) {
        let has_type =
            self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !has_type {
            self.headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
    }

    #[cfg(feature = "sessions")]
    #[track_caller]
    fn add_csrf_token(&mut self) {
        use crate::middleware::{CSRF_FIELD, CSRF_HEADER};
        let Some(page) = self.page.take() else { return };
        let is_form = match &self.content {
            Some(Content::Form(_) | Content::Multipart(_)) => true,
            Some(Content::Bytes(_)) => false,
            None => page.has_form_to(&self.target),
        };
        // Forms are not sent with other methods.
        if self.method != Method::POST || !is_form {
            let token = page.token_of_script().unwrap_or_else(|message| panic!("{message}"));
            self.headers.push((CSRF_HEADER.to_owned(), token.to_owned()));
            return;
        }
        let field = page.token_for(&self.target).unwrap_or_else(|message| panic!("{message}"));
        let pair = encoded(&[(CSRF_FIELD, field.token)]);
        match &mut self.content {
            Some(Content::Form(form)) if !form.is_empty() => *form = format!("{pair}&{form}"),
            Some(Content::Multipart(form)) => {
                form.insert_text_after(field.before, CSRF_FIELD, field.token);
            }
            content => {
                *content = Some(Content::Form(pair));
                self.add_type(FORM_TYPE);
            }
        }
    }

    /// Changes the request to follow a redirect (RFC 9110, 15.4).
    fn redirect(&mut self, status: StatusCode, target: String) {
        self.target = target;
        let becomes_get = match status {
            StatusCode::SEE_OTHER => self.method != Method::HEAD,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.content = None;
            self.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with("content-"));
        }
    }

    #[track_caller]
    fn exchange(&self) -> TestResponse {
        let path = path_of(&self.target).to_owned();
        let body = self.content.as_ref().map(Content::bytes);
        let head = self.head(&path, body.as_deref());
        let mut bytes = head.clone().into_bytes();
        bytes.extend_from_slice(b"\r\n");
        if let Some(body) = &body {
            if self.is_chunked {
                for chunk in body.chunks(CHUNK_BYTES) {
                    bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            } else {
                bytes.extend_from_slice(body);
            }
        }
        let answer = self.client.raw_from(self.peer, &bytes);
        let request = SentRequest {
            method: self.method.clone(),
            head,
            body: body.unwrap_or_default().into_owned(),
        };
        let response = TestResponse::parse(&answer, request);
        self.client.keep_cookies(&path, self.host(), response.headers_all("set-cookie"));
        response
    }

    /// Returns the host of the request: that of an absolute target, or of its header.
    fn host(&self) -> &str {
        if let Some((_, rest)) = self.target.split_once("://") {
            return rest.split(['/', '?']).next().unwrap_or_default();
        }
        let mut headers = self.headers.iter();
        let own = headers.find(|(name, _)| name.eq_ignore_ascii_case("host"));
        own.map_or(DEFAULT_HOST, |(_, host)| host)
    }

    /// Returns the lines of the head, as they are sent.
    fn head(&self, path: &str, body: Option<&[u8]>) -> String {
        let mut head = format!("{} {} {}\r\n", self.method, self.target, self.version);
        let has =
            |wanted: &str| self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let mut add = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if !has("host") {
            add("host", DEFAULT_HOST);
        }
        for (name, value) in &self.headers {
            add(name, value);
        }
        let cookies = if has("cookie") { String::new() } else { self.cookie_header(path) };
        if !cookies.is_empty() {
            add("cookie", &cookies);
        }
        match body {
            Some(_) if self.is_chunked => add("transfer-encoding", "chunked"),
            Some(body) if !has("content-length") => add("content-length", &body.len().to_string()),
            _ => {}
        }
        head
    }

    fn cookie_header(&self, path: &str) -> String {
        let mut cookies = self.client.cookies_for(path);
        cookies.retain(|(name, _)| !self.cookies.iter().any(|(own, _)| own == name));
        cookies.extend(self.cookies.iter().cloned());
        cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }
}

/// Prints neither secret values nor the content.
impl fmt::Debug for TestRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers =
            self.headers.iter().map(|(name, value)| (name, printable(name, value.as_bytes())));
        let cookies: Vec<_> = self.cookies.iter().map(|(name, _)| name).collect();
        f.debug_struct("TestRequest")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("headers", &headers.collect::<Vec<_>>())
            .field("cookies", &cookies)
            .field("body_bytes", &self.content.as_ref().map(|content| content.bytes().len()))
            .finish_non_exhaustive()
    }
}
