//! Interim responses that a handler sends before its response (RFC 8297).

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use filoplume_http1::{ContentLength, Date, Headers, InvalidHeader, ServerConnection};
use http::StatusCode;
use parking_lot::Mutex;

use crate::budget::descriptors::HeldDescriptor;
use crate::transport::{Transport, is_would_block};

/// How long the rest of an interim response may wait for the client, if a part of it was sent. An
/// interim response has a few hundred bytes, and no other output waits before it, so this does not
/// happen to a client that reads.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait before the rest is tried again.
const REST_INTERVAL: Duration = Duration::from_millis(1);

/// Sends a `103 Early Hints` before the response, so that a browser loads what the page needs while
/// the handler still works (RFC 8297). Returned by
/// [`Request::early_hints`](crate::Request::early_hints) for requests whose plan
/// [asks for it](crate::Plan::early_hints).
///
/// ```
/// use filoplume_runtime::{Plan, Request, Response, Service};
///
/// struct Pages;
///
/// impl Service for Pages {
///     fn plan(&self, _: &mut Request) -> Plan {
///         Plan::new().early_hints()
///     }
///
///     fn call(&self, request: Request) -> Response {
///         let _ = request.early_hints().send(&["</style.css>; rel=preload; as=style"]);
///         // Asks the database meanwhile.
///         Response::from("the page")
///     }
/// }
/// # let _: Box<dyn Service> = Box::new(Pages);
/// ```
#[derive(Clone, Default)]
pub struct EarlyHints {
    writer: Option<Arc<InterimWriter>>,
}

impl EarlyHints {
    pub(crate) fn new(writer: Option<Arc<InterimWriter>>) -> Self {
        Self { writer }
    }

    /// Sends these values of `Link`. Returns whether they were sent. Clients of HTTP/1.0 get none,
    /// nor do clients that do not read what they were sent before, and nothing is sent after the
    /// handler has returned. Some old clients take an interim response for the final one, so send
    /// hints only to browsers: they send `Sec-Fetch-Mode: navigate`.
    ///
    /// # Errors
    ///
    /// If a value has a control character, such as a line end.
    pub fn send(&self, links: &[&str]) -> Result<bool, InvalidHeader> {
        let mut headers = Headers::new();
        for link in links {
            headers.append("link", link)?;
        }
        Ok(self.writer.as_ref().is_some_and(|writer| writer.send(&headers)))
    }
}

impl fmt::Debug for EarlyHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyHints").field("is_possible", &self.writer.is_some()).finish()
    }
}

/// The way from a handler to its connection, open while the handler runs.
#[derive(Default)]
pub(crate) struct InterimWriter {
    transport: Mutex<Option<(Transport, HeldDescriptor)>>,
    /// Ends the wait of another thread for the client, because a loop may wait for the lock.
    is_closing: AtomicBool,
}

impl InterimWriter {
    /// Called when the handler begins, with a second handle. All earlier output has been sent.
    pub(crate) fn open(&self, transport: Transport, held: HeldDescriptor) {
        self.is_closing.store(false, Ordering::Relaxed);
        *self.transport.lock() = Some((transport, held));
    }

    /// Called before the response begins.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        *self.transport.lock() = None;
    }

    fn send(&self, headers: &Headers) -> bool {
        let mut head = Vec::new();
        // An interim response has no date.
        let date = Date::new(UNIX_EPOCH);
        let length = ContentLength::None;
        ServerConnection::new().write_head(
            StatusCode::EARLY_HINTS,
            headers,
            length,
            &date,
            &mut head,
        );
        let mut transport = self.transport.lock();
        let Some((open, _)) = transport.as_mut() else { return false };
        match self.write_all_or_nothing(open, &head) {
            Ok(is_sent) => is_sent,
            Err(_) => {
                // The client would take the response for the rest of the interim one.
                let _ = open.shutdown(Shutdown::Both);
                *transport = None;
                false
            }
        }
    }

    /// Writes everything. Writes nothing if the socket takes nothing now.
    fn write_all_or_nothing(&self, transport: &mut Transport, bytes: &[u8]) -> io::Result<bool> {
        let deadline = Instant::now() + REST_TIMEOUT;
        let may_wait = || !self.is_closing.load(Ordering::Relaxed) && Instant::now() < deadline;
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match transport.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if is_would_block(&error) && written == 0 => return Ok(false),
                Err(error) if is_would_block(&error) && may_wait() => thread::sleep(REST_INTERVAL),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl fmt::Debug for InterimWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterimWriter").finish_non_exhaustive()
    }
}
