//! What a caller knows about the length of its content, and how it must write the content.

/// What the caller knows about the length of the content of a message.
///
/// ```
/// use filoplume_http1::{
///     BodyEncoding, ContentLength, Date, Headers, Limits, ServerConnection,
/// };
/// use http::StatusCode;
///
/// let mut connection = ServerConnection::new();
/// connection.read_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &Limits::default())?;
/// let (date, mut out) = (Date::new(std::time::UNIX_EPOCH), Vec::new());
/// let length = ContentLength::Unknown; // a stream
/// let encoding =
///     connection.write_head(StatusCode::OK, &Headers::new(), length, &date, &mut out);
/// assert_eq!(encoding, BodyEncoding::Chunked);
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentLength {
    /// This many bytes.
    Known(u64),
    /// The length is known only once everything is written.
    Unknown,
    /// There is no content, and no length is sent where that is allowed, e.g. for a 101 or a
    /// response to `HEAD`.
    None,
}

/// How the caller must write the content after a head.
///
/// ```
/// use filoplume_http1::{BodyEncoding, CHUNK_END, LAST_CHUNK, encode_chunk_head};
///
/// fn write(encoding: BodyEncoding, content: &[u8], out: &mut Vec<u8>) {
///     match encoding {
///         BodyEncoding::None => {}
///         BodyEncoding::Length(_) | BodyEncoding::UntilClose => {
///             out.extend_from_slice(content)
///         }
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
    /// No content may be written.
    None,
    /// Exactly this many bytes, unencoded.
    Length(u64),
    /// In chunks, followed by the last chunk.
    Chunked,
    /// Unencoded; then the connection must be closed.
    UntilClose,
}
