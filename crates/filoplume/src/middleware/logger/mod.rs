//! One line for each request.

mod line;
mod sent;

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use filoplume_runtime::{Method, Peer, Request, Response, ResponseBody, StatusCode, Version};
use parking_lot::Mutex;

use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::log::{write_to_stderr, write_to_stdout};
use crate::middleware::RequestId;
use crate::middleware::catch_panic::contain;

/// Writes one line for each request: method, path, route, status, bytes, duration, client, peer,
/// request id, and the error if there is one.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || "Hello!").with(middleware::Logger::new());
/// app.test().get("/").send().assert_status(200);
/// ```
///
/// - [`Logger::new`] sends a `tracing` event with these as fields, target `filoplume::access`,
///   level `INFO`. In a program that has not set up `tracing` it writes a short line to stderr
///   instead, so that a beginner sees something.
/// - [`to`](Self::to) writes the short lines elsewhere; [`combined`](Self::combined) and
///   [`json`](Self::json) write lines in these formats, to stdout unless `to` says otherwise.
///
/// What a client sent is escaped: it cannot begin a line, leave its field, or send commands to a
/// terminal. The query is written too; a program that has secrets there should [leave it
/// out](Self::without_query).
///
/// The line is written when the handler has answered, or, if the response comes from a reader, when
/// that has ended: its duration and its bytes are then those of the whole response. If the response
/// is broken off, because the reader failed or the client left, the line has the bytes that were
/// read, and the reason as its error; the combined format has no place for one.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::response::Reader;
/// use std::fs::File;
/// use std::io::{self, Read};
///
/// struct Failing;
///
/// impl Read for Failing {
///     fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
///         Err(io::Error::other("the disk is gone"))
///     }
/// }
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("access.log");
/// let logger = middleware::Logger::new().json().to(File::create(&path)?);
/// let client = App::new()
///     .get("/", || Reader::new(io::Cursor::new("some").chain(Failing)))
///     .with(logger)
///     .test();
/// client.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
/// let line = std::fs::read_to_string(&path)?;
/// assert!(
///     line.contains(r#""bytes":4"#)
///         && line.contains(r#""error":"broken off: the disk is gone""#),
///     "{line}"
/// );
/// # Ok::<(), io::Error>(())
/// ```
///
/// An error has no bytes yet, because it gets its content further out. Middleware further out is
/// not seen, so the logger goes first, or second behind [`RequestIds`](super::RequestIds).
pub struct Logger {
    output: Output,
    writes_query: bool,
}

/// Where the lines go, and how they look. Clones are the same place.
#[derive(Clone)]
struct Output {
    format: Format,
    /// `None`: the default of the format.
    sink: Option<Sink>,
}

type Sink = Arc<Mutex<Box<dyn Write + Send>>>;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// For eyes: an event if there are no lines to be written.
    Short,
    /// Apache's combined log format.
    Combined,
    /// An object a line.
    Json,
}

/// What is known of a request and its answer.
struct Entry<'a> {
    asked: &'a Asked,
    status: StatusCode,
    route: Option<&'a str>,
    /// Bytes of content, if they are known.
    bytes: Option<u64>,
    duration: Duration,
    request_id: Option<&'a str>,
    /// What the peer is told and all causes, in one line; or why the response was broken off.
    error: Option<&'a str>,
}

/// What is known of a request before it is handed on.
struct Asked {
    at: SystemTime,
    method: Method,
    target: String,
    version: Version,
    peer: Peer,
    client: Option<IpAddr>,
    /// Only if the format has them.
    referer: Option<String>,
    user_agent: Option<String>,
    request_id: Option<RequestId>,
}

impl Logger {
    /// Returns a logger that sends `tracing` events, or writes to stderr where nobody listens to
    /// them.
    pub fn new() -> Self {
        Self { output: Output { format: Format::Short, sink: None }, writes_query: true }
    }

    /// Writes lines in Apache's combined log format, which many tools read:
    ///
    /// ```text
    /// 192.0.2.1 - - [06/Nov/2026:08:49:37 +0000] "GET /notes?page=2 HTTP/1.1" 200 2326 "https://example.org/" "curl/8.5"
    /// ```
    ///
    /// Times are in UTC. The third field, the user, is always `-`.
    #[must_use]
    pub fn combined(mut self) -> Self {
        self.output.format = Format::Combined;
        self
    }

    /// Writes lines of JSON, an object a request:
    ///
    /// ```text
    /// {"time":"2026-11-06T08:49:37.412Z","method":"GET","path":"/notes?page=2","route":"/notes","status":200, ...}
    /// ```
    ///
    /// Fields: `time`, `method`, `path`, `route`, `status`, `bytes`, `duration_us`, `client`,
    /// `peer`, `request_id`, `referer`, `user_agent`, `error`. What is not known is left out.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.output.format = Format::Json;
        self
    }

    /// Writes the lines there.
    ///
    /// Each line is one `write_all`, so lines of several threads do not mix; a `BufWriter` is
    /// flushed when it is full. A sink that blocks holds up the requests, and what it cannot write
    /// is lost.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::fs::OpenOptions;
    /// use std::io::BufWriter;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("access.log");
    /// let file = OpenOptions::new().create(true).append(true).open(&path)?;
    /// let app = App::new()
    ///     .get("/", || "Hello!")
    ///     .with(middleware::Logger::new().combined().to(BufWriter::new(file)));
    /// let client = app.test();
    /// client.get("/").header("user-agent", "a \"browser\"").send();
    /// drop(client);
    /// assert!(
    ///     std::fs::read_to_string(&path)?
    ///         .ends_with("\"GET / HTTP/1.1\" 200 6 \"-\" \"a \\\"browser\\\"\"\n")
    /// );
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn to(mut self, sink: impl Write + Send + 'static) -> Self {
        self.output.sink = Some(Arc::new(Mutex::new(Box::new(sink))));
        self
    }

    /// Leaves out what stands behind the `?`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::fs::File;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("access.log");
    /// let logger = middleware::Logger::new().json().without_query().to(File::create(&path)?);
    /// App::new().get("/reset", || "hi").with(logger).test().get("/reset?token=secret").send();
    /// let line = std::fs::read_to_string(&path)?;
    /// assert!(line.contains(r#""path":"/reset""#) && !line.contains("secret"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn without_query(mut self) -> Self {
        self.writes_query = false;
        self
    }

    fn ask(&self, request: &Request, context: Context<'_>) -> Asked {
        let header = |name| match self.output.format {
            Format::Short => None,
            Format::Combined | Format::Json => {
                request.headers().get(name).map(|value| String::from_utf8_lossy(value).into_owned())
            }
        };
        Asked {
            at: SystemTime::now(),
            method: request.method().clone(),
            target: if self.writes_query { request.target() } else { request.path() }.to_owned(),
            version: request.version(),
            peer: request.peer(),
            client: context.client_ip(request),
            referer: header("referer"),
            user_agent: header("user-agent"),
            request_id: request.extensions().get().cloned(),
        }
    }
}

impl Output {
    fn log(&self, entry: &Entry<'_>) {
        if self.format == Format::Short
            && self.sink.is_none()
            && tracing::dispatcher::has_been_set()
        {
            return entry.send_event();
        }
        let line = match self.format {
            Format::Short => entry.to_short(),
            Format::Combined => entry.to_combined(),
            Format::Json => entry.to_json(),
        };
        match (&self.sink, self.format) {
            // There is nowhere to tell that a log cannot be written.
            (Some(sink), _) => drop(sink.lock().write_all(line.as_bytes())),
            (None, Format::Short) => write_to_stderr(&line),
            (None, Format::Combined | Format::Json) => write_to_stdout(&line),
        }
    }
}

impl Default for Logger {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for Logger {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let started = Instant::now();
        let context = next.context();
        let asked = self.ask(&request, context);
        let mut response = contain(request, next);
        if asked.method != Method::HEAD && sent::is_streamed(&response) {
            sent::log_when_sent(&self.output, asked, context.route(), started, &mut response);
            return Ok(response);
        }
        let error = Error::of(&response).map(Error::in_one_line);
        let request_id = asked.request_id.as_ref().or_else(|| response.extensions().get());
        self.output.log(&Entry {
            status: response.status_code(),
            route: context.route(),
            bytes: bytes_of(&response, error.is_some()),
            duration: started.elapsed(),
            request_id: request_id.map(RequestId::as_str),
            error: error.as_deref(),
            asked: &asked,
        });
        Ok(response)
    }

    // It puts nothing beside requests.
    fn configure(&self, _: &mut RouteOptions) {}
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger").field("format", &self.output.format).finish_non_exhaustive()
    }
}

fn bytes_of(response: &Response, is_error: bool) -> Option<u64> {
    match response.body() {
        // It is given its content further out.
        ResponseBody::Empty if is_error => None,
        ResponseBody::Empty => Some(0),
        ResponseBody::Bytes(bytes) => Some(bytes.len() as u64),
        ResponseBody::Sized { length, .. } => Some(*length),
        ResponseBody::Unsized(_) => None,
    }
}

impl Entry<'_> {
    fn send_event(&self) {
        let Asked { method, target, peer, client, .. } = self.asked;
        let client = client.map(tracing::field::display);
        // Texts are recorded as such: how they are escaped is up to the subscriber.
        tracing::info!(
            target: "filoplume::access",
            method = method.as_str(),
            path = target.as_str(),
            route = self.route,
            status = self.status.as_u16(),
            bytes = self.bytes,
            duration_us = self.duration_us(),
            client,
            peer = %peer,
            request_id = self.request_id,
            error = self.error,
        );
    }

    fn duration_us(&self) -> u64 {
        u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX)
    }
}
