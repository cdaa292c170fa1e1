//! A stream of events to one client.

use std::time::Duration;

use bytes::Bytes;
use filoplume_runtime::pushed::{self, Pushed, SendError};
use filoplume_runtime::{Response, StaticField};

use super::IntoEvent;
use crate::core::error::Result;
use crate::core::response::IntoResponse;

/// How long a stream is silent before a comment is sent. Proxies close connections that are silent
/// for a minute or less.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

static EVENTS: StaticField = StaticField::new("content-type: text/event-stream\r\n");
/// No cache may keep a stream.
static NO_STORE: StaticField = StaticField::new("cache-control: no-store\r\n");
/// Keeps nginx from buffering the response.
static NO_BUFFERING: StaticField = StaticField::new("x-accel-buffering: no\r\n");

/// Returns a sender and the stream of events that it fills.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::sse::{self, Event};
///
/// let app = App::new().get("/count", || {
///     let (sender, stream) = sse::channel();
///     std::thread::spawn(move || {
///         for number in 0..3 {
///             // Waits while the client is slow. An error says that it has gone.
///             if sender.send(Event::new(number.to_string())).is_err() {
///                 break;
///             }
///         }
///     });
///     stream
/// });
/// app.test().get("/count").send().assert_header("content-type", "text/event-stream");
/// ```
pub fn channel() -> (EventSender, EventStream) {
    let (sender, stream) = channel_with(pushed::CAPACITY);
    (EventSender { sender }, stream)
}

pub(super) fn channel_with(capacity: usize) -> (pushed::Sender, EventStream) {
    let (sender, body) = pushed::channel();
    let body = body.capacity(capacity).endless();
    (sender, EventStream { body, is_over: false }.keep_alive(KEEP_ALIVE))
}

/// Sends events to one client, from any thread. Clones send to the same client. The stream ends
/// when the last clone is dropped; browsers then connect again.
///
/// ```
/// use filoplume::sse;
///
/// let (sender, stream) = sse::channel();
/// sender.try_send("first")?;
/// drop(stream);
/// assert!(sender.send("second").is_err(), "the client has gone");
/// # Ok::<(), filoplume::pushed::SendError>(())
/// ```
#[derive(Clone, Debug)]
pub struct EventSender {
    sender: pushed::Sender,
}

impl EventSender {
    /// Sends an event. Waits while the client is slow.
    ///
    /// # Errors
    ///
    /// If the client has gone or the server shuts down.
    pub fn send(&self, event: impl IntoEvent) -> Result<(), SendError> {
        self.sender.send(event.into_event().encode())
    }

    /// Sends an event, or returns [`SendError::Full`] at once if too much waits for the client.
    ///
    /// # Errors
    ///
    /// If too much waits, the client has gone or the server shuts down.
    pub fn try_send(&self, event: impl IntoEvent) -> Result<(), SendError> {
        self.sender.try_send(event.into_event().encode())
    }

    /// Sends an event. Waits for `timeout` at most while the client is slow.
    ///
    /// # Errors
    ///
    /// As [`try_send`](Self::try_send).
    pub fn send_timeout(&self, event: impl IntoEvent, timeout: Duration) -> Result<(), SendError> {
        self.sender.send_timeout(event.into_event().encode(), timeout)
    }

    /// Returns the sender of the encoded events.
    pub fn bytes(&self) -> &pushed::Sender {
        &self.sender
    }
}

/// A response with events. It is sent as `text/event-stream` and not cached, compressed or buffered
/// by proxies. After 15 seconds of silence the client gets a comment. When the server shuts down,
/// the stream ends, and browsers connect again.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::sse::{self, EventStream};
///
/// fn hello() -> Result<EventStream> {
///     let (sender, stream) = sse::channel();
///     sender.send("hello")?;
///     Ok(stream)
/// }
///
/// let client = App::new().get("/hello", hello).test();
/// client.get("/hello").send().assert_text("data: hello\n\n");
/// ```
#[doc(alias("Sse", "server_sent_events"))]
#[derive(Debug)]
#[must_use]
pub struct EventStream {
    body: Pushed,
    /// Whether there is nothing to send, now or later.
    is_over: bool,
}

impl EventStream {
    /// Sets after how much silence the client gets a comment. Zero means never.
    pub fn keep_alive(self, interval: Duration) -> Self {
        Self { body: self.body.keep_alive(interval, ":\n\n"), ..self }
    }

    /// Sends what `next` returns before anything else, piece by piece.
    pub(super) fn begin_with(self, next: impl FnMut() -> Option<Bytes> + Send + 'static) -> Self {
        Self { body: self.body.begin_with(next), ..self }
    }

    /// Makes this a `204`, after which browsers do not connect again.
    pub(super) fn over(self) -> Self {
        Self { is_over: true, ..self }
    }
}

impl IntoResponse for EventStream {
    const SAYS_STATUS: bool = false;

    fn into_response(self) -> Result<Response> {
        if self.is_over {
            let mut response = Response::new(204);
            response.headers_mut().insert_static(&NO_STORE);
            return Ok(response);
        }
        let mut response = Response::default();
        for field in [&EVENTS, &NO_STORE, &NO_BUFFERING] {
            response.headers_mut().insert_static(field);
        }
        response.set_pushed(self.body);
        Ok(response)
    }
}
