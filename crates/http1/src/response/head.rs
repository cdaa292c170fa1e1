//! The head of a response, as a client reads it: bytes to a head, and how the message ends (RFC 9112 section 6.3).
//!
//! A head borrows the bytes it was found in and allocates nothing. What httparse tolerates and RFC 9112 does not is
//! refused here, with one exception: the space behind a status code may be missing, because servers in use leave it out.

use std::mem::MaybeUninit;

use http::{Method, StatusCode};
use httparse::{Header, ParserConfig, Response, Status};

use crate::error::ParseError;
use crate::framing::{Framing, FramingFields};
use crate::limits::Limits;
use crate::request::parse::offset;
use crate::response::plain::parse_plain_response_head;
use crate::syntax::{list_members, trim_ows};
use crate::version::Version;

/// Fields that fit the first attempt, as for requests.
const FIELDS_FEW: usize = 32;

/// How the content of a response ends (RFC 9112 section 6.3).
///
/// ```
/// use filoplume_http1::{Limits, ResponseFraming, parse_response_head};
///
/// let input = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
/// let framing = |method| {
///     let (head, _) = parse_response_head(input, &method, &Limits::default())?.expect("the head is whole");
///     Ok::<_, filoplume_http1::ParseError>(head.framing())
/// };
/// assert_eq!(framing(http::Method::GET)?, ResponseFraming::Length(5));
/// assert_eq!(framing(http::Method::HEAD)?, ResponseFraming::Empty);
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// There is no content, whatever the fields say: it answers `HEAD`, or its status is 1xx, 204 or 304.
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

/// The head of a response: status line, fields, and what follows from them.
///
/// ```
/// use filoplume_http1::{Limits, parse_response_head};
///
/// let input = b"HTTP/1.1 404 Not Found\r\nServer: cat\r\nContent-Length: 0\r\n\r\n";
/// let (head, used) = parse_response_head(input, &http::Method::GET, &Limits::default())?.expect("the head is whole");
/// assert_eq!((head.status().as_u16(), head.field("server")), (404, Some(b"cat".as_slice())));
/// assert!(head.is_persistent() && used == input.len());
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    version: Version,
    framing: ResponseFraming,
    is_persistent: bool,
    /// The whole head with its empty line. Every line in it ends in CR LF.
    bytes: &'a [u8],
}

impl<'a> ResponseHead<'a> {
    /// Returns the status.
    #[inline]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the version of the response.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns how the content ends.
    #[inline]
    pub fn framing(&self) -> ResponseFraming {
        self.framing
    }

    /// Returns whether another response follows to the same request (1xx, but for 101).
    #[inline]
    pub fn is_interim(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }

    /// Returns whether another request may be sent on this connection (RFC 9112 section 9.3).
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// What status, fields and the method of the request make of each other.
    #[inline]
    pub(crate) fn from_facts(
        version: Version,
        status: StatusCode,
        facts: &FieldFacts,
        method: &Method,
        bytes: &'a [u8],
    ) -> Result<Self, ParseError> {
        let framing = facts.framing(method, status)?;
        let is_persistent = facts.is_persistent(version, framing);
        Ok(Self { status, version, framing, is_persistent, bytes })
    }

    /// Whether two readings of the same bytes agree.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.status, self.version, self.framing) == (other.status, other.version, other.framing)
            && (self.is_persistent, self.bytes) == (other.is_persistent, other.bytes)
    }

    /// The whole head, as it came.
    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The same head in other bytes, which must be equal.
    #[inline]
    pub(crate) fn with_bytes<'b>(&self, bytes: &'b [u8]) -> ResponseHead<'b> {
        ResponseHead { bytes, ..*self }
    }

    /// Returns the fields in the order they came, names as they came, values without the whitespace around them.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let lines = self.bytes.split(|&byte| byte == b'\n').skip(1);
        lines.filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&byte| byte == b':')?;
            let (name, value) = line.split_at_checked(colon)?;
            Some((name, trim_ows(value.get(1..).unwrap_or_default())))
        })
    }

    /// Returns the value of the first field with this name, in any case.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        let mut fields = self.fields();
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}

/// Returns the head of the response at the start of `input` and how many bytes it has, or `None` if more bytes are
/// needed. `method` is that of the request it answers.
///
/// ```
/// use filoplume_http1::{Limits, ResponseFraming, parse_response_head};
/// use http::Method;
///
/// let input = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmeow";
/// let (head, used) = parse_response_head(input, &Method::GET, &Limits::default())?.expect("the head is whole");
/// assert_eq!(head.status(), 200);
/// assert_eq!(head.framing(), ResponseFraming::Length(4));
/// assert_eq!(head.field("content-length"), Some(b"4".as_slice()));
/// assert_eq!(&input[used..], b"meow");
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
///
/// # Errors
///
/// The bytes cannot become a head, or its fields leave in doubt where the message ends. It does not matter how many
/// of them were there in the calls before.
#[inline]
pub fn parse_response_head<'a>(
    input: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, ParseError> {
    match input.first() {
        None => return Ok(None),
        // Only a server has to put up with an empty line first (RFC 9112 section 2.2).
        Some(b'\r' | b'\n') => return Err(ParseError::StatusLineInvalid),
        Some(_) => {}
    }
    // Bytes over the limit are never looked at: otherwise the answer would depend on whether they are here already.
    let window = input.get(..limits.head_bytes_max).unwrap_or(input);
    if let Some((head, used)) = parse_plain_response_head(window, method, limits) {
        // Tests and fuzz targets have debug assertions: there each plain head is read in both ways.
        debug_assert!(
            matches!(parse_carefully(window, method, limits), Ok(Some((other, end))) if head.is_same(&other) && used == end),
            "the plain way takes {head:?} for something else than the careful one",
        );
        return Ok(Some((head, used)));
    }
    parse_carefully(window, method, limits)
}

/// Parses what is not plain, and decides what is wrong with what cannot be parsed.
#[inline(never)]
pub(crate) fn parse_carefully<'a>(
    window: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, ParseError> {
    attempt::<FIELDS_FEW>(window, method, limits)
}

/// Parses with room for `N` fields, and with all the room there is if that was not enough.
#[inline]
fn attempt<'a, const N: usize>(
    window: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, ParseError> {
    let mut index = [const { MaybeUninit::<Header<'_>>::uninit() }; N];
    let index = index.get_mut(..limits.fields_max.min(N)).unwrap_or_default();
    let mut response = Response::new(&mut []);
    let config = ParserConfig::default();
    let used = match config.parse_response_with_uninit_headers(&mut response, window, index) {
        Ok(Status::Complete(used)) => used,
        Ok(Status::Partial) if window.len() < limits.head_bytes_max => return Ok(None),
        Ok(Status::Partial) => return Err(ParseError::HeadTooLong),
        Err(httparse::Error::TooManyHeaders) if N < Limits::FIELDS_CAP && limits.fields_max > N => {
            return attempt_with_many_fields(window, method, limits);
        }
        Err(error) => return Err(reason(error)),
    };
    let (Some(version), Some(code)) = (response.version, response.code) else {
        return Err(ParseError::StatusLineInvalid);
    };
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let status = StatusCode::from_u16(code).map_err(|_| ParseError::StatusLineInvalid)?;
    let bytes = window.get(..used).unwrap_or_default();
    if !bytes.ends_with(b"\r\n\r\n") {
        return Err(ParseError::LineEndInvalid);
    }
    let mut facts = FieldFacts::default();
    for header in response.headers.iter() {
        let name = header.name.as_bytes();
        let start = offset(window, name);
        // A field begins its line, so the line before has to end here; httparse lets LF alone pass.
        if window.get(start.wrapping_sub(2)..start) != Some(b"\r\n") {
            return Err(ParseError::LineEndInvalid);
        }
        facts.note(version, name, header.value)?;
    }
    let head = ResponseHead::from_facts(version, status, &facts, method, bytes)?;
    Ok(Some((head, used)))
}

/// A function of its own, so that the stack of the common case stays small.
#[cold]
#[inline(never)]
fn attempt_with_many_fields<'a>(
    window: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, ParseError> {
    attempt::<{ Limits::FIELDS_CAP }>(window, method, limits)
}

#[cold]
fn reason(error: httparse::Error) -> ParseError {
    match error {
        httparse::Error::HeaderName => ParseError::FieldNameInvalid,
        httparse::Error::HeaderValue => ParseError::FieldValueInvalid,
        httparse::Error::TooManyHeaders => ParseError::TooManyFields,
        httparse::Error::NewLine => ParseError::LineEndInvalid,
        httparse::Error::Version | httparse::Error::Token | httparse::Error::Status => {
            ParseError::StatusLineInvalid
        }
    }
}

/// Collects what single fields say about the end of the message.
#[derive(Default)]
pub(crate) struct FieldFacts {
    framing: FramingFields,
    close: bool,
    keep_alive: bool,
}

impl FieldFacts {
    /// Takes note of one field. The length of the name rules out most fields before a byte is compared.
    #[inline]
    pub(crate) fn note(&mut self, version: Version, name: &[u8], value: &[u8]) -> Result<(), ParseError> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => self.note_connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.framing.note_length(value)?,
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
    fn framing(&self, method: &Method, status: StatusCode) -> Result<ResponseFraming, ParseError> {
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
    fn is_persistent(&self, version: Version, framing: ResponseFraming) -> bool {
        let may_follow = !matches!(framing, ResponseFraming::UntilClose | ResponseFraming::HandedOver);
        may_follow && !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It compares the plain and the careful reading of a head wherever there are debug assertions.
    #[test]
    fn heads_are_the_same_if_they_say_the_same() {
        fn read(head: &str) -> ResponseHead<'_> {
            parse_response_head(head.as_bytes(), &Method::GET, &Limits::default()).unwrap().unwrap().0
        }
        const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: yyyyy\r\n\r\n";
        assert!(read(HEAD).is_same(&read(HEAD)));
        for other in [
            "HTTP/1.1 201 OK\r\nContent-Length: 5\r\nX: yyyyy\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nX: yyyyy\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX: yyyyy\r\n\r\n",
        ] {
            // One thing at a time: the bytes are those of the first.
            assert!(!read(HEAD).is_same(&read(other).with_bytes(HEAD.as_bytes())), "{other:?}");
        }
        assert!(!read(HEAD).is_same(&read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: zzzzz\r\n\r\n")));
        let closing = ResponseHead { is_persistent: false, ..read(HEAD) };
        assert!(!closing.is_same(&read(HEAD)));
    }

    #[test]
    fn a_limit_over_the_cap_is_the_cap() {
        let limits =
            Limits { fields_max: Limits::FIELDS_CAP + 1, head_bytes_max: 1 << 20, ..Limits::default() };
        let parsed = |fields: usize| {
            let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(fields));
            parse_response_head(head.as_bytes(), &Method::GET, &limits).map(|parsed| parsed.is_some())
        };
        assert_eq!(parsed(Limits::FIELDS_CAP), Ok(true));
        assert_eq!(parsed(Limits::FIELDS_CAP + 1), Err(ParseError::TooManyFields));
    }

    #[test]
    fn a_name_of_the_same_length_is_another_field() {
        for field in ["connexions: close", "content-weight: 5", "transfer-recoding: chunked"] {
            let input = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{field}\r\n\r\n");
            let parsed = parse_response_head(input.as_bytes(), &Method::GET, &Limits::default());
            let parsed = parsed.map(|parsed| parsed.map(|(head, _)| (head.framing(), head.is_persistent())));
            assert_eq!(parsed, Ok(Some((ResponseFraming::Length(0), true))), "{field}");
        }
    }
}
