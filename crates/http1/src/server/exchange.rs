//! What follows a request and its response, and why a connection closes.

use crate::error::ParseError;

/// Why a connection closes after the message in progress. The first reason is kept.
///
/// ```
/// use filoplume_http1::{CloseReason, Limits, ServerConnection};
///
/// let mut connection = ServerConnection::new();
/// let error = connection
///     .read_head(b"GET / HTTP/1.1\r\n\r\n", &Limits::default())
///     .expect_err("there is no Host");
/// assert_eq!(connection.will_close(), Some(CloseReason::Refused(error)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// The request has `Connection: close`.
    PeerAsked,
    /// The request is HTTP/1.0 and has no `Connection: keep-alive`.
    Http10,
    /// The request is malformed or exceeds a limit.
    Refused(ParseError),
    /// The content of the request was not read to its end, so the start of the next request is
    /// unknown.
    ContentUnread,
    /// The handler set `Connection: close` on the response.
    HandlerAsked,
    /// The response ends with the end of the connection.
    UntilClose,
    /// The server is stopping.
    Shutdown,
    /// The response could not be completed because of an error.
    Error,
    /// The bytes that follow belong to another protocol: after a 101, or after a 2xx to `CONNECT`.
    Upgraded,
}

/// What follows after a request was read and its response was written.
///
/// ```
/// use filoplume_http1::{CloseReason, Next};
///
/// fn describe(next: Option<Next>) -> &'static str {
///     match next {
///         None => "the exchange is not complete",
///         Some(Next::KeepAlive) => "read the next head",
///         Some(Next::Close(CloseReason::PeerAsked)) => "close, as the request asked",
///         Some(Next::Close(_)) => "close",
///     }
/// }
///
/// assert_eq!(describe(Some(Next::KeepAlive)), "read the next head");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next request may be read.
    KeepAlive,
    /// The connection is finished.
    Close(CloseReason),
}
