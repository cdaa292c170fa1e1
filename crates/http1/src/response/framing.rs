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
    /// There is no content, whatever the fields say: the request was `HEAD`, or the status is 1xx,
    /// 204 or 304.
    Empty,
    /// The content has this many bytes.
    Length(u64),
    /// The content ends with the chunk of size zero and the trailer section.
    Chunked,
    /// The content ends when the connection closes.
    UntilClose,
    /// The bytes that follow belong to another protocol: after a 101, or after a 2xx to `CONNECT`.
    HandedOver,
}

/// Collects facts about the end of the message, one field at a time.
#[derive(Default)]
pub(crate) struct FieldFacts {
    framing: FramingFields,
    close: bool,
    keep_alive: bool,
}

impl FieldFacts {
    /// Records one field. The length of the name rules out most fields before a byte is compared.
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
                self.framing.note_length(value)?;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.framing.note_coding(version, value)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Records a length. `None` means that the value was not a number.
    #[inline]
    pub(crate) fn note_length(&mut self, length: Option<u64>) -> Result<(), ParseError> {
        self.framing.note_number(length)
    }

    /// Returns whether a field with a name of this length may affect the result of
    /// [`note`](Self::note).
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

    /// Returns how the response ends. The rules are in the order of RFC 9112 section 6.3.
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
            // Without either field a request has no content, but a response ends when the
            // connection closes.
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
