//! A handler learns that its client has gone.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::TIMEOUT_MAX;
use crate::service::latch::{Latch, Registered, Registration};

/// Tells a handler that nobody waits for its response any more: its client has closed the
/// connection, or the server ends without waiting for the handler. Clones belong to the same
/// request, and may be used on any thread.
///
/// A handler that does not ask always finishes. A request asks by [its
/// plan](crate::Plan::cancellable), or with
/// [`IncomingRequest::cancel`](crate::IncomingRequest::cancel). Only such requests cost anything.
///
/// A client that closes only its sending direction, which RFC 9112 (section 9.6) permits, counts as
/// gone: the network shows no difference to a client that has closed its socket until the response
/// is sent. The response of a handler that finishes anyway is still sent. Over TLS there is a
/// difference: a client that says `close_notify` and leaves its socket open has ended only its own
/// direction (RFC 8446, section 6.1). It waits for the response, and does not count as gone.
///
/// ```
/// use filoplume_runtime::{Plan, Request, Response, Service};
/// use std::time::Duration;
///
/// struct Report;
///
/// impl Service for Report {
///     fn plan(&self, _: &mut Request) -> Plan {
///         Plan::new().cancellable()
///     }
///
///     fn call(&self, request: Request) -> Response {
///         let cancel = request.cancel();
///         for _step in 0..100 {
///             if cancel.is_cancelled() {
///                 return Response::new(499);
///             }
///             // .. one step of the work
///         }
///         Response::from("done")
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Cancel {
    latch: Arc<Latch>,
}

impl Cancel {
    pub(crate) fn new(latch: Arc<Latch>) -> Self {
        Self { latch }
    }

    /// Returns whether nobody waits for the response any more.
    ///
    /// ```
    /// use filoplume_runtime::{Body, Request};
    ///
    /// let request = Request::try_from(http::Request::get("/").body(Body::default())?)?;
    /// assert!(!request.cancel().is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.latch.is_set()
    }

    /// Calls `callback` once when nobody waits for the response any more. It interrupts what the
    /// handler waits for: a database query, a read of another socket.
    ///
    /// It runs on a thread of its own while the handler is blocked. If the request is already
    /// cancelled, it runs at once on this thread. It never begins after the handler has returned.
    /// Dropping the guard removes the callback, and waits for it if it is running: after that it
    /// cannot interrupt the next user of the same database connection.
    ///
    /// At most four callbacks run at a time, so one should not take long.
    ///
    /// ```
    /// use filoplume_runtime::Request;
    /// use std::io::Read;
    /// use std::net::{Shutdown, TcpStream};
    ///
    /// fn fetch(request: &Request, mut upstream: TcpStream) -> std::io::Result<String> {
    ///     let socket = upstream.try_clone()?;
    ///     let _guard = request.cancel().on_cancel(move || {
    ///         let _ = socket.shutdown(Shutdown::Both); // ends the read below
    ///     });
    ///     let mut text = String::new();
    ///     upstream.read_to_string(&mut text)?;
    ///     Ok(text)
    /// }
    /// ```
    pub fn on_cancel(&self, callback: impl FnOnce() + Send + 'static) -> CallbackGuard {
        CallbackGuard::new(self.latch.register(callback))
    }

    /// Waits until the request is cancelled, for `timeout` at most. Returns whether it is
    /// cancelled. It replaces a `sleep` in a handler.
    ///
    /// ```
    /// use filoplume_runtime::{Body, Request};
    /// use std::time::Duration;
    ///
    /// let request = Request::try_from(http::Request::get("/").body(Body::default())?)?;
    /// assert!(!request.cancel().wait_timeout(Duration::from_millis(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.latch.wait_until(Instant::now() + timeout.min(TIMEOUT_MAX))
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

/// Keeps a callback of [`Cancel::on_cancel`] registered. Dropping
/// it removes the callback, and waits for it if it is running on another thread.
///
/// ```
/// use filoplume_runtime::{Body, Request};
///
/// let request = Request::try_from(http::Request::get("/").body(Body::default())?)?;
/// let guard = request.cancel().on_cancel(|| println!("interrupted"));
/// // .. what may take long
/// drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the callback is removed when this is dropped"]
pub struct CallbackGuard {
    /// `None` if the callback has run already, or never runs.
    registration: Option<Registration>,
}

impl CallbackGuard {
    pub(crate) fn new(registered: Registered) -> Self {
        let registration = match registered {
            Registered::Waiting(registration) => Some(registration),
            Registered::Ran | Registered::TooLate => None,
        };
        Self { registration }
    }

    /// Leaves the callback registered without the guard. It may still be running when a handler
    /// has returned.
    ///
    /// ```
    /// use filoplume_runtime::{Body, Request};
    ///
    /// let request = Request::try_from(http::Request::get("/").body(Body::default())?)?;
    /// request.cancel().on_cancel(|| println!("the client has gone")).keep();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep(mut self) {
        if let Some(registration) = self.registration.take() {
            registration.keep();
        }
    }
}
