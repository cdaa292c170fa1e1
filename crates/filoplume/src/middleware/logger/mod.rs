//! An access log with one line per request.

mod line;
mod request_info;
mod sent;

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use filoplume_runtime::{
    Incomplete, Method, Request, Response, ResponseBody, StatusCode, Stopwatch, Timing,
};
use parking_lot::Mutex;

use self::request_info::RequestInfo;
use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::core::refusal::NextRefused;
use crate::log::{write_to_stderr, write_to_stdout};
use crate::middleware::catch_panic::run_catching_panics;
use crate::middleware::{RequestId, TraceContext, TraceId};

/// Logs one line per request: method, path, route, status, bytes, duration, client, peer, request
/// ID, trace ID, and the error if there is one.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || "Hello!").with(middleware::Logger::new());
/// app.test().get("/").send().assert_status(200);
/// ```
///
/// - [`Logger::new`] sends a `tracing` event with these fields, target `filoplume::access`, level
///   `INFO`. If the program has not set up `tracing`, it writes a short line to stderr instead.
/// - [`to`](Self::to) writes the short lines to another place. [`combined`](Self::combined) and
///   [`json`](Self::json) write lines in these formats, to stdout by default.
///
/// Input of clients is escaped: it cannot begin a line, end its field, or send commands to a
/// terminal. The query is logged too. If it contains secrets, [leave it out](Self::without_query).
///
/// The line is written when the handler has answered. If the response is a stream, the line is
/// written when the stream has ended, with the duration and the bytes of the whole response. If the
/// stream is broken off, because its reader failed or the client left, the line has the bytes that
/// were read, and the reason as its error. A stream of events ends when its client leaves, so that
/// is not logged as an error. The combined format has no field for an error.
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
/// A request that the server refuses with a `503`, because it is overloaded, has a line too, with
/// the reason as its error. Its duration is how long it has waited, or 0 if the app measures no
/// requests: see [`App::metrics`](crate::App::metrics) and
/// [`App::slow_after`](crate::App::slow_after).
///
/// A request that the server refuses before it is complete has a line as well: it is malformed, too
/// long or too late (`400`, `408`, `413` and the like). If its head was not valid, the line has the
/// method and path as far as they can be told, and `-` otherwise.
///
/// ```
/// use filoplume::prelude::*;
/// use std::fs::File;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("access.log");
/// let logger = middleware::Logger::new().combined().to(File::create(&path)?);
/// let client = App::new().get("/", || "hi").with(logger).test();
/// client.raw("GET /a HTTP/9.9\r\nHost: a\r\n\r\n");
/// let line = std::fs::read_to_string(&path)?;
/// assert!(line.contains(r#""GET /a" 505 -"#), "{line}");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The content of an error is added further out, so its length is not known here. The logger does
/// not see outer middleware, so add it first, or after [`Tracing`](super::Tracing) and
/// [`RequestIds`](super::RequestIds).
#[doc(alias("TraceLayer", "morgan", "access_log"))]
pub struct Logger {
    output: Output,
    writes_query: bool,
    /// Whether all requests are measured.
    is_timed: bool,
}

/// The sink and format of the lines. Clones share the sink.
#[derive(Clone)]
struct Output {
    format: Format,
    /// `None`: the default sink of the format.
    sink: Option<Sink>,
}

type Sink = Arc<Mutex<Box<dyn Write + Send>>>;

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// For people. Without a sink, an event is sent instead.
    Short,
    /// Apache's combined log format.
    Combined,
    /// One object per line.
    Json,
}

/// A request and its response, as they are logged.
struct Entry<'a> {
    request: &'a RequestInfo,
    status: StatusCode,
    route: Option<&'a str>,
    /// The length of the content, if it is known.
    bytes: Option<u64>,
    duration: Duration,
    /// Where the time went, if the request was measured.
    timing: Option<Timing>,
    request_id: Option<&'a str>,
    trace_id: Option<TraceId>,
    /// The message for the peer and all causes, in one line; or why the response was broken off.
    error: Option<&'a str>,
}

impl Logger {
    /// Returns a logger that sends `tracing` events, or writes to stderr if there is no subscriber.
    pub fn new() -> Self {
        Self {
            output: Output { format: Format::Short, sink: None },
            writes_query: true,
            is_timed: false,
        }
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

    /// Writes JSON lines, one object per request:
    ///
    /// ```text
    /// {"time":"2026-11-06T08:49:37.412Z","method":"GET","path":"/notes?page=2","route":"/notes",
    ///  "status":200, ...}
    /// ```
    ///
    /// Fields: `time`, `method`, `path`, `route`, `status`, `bytes`, `duration_us`, those of
    /// [`timing`](Self::timing), `client`, `peer`, `request_id`, `trace_id`, `referer`,
    /// `user_agent`, `error`. Unknown fields are omitted.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.output.format = Format::Json;
        self
    }

    /// Writes the lines to `sink`.
    ///
    /// Each line is one `write_all`, so lines of several threads do not mix. A `BufWriter` is
    /// flushed only when it is full. A sink that blocks delays the requests, and lines that it
    /// fails to write are lost.
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

    /// Leaves out the query, and that of the `Referer`: whoever follows a link on a page with a
    /// secret in its address may send it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::fs::File;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("access.log");
    /// let logger = middleware::Logger::new().json().without_query().to(File::create(&path)?);
    /// let app = App::new().get("/reset", || "hi").with(logger).test();
    /// let request = app.get("/reset?token=secret");
    /// request.header("referer", "https://example.com/reset?token=secret").send();
    /// let line = std::fs::read_to_string(&path)?;
    /// assert!(line.contains(r#""path":"/reset""#) && !line.contains("secret"));
    /// assert!(line.contains(r#""referer":"https://example.com/reset""#));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn without_query(mut self) -> Self {
        self.writes_query = false;
        self
    }

    /// Measures each request, and logs where its time went: the phases `head`, `content`, `turn`,
    /// `queue`, `computing` and `waiting`, and `write` for a response that is a stream. Without
    /// this, they are logged only for requests that are measured exactly anyway: those with a token
    /// for `Server-Timing`, and all in [development](crate::App::development).
    ///
    /// Events and JSON lines have the fields `turn_us`, `queue_us` and so on, in microseconds and
    /// without those that are zero. Short lines have them in parentheses. The combined format has
    /// no place for them. The duration is then that of the whole request, from its first byte, and
    /// not only of what the logger encloses. Measuring costs about a microsecond per request.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "hi").with(middleware::Logger::new().timing());
    /// // 200 GET / 94.2µs (turn 31us, computing 40us, waiting 2us)
    /// # app.test().get("/").send().assert_status(200);
    /// ```
    #[must_use]
    pub fn timing(mut self) -> Self {
        self.is_timed = true;
        self
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
            // There is no place to report that a log cannot be written.
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

/// Returns whether an error is only a way to redirect, as extractors do that need a login.
fn is_plain_redirect(error: &Error) -> bool {
    error.status().is_redirection() && error.detail().is_none() && error.chain().next().is_none()
}

impl Middleware for Logger {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let started = Instant::now();
        let context = next.context();
        let info = RequestInfo::of(self, &request, context);
        let is_head = *request.method() == Method::HEAD;
        let stopwatch = request.stopwatch();
        let mut response = run_catching_panics(request, next);
        let timing = stopwatch.as_ref().map(Stopwatch::timing);
        if !is_head && sent::is_streamed(&response) {
            let begun = sent::Begun { started, answered: Instant::now(), timing };
            sent::log_when_sent(&self.output, info, context, begun, &mut response);
            return Ok(response);
        }
        let error = Error::of(&response);
        let is_error = error.is_some();
        let error = error.filter(|error| !is_plain_redirect(error)).map(Error::in_one_line);
        self.output.log(&Entry {
            status: response.status(),
            route: context.route(),
            bytes: bytes_of(&response, is_error),
            duration: duration_of(timing, started),
            timing,
            request_id: context.request_id().map(RequestId::as_str),
            trace_id: trace_id_of(&info, &response),
            error: error.as_deref(),
            request: &info,
        });
        Ok(response)
    }

    fn refused(&self, request: &Request, next: NextRefused<'_>) -> Response {
        let (context, refused) = (next.context(), next.refused());
        let mut info = RequestInfo::of(self, request, context);
        info.trace_id = next.extensions().get().map(TraceContext::trace_id);
        let response = next.run(request);
        let timing = refused.timing();
        // The whole sentence would cost too much under a flood. The server logs it now and then.
        let error = format!("refused: {}", refused.reason());
        self.output.log(&Entry {
            status: response.status(),
            route: context.route(),
            bytes: bytes_of(&response, false),
            duration: timing.map(|timing| timing.total()).unwrap_or_default(),
            timing,
            request_id: context.request_id().map(RequestId::as_str),
            trace_id: trace_id_of(&info, &response),
            error: Some(&error),
            request: &info,
        });
        response
    }

    fn incomplete(&self, incomplete: &Incomplete<'_>, context: Context<'_>) {
        let reason = incomplete.reason();
        let timing = incomplete.timing();
        let request = match incomplete.request() {
            Some(request) => RequestInfo::of(self, request, context),
            None => RequestInfo::of_incomplete(self, incomplete, context),
        };
        let status = reason.status().and_then(|status| StatusCode::from_u16(status).ok());
        self.output.log(&Entry {
            request: &request,
            status: status.unwrap_or(StatusCode::BAD_REQUEST),
            route: context.route(),
            bytes: Some(0),
            duration: timing.map(|timing| timing.total()).unwrap_or_default(),
            timing,
            request_id: context.request_id().map(RequestId::as_str),
            trace_id: None,
            error: Some(&format!("refused: {reason}")),
        });
    }

    // Adds nothing to requests.
    fn configure(&self, options: &mut RouteOptions) {
        if self.is_timed {
            options.timed();
        }
    }
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger").field("format", &self.output.format).finish_non_exhaustive()
    }
}

/// Returns how long a request has taken since its first byte, or since `started` if it was not
/// measured.
fn duration_of(timing: Option<Timing>, started: Instant) -> Duration {
    timing.map_or_else(|| started.elapsed(), |timing| timing.total())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the ID of the trace, from middleware further out or further in.
fn trace_id_of(request: &RequestInfo, response: &Response) -> Option<TraceId> {
    request.trace_id.or_else(|| response.extensions().get().map(TraceContext::trace_id))
}

fn bytes_of(response: &Response, is_error: bool) -> Option<u64> {
    match response.body() {
        // The content of an error is added further out.
        ResponseBody::Empty if is_error => None,
        ResponseBody::Empty => Some(0),
        ResponseBody::Bytes(bytes) => Some(bytes.len() as u64),
        ResponseBody::Sized { length, .. } | ResponseBody::File { length, .. } => Some(*length),
        ResponseBody::Unsized(_) | ResponseBody::Pushed(_) => None,
    }
}

impl Entry<'_> {
    fn send_event(&self) {
        let RequestInfo { line, peer, client, .. } = self.request;
        let line = line.as_ref();
        let client = client.map(tracing::field::display);
        let [head_us, content_us, turn_us, queue_us, computing_us, waiting_us, write_us] =
            self.phases_us().map(|(_, us)| us);
        // Texts are recorded unescaped: escaping is up to the subscriber.
        tracing::info!(
            target: "filoplume::access",
            method = line.map(|line| line.method.as_str()),
            path = line.map(|line| line.target.as_str()),
            route = self.route,
            status = self.status.as_u16(),
            bytes = self.bytes,
            duration_us = self.duration_us(),
            head_us,
            content_us,
            turn_us,
            queue_us,
            computing_us,
            waiting_us,
            write_us,
            client,
            peer = %peer,
            request_id = self.request_id,
            trace_id = self.trace_id.map(tracing::field::display),
            error = self.error,
        );
    }

    fn duration_us(&self) -> u64 {
        micros(self.duration)
    }

    /// Returns the phases in microseconds, `None` for those that are zero or not known.
    fn phases_us(&self) -> [(&'static str, Option<u64>); Timing::PHASES] {
        let is_measured = self.timing.is_some();
        self.timing
            .unwrap_or_default()
            .phases()
            .map(|(name, time)| (name, Some(micros(time)).filter(|us| is_measured && *us > 0)))
    }
}
