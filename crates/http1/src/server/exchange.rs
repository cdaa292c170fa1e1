//! What comes behind an exchange, and why a connection closes.

use crate::error::ParseError;

/// Why a connection is closed after the message in progress. The first reason stays.
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
    /// The request said `Connection: close`.
    PeerAsked,
    /// An HTTP/1.0 request did not say `keep-alive`.
    Http10,
    /// What the peer sent could not be understood.
    Refused(ParseError),
    /// The content of the request was not read to its end, so it is unknown where the next one
    /// begins.
    ContentUnread,
    /// The response says `Connection: close`.
    HandlerAsked,
    /// Only the end of the connection ends the response.
    UntilClose,
    /// The server is stopping.
    Shutdown,
    /// Something failed midway.
    Error,
    /// The bytes that follow belong to another protocol: after 101, or 2xx to `CONNECT`.
    Upgraded,
}

/// What follows when a request was read and its response was written.
///
/// ```
/// use filoplume_http1::{CloseReason, Next};
///
/// fn told(next: Option<Next>) -> &'static str {
///     match next {
///         None => "the message is not done yet",
///         Some(Next::KeepAlive) => "read the next head",
///         Some(Next::Close(CloseReason::PeerAsked)) => "hang up, as was asked",
///         Some(Next::Close(_)) => "hang up",
///     }
/// }
///
/// assert_eq!(told(Some(Next::KeepAlive)), "read the next head");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next request may be read.
    KeepAlive,
    /// The connection is finished.
    Close(CloseReason),
}
