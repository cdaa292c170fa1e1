//! Every bound on what a peer may send, with the reason for its default.

/// The bounds on one message. A message that exceeds a bound is refused with a status that says so.
///
/// ```
/// use filoplume_http1::{Limits, ParseError, parse_request_head};
///
/// let limits = Limits { target_bytes_max: 8, ..Limits::default() };
/// let refused =
///     parse_request_head(b"GET /far-too-long HTTP/1.1\r\nHost: h\r\n\r\n", &limits);
/// assert_eq!(refused.unwrap_err(), ParseError::TargetTooLong);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest head: request line, fields and the empty line. A longer one is refused with 431.
    pub head_bytes_max: usize,
    /// Longest request target. A longer one is refused with 414.
    pub target_bytes_max: usize,
    /// Most fields in a head or a trailer section, never more than [`Limits::FIELDS_CAP`]. More
    /// fields are refused with 431.
    pub fields_max: usize,
    /// Longest chunk line: size and extensions, without its line end. A longer one is refused with
    /// 400.
    pub chunk_line_bytes_max: usize,
    /// Most bytes of chunk extensions in one message. More bytes are refused with 400.
    pub chunk_extension_bytes_max: usize,
    /// Longest trailer section. A longer one is refused with 431.
    pub trailer_bytes_max: usize,
}

impl Limits {
    /// Common proxies send heads of up to 8 KiB; the rest is room for cookies.
    pub const HEAD_BYTES_MAX: usize = 16 * 1024;
    /// RFC 9112 section 3 recommends at least 8,000 bytes for a request line.
    pub const TARGET_BYTES_MAX: usize = 8 * 1024;
    /// Browsers send about 20 fields, chains of proxies about 20 more.
    pub const FIELDS_MAX: usize = 100;
    /// The index of a head is built on the stack. With this many fields it takes 8 KiB.
    pub const FIELDS_CAP: usize = 256;
    /// A size has at most 16 digits; extensions are rare and short.
    pub const CHUNK_LINE_BYTES_MAX: usize = 256;
    /// Without a total, a peer could send extensions without end in chunks of one byte.
    pub const CHUNK_EXTENSION_BYTES_MAX: usize = 16 * 1024;
    /// Trailers are digests and signatures, for which half of a head is enough.
    pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: Self::HEAD_BYTES_MAX,
            target_bytes_max: Self::TARGET_BYTES_MAX,
            fields_max: Self::FIELDS_MAX,
            chunk_line_bytes_max: Self::CHUNK_LINE_BYTES_MAX,
            chunk_extension_bytes_max: Self::CHUNK_EXTENSION_BYTES_MAX,
            trailer_bytes_max: Self::TRAILER_BYTES_MAX,
        }
    }
}
