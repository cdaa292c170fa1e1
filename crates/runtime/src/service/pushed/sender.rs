//! The half of a channel that threads hold.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use filoplume_http1::Headers;

use super::Shared;
use crate::clock::TIMEOUT_MAX;
use crate::service::mailbox::{End, Part, Refused};

/// Sends the bytes of a response body, from any thread. Clones send to the same response. What one
/// thread sends stays in order.
///
/// When the last clone is dropped, the response is complete. If a clone is dropped while its thread
/// panics, the response has [failed](Self::fail).
///
/// ```
/// use filoplume_runtime::pushed;
/// use std::time::Duration;
///
/// let (sender, body) = pushed::channel();
/// let body = body.capacity(8);
/// sender.try_send("12345")?;
/// assert_eq!(sender.try_send("6789"), Err(pushed::SendError::Full));
/// let waited = sender.send_timeout("6789", Duration::from_millis(1));
/// assert_eq!(waited, Err(pushed::SendError::Full));
/// drop(body);
/// assert_eq!(sender.send("6789"), Err(pushed::SendError::Gone));
/// # Ok::<(), pushed::SendError>(())
/// ```
pub struct Sender {
    shared: Arc<Shared>,
}

/// The reason why bytes were not sent. None of them were.
///
/// ```
/// use filoplume_runtime::pushed::SendError;
///
/// assert_eq!(SendError::Gone.to_string(), "the client has gone");
/// assert!(SendError::Full.is_temporary());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// As many bytes as the [capacity](super::Pushed::capacity) wait for the client. The caller
    /// decides whether to drop the bytes, to try again, or to end the response.
    Full,
    /// The client does not read what it is sent, and the memory for what all clients have not read
    /// is used up ([`memory_max`](crate::ServerConfig::memory_max)). The caller has the same choice
    /// as for `Full`.
    OutOfMemory,
    /// The client has gone, or gets no body, as for `HEAD`.
    Gone,
    /// The server shuts down and completes a body that is [endless](super::Pushed::endless).
    Stopping,
    /// A sender has finished or failed the response.
    Ended,
}

impl SendError {
    /// Returns whether later bytes may be accepted.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Full | Self::OutOfMemory)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the client does not read what it is sent",
            Self::OutOfMemory => "the memory for what clients have not read is used up",
            Self::Gone => "the client has gone",
            Self::Stopping => "the server is shutting down",
            Self::Ended => "the response was ended by another sender",
        })
    }
}

impl std::error::Error for SendError {}

impl From<SendError> for io::Error {
    fn from(error: SendError) -> Self {
        let kind = match error {
            SendError::Full => io::ErrorKind::WouldBlock,
            SendError::OutOfMemory => io::ErrorKind::OutOfMemory,
            _ => io::ErrorKind::BrokenPipe,
        };
        Self::new(kind, error)
    }
}

impl From<Refused> for SendError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            Refused::OutOfMemory => Self::OutOfMemory,
            Refused::Gone => Self::Gone,
            Refused::Stopping => Self::Stopping,
            Refused::Ended => Self::Ended,
        }
    }
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Sends bytes. Waits while too many bytes wait for the client, or there is no memory for more.
    ///
    /// # Errors
    ///
    /// If the body has ended. [`SendError::Full`] is returned only to the thread that made the
    /// channel, before the response has begun: nothing would end its wait.
    pub fn send(&self, bytes: impl Into<Bytes>) -> Result<(), SendError> {
        self.send_timeout(bytes, TIMEOUT_MAX)
    }

    /// Sends bytes, or returns [`SendError::Full`] at once if too many bytes wait for the client.
    ///
    /// # Errors
    ///
    /// If too many bytes wait, there is no memory for more or the body has ended.
    pub fn try_send(&self, bytes: impl Into<Bytes>) -> Result<(), SendError> {
        self.put(bytes.into().into(), None)
    }

    /// Sends bytes. Waits for `timeout` at most while too many bytes wait for the client.
    ///
    /// # Errors
    ///
    /// If too many bytes wait all the time or the body has ended.
    pub fn send_timeout(
        &self,
        bytes: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<(), SendError> {
        let mailbox = &self.shared.mailbox;
        let would_wait_for_itself =
            !mailbox.is_attached() && thread::current().id() == self.shared.maker;
        let deadline = (!would_wait_for_itself).then(|| Instant::now() + timeout.min(TIMEOUT_MAX));
        self.put(bytes.into().into(), deadline)
    }

    /// Sends bytes that replace those of the same key, if these still wait for the client. A slow
    /// client gets only the latest bytes of each key.
    ///
    /// ```
    /// use filoplume_runtime::pushed;
    ///
    /// let (sender, body) = pushed::channel();
    /// let body = body.capacity(8);
    /// for price in 10..20 {
    ///     sender.send_latest(1, format!("a={price}\n"))?;
    /// }
    /// assert_eq!(sender.waiting(), 5);
    /// # drop(body);
    /// # Ok::<(), pushed::SendError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_send`](Self::try_send).
    pub fn send_latest(&self, key: u64, bytes: impl Into<Bytes>) -> Result<(), SendError> {
        self.put(Part::keyed(key, bytes.into()), None)
    }

    fn put(&self, part: Part, deadline: Option<Instant>) -> Result<(), SendError> {
        let mailbox = &self.shared.mailbox;
        let is_due = mailbox.queue.put(part, deadline)?;
        mailbox.wake_if(is_due);
        Ok(())
    }

    /// Completes the response after what was sent. Dropping the last sender does the same.
    pub fn finish(&self) {
        self.end(End::Finished(None));
    }

    /// Completes the response, with trailers. They are sent only if the body
    /// [allows](super::Pushed::trailers) it and is chunked, so a client must be able to do without.
    ///
    /// ```
    /// use filoplume_runtime::{Headers, Request, Response, pushed};
    ///
    /// fn sum(request: Request) -> Response {
    ///     let (sender, body) = pushed::channel();
    ///     let mut response = Response::default();
    ///     response.set_pushed(body.trailers(&request));
    ///     response.headers_mut().append("trailer", "checksum").expect("the name is valid");
    ///     let _ = sender.try_send("1 2 3");
    ///     let mut trailers = Headers::new();
    ///     trailers.append("checksum", "6").expect("the field is valid");
    ///     sender.finish_with(trailers);
    ///     response
    /// }
    /// # use filoplume_runtime::{Peer, ServerConfig, answer_in_process};
    /// # let input = b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n";
    /// # let answer = answer_in_process(&sum, Peer::Unix, input, &ServerConfig::default());
    /// # assert!(answer.ends_with(b"\r\n5\r\n1 2 3\r\n0\r\nchecksum: 6\r\n\r\n"));
    /// ```
    pub fn finish_with(&self, trailers: Headers) {
        self.end(End::Finished(Some(Box::new(trailers))));
    }

    /// Ends the response so that the client notices that it is incomplete: the connection is closed
    /// without the last chunk. What was sent before is still delivered. The error is logged with
    /// the route.
    pub fn fail(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) {
        self.end(End::Failed(io::Error::other(error)));
    }

    fn end(&self, end: End) {
        let mailbox = &self.shared.mailbox;
        mailbox.wake_if(mailbox.queue.end(end));
    }

    /// Returns whether bytes can still be sent, as far as is known: the client may have gone
    /// already.
    pub fn is_open(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns why no bytes can be sent any more.
    ///
    /// # Errors
    ///
    /// If the body has ended.
    pub fn check(&self) -> Result<(), SendError> {
        Ok(self.shared.queue().check()?)
    }

    /// Returns whether the server shuts down. The response should be completed soon: its connection
    /// is closed at the end of the drain time.
    pub fn is_stopping(&self) -> bool {
        self.shared.queue().is_stopping()
    }

    /// Returns the number of bytes that wait for the client. Bytes that are on their way through
    /// the connection are not counted.
    pub fn waiting(&self) -> usize {
        self.shared.queue().waiting()
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The queue's lock orders the end after what other senders have sent before their drop.
        let is_last = self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1;
        if thread::panicking() {
            self.fail("a thread panicked while it had a sender of the body");
        } else if is_last {
            self.finish();
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("waiting", &self.waiting())
            .field("state", &self.check())
            .finish()
    }
}
