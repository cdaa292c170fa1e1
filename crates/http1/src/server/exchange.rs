//! What a caller tells of an exchange, and what it is told: the length of a content, how to write it, what comes next.

use crate::error::ParseError;

/// Why a connection is closed after the message in progress. The first reason stays.
///
/// ```
/// use filoplume_http1::{CloseReason, Limits, ServerConnection};
///
/// let mut connection = ServerConnection::new();
/// let error = connection.read_head(b"GET / HTTP/1.1\r\n\r\n", &Limits::default()).expect_err("there is no Host");
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
    /// The content of the request was not read to its end, so it is unknown where the next one begins.
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

/// What the caller knows about the length of a response's content.
///
/// ```
/// use filoplume_http1::{BodyEncoding, ContentLength, Date, Headers, Limits, ServerConnection};
/// use http::StatusCode;
///
/// let mut connection = ServerConnection::new();
/// connection.read_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &Limits::default())?;
/// let (date, mut out) = (Date::new(std::time::UNIX_EPOCH), Vec::new());
/// let length = ContentLength::Unknown;                                  // a stream
/// let encoding = connection.write_head(StatusCode::OK, &Headers::new(), length, &date, &mut out);
/// assert_eq!(encoding, BodyEncoding::Chunked);
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentLength {
    /// This many bytes.
    Known(u64),
    /// It will turn out while it is written.
    Unknown,
    /// There is no content and no length is to be announced where that is allowed, e.g. for 101 or the answer to `HEAD`.
    None,
}

/// How the caller has to write the content that follows a head.
///
/// ```
/// use filoplume_http1::{BodyEncoding, CHUNK_END, LAST_CHUNK, encode_chunk_head};
///
/// fn write(encoding: BodyEncoding, content: &[u8], out: &mut Vec<u8>) {
///     match encoding {
///         BodyEncoding::None => {}
///         BodyEncoding::Length(_) | BodyEncoding::UntilClose => out.extend_from_slice(content),
///         BodyEncoding::Chunked => {
///             encode_chunk_head(content.len(), out);
///             out.extend_from_slice(content);
///             out.extend_from_slice(CHUNK_END);
///             out.extend_from_slice(LAST_CHUNK);
///         }
///     }
/// }
///
/// let mut out = Vec::new();
/// write(BodyEncoding::Chunked, b"Hello", &mut out);
/// assert_eq!(out, b"5\r\nHello\r\n0\r\n\r\n");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEncoding {
    /// Nothing may be written.
    None,
    /// Exactly this many bytes, as they are.
    Length(u64),
    /// In chunks, the last one at the end.
    Chunked,
    /// As they are; then the connection is closed.
    UntilClose,
}
