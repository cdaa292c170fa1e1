//! How a response ends (RFC 9112 section 6.3), and whether another may follow it.

use http::{Method, StatusCode};

use crate::error::ParseError;
use crate::framing::{Framing, FramingFields};
use crate::syntax::list_members;
use crate::version::Version;

/// How the content of a response ends (RFC 9112 section 6.3).
///
/// ```
/// use filoplume_http1::{Limits, ResponseFraming, parse_response_head};
///
/// let input = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
/// let framing = |method| {
///     let (head, _) = parse_response_head(input, &method, &Limits::default())?
///         .expect("the head is whole");
///     Ok::<_, filoplume_http1::ParseError>(head.framing())
/// };
/// assert_eq!(framing(http::Method::GET)?, ResponseFraming::Length(5));
/// assert_eq!(framing(http::Method::HEAD)?, ResponseFraming::Empty);
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// There is no content, whatever the fields say: it answers `HEAD`, or its status is 1xx, 204
    /// or 304.
    Empty,
    /// The content has this many bytes.
    Length(u64),
    /// The content ends with the chunk of size zero and the trailer section.
    Chunked,
    /// The content ends with the connection.
    UntilClose,
    /// What follows belongs to another protocol: after 101, or 2xx to `CONNECT`.
    HandedOver,
}

/// Collects what single fields say about the end of the message.
#[derive(Default)]
pub(crate) struct FieldFacts {
    framing: FramingFields,
    close: bool,
    keep_alive: bool,
}

impl FieldFacts {
    /// Takes note of one field. The length of the name rules out most fields before a byte is
    /// compared.
    #[inline]
    pub(crate) fn note(
        &mut self,
        version: Version,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), ParseError> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => self.note_connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.framing.note_length(value)?
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.framing.note_coding(version, value)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes note of a length, which is `None` where there should be a number and is none.
    #[inline]
    pub(crate) fn note_length(&mut self, length: Option<u64>) -> Result<(), ParseError> {
        self.framing.note_number(length)
    }

    /// Whether a field with a name of this length may be one that [`note`](Self::note) knows.
    #[inline]
    pub(crate) fn may_matter(name_len: usize) -> bool {
        matches!(name_len, 10 | 14 | 17)
    }

    fn note_connection(&mut self, value: &[u8]) {
        for option in list_members(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9112 section 6.3, in its order.
    #[inline]
    pub(crate) fn framing(
        &self,
        method: &Method,
        status: StatusCode,
    ) -> Result<ResponseFraming, ParseError> {
        match status.as_u16() {
            101 => return Ok(ResponseFraming::HandedOver),
            100..=199 | 204 | 304 => return Ok(ResponseFraming::Empty),
            200..=299 if *method == Method::CONNECT => return Ok(ResponseFraming::HandedOver),
            _ if *method == Method::HEAD => return Ok(ResponseFraming::Empty),
            _ => {}
        }
        Ok(match self.framing.finish()? {
            Framing::Chunked => ResponseFraming::Chunked,
            Framing::Length(length) => ResponseFraming::Length(length),
            // No field: a request would have no content, a response ends with the connection.
            Framing::Empty => ResponseFraming::UntilClose,
        })
    }

    #[inline]
    pub(crate) fn is_persistent(&self, version: Version, framing: ResponseFraming) -> bool {
        let may_follow =
            !matches!(framing, ResponseFraming::UntilClose | ResponseFraming::HandedOver);
        may_follow && !self.close && (version == Version::Http11 || self.keep_alive)
    }
}
