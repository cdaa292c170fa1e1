//! An app called in process: the same HTTP code as on a connection, no socket.

use std::fmt;

use filoplume_runtime::{Method, Peer, ServerConfig, StatusCode, answer_in_process};

use crate::app::App;
use crate::serve::AppService;

/// Calls an app. Made by [`App::test`].
#[derive(Debug)]
pub struct TestClient {
    service: AppService,
    config: ServerConfig,
}

impl App {
    /// Returns a client that calls this app in process.
    ///
    /// # Panics
    ///
    /// If the app has mistakes, with their list.
    #[track_caller]
    pub fn test(self) -> TestClient {
        let config = self.config.clone();
        match self.build() {
            Ok(service) => TestClient { service, config },
            Err(error) => panic!("{error:?}"),
        }
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),+) => {
        $(
            #[doc = concat!("Begins a `", stringify!($method), "` request.")]
            pub fn $name(&self, target: &str) -> TestRequest<'_> {
                self.request(Method::$method, target)
            }
        )+
    };
}

impl TestClient {
    methods!(get GET, post POST, put PUT, patch PATCH, delete DELETE, head HEAD, options OPTIONS);

    /// Begins a request with any method.
    pub fn request(&self, method: Method, target: &str) -> TestRequest<'_> {
        TestRequest { client: self, method, target: target.to_owned(), headers: Vec::new(), body: None }
    }
}

/// A request to be sent to an app.
#[derive(Debug)]
#[must_use = "nothing is asked until `send` is called"]
pub struct TestRequest<'a> {
    client: &'a TestClient,
    method: Method,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl TestRequest<'_> {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the content.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Asks the app.
    ///
    /// # Panics
    ///
    /// If the app answers with what is no HTTP.
    #[track_caller]
    pub fn send(self) -> TestResponse {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        let has_host = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        if !has_host {
            bytes.extend_from_slice(b"host: localhost\r\n");
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if let Some(body) = &self.body {
            bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        let answer = answer_in_process(&self.client.service, Peer::Unix, &bytes, &self.client.config);
        TestResponse::parse(&answer, format!("{} {}", self.method, self.target))
    }
}

/// What an app answered.
pub struct TestResponse {
    asked: String,
    status: StatusCode,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl TestResponse {
    #[track_caller]
    fn parse(answer: &[u8], asked: String) -> Self {
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("the answer has a head");
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.get(9..12)).and_then(|code| code.parse().ok());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut body = answer[end + 4..].to_vec();
        if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
            body = decode_chunks(&body);
        }
        Self { asked, status: status.expect("the answer has a status"), headers, body }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
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
        std::str::from_utf8(&self.body).expect("the content is UTF-8")
    }

    /// Fails the test unless the status is this one.
    ///
    /// # Panics
    ///
    /// If it is another one, with the whole answer.
    #[track_caller]
    pub fn assert_status(&self, status: u16) -> &Self {
        assert!(self.status.as_u16() == status, "expected the status {status} of\n{self:?}");
        self
    }

    /// Fails the test unless a header has this value.
    ///
    /// # Panics
    ///
    /// If it has not, with the whole answer.
    #[track_caller]
    pub fn assert_header(&self, name: &str, value: &str) -> &Self {
        assert!(self.header(name) == Some(value), "expected `{name}: {value}` in\n{self:?}");
        self
    }

    /// Fails the test unless the content is this text.
    ///
    /// # Panics
    ///
    /// If it is not, with the whole answer.
    #[track_caller]
    pub fn assert_text(&self, text: &str) -> &Self {
        assert!(self.body == text.as_bytes(), "expected the content {text:?} in\n{self:?}");
        self
    }
}

impl fmt::Debug for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n  {}", self.asked, self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "  {name}: {value}")?;
        }
        write!(f, "\n{}", String::from_utf8_lossy(&self.body))
    }
}

fn decode_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size =
            std::str::from_utf8(&rest[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.expect("a chunk has a size");
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
        if size == 0 {
            break;
        }
    }
    body
}
