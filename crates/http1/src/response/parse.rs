//! Parses the head of a response. httparse finds the tokens. This module refuses what httparse
//! accepts but RFC 9112 forbids, with one exception: the space after a status code may be missing,
//! because existing servers omit it.
//!
//! `parse_with_index` has the same steps as the function of this name in `request/parse.rs`, but
//! the two share only helpers: a request copies its fields and a response borrows them, so one
//! function for both would be longer.
//!
//! Parsing does not allocate.

use std::mem::MaybeUninit;

use http::{Method, StatusCode};
use httparse::{Header, ParserConfig, Response, Status};

use crate::error::ParseError;
use crate::fields::{FIELDS_FEW, is_after_crlf, offset, reason};
use crate::limits::Limits;
use crate::response::framing::FieldFacts;
use crate::response::head::ResponseHead;
use crate::response::plain::parse_plain_response_head;
use crate::version::Version;

/// Returns the head of the response at the start of `input` and how many bytes it has, or `None` if
/// more bytes are needed. `method` is the method of the request.
///
/// ```
/// use filoplume_http1::{Limits, ResponseFraming, parse_response_head};
/// use http::Method;
///
/// let input = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmeow";
/// let (head, used) = parse_response_head(input, &Method::GET, &Limits::default())?
///     .expect("the head is whole");
/// assert_eq!(head.status(), 200);
/// assert_eq!(head.framing(), ResponseFraming::Length(4));
/// assert_eq!(head.field("content-length"), Some(b"4".as_slice()));
/// assert_eq!(&input[used..], b"meow");
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the bytes cannot become a head, or if its fields leave the end of the
/// message ambiguous. The result does not depend on how many of the bytes earlier calls had.
#[inline]
pub fn parse_response_head<'a>(
    input: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, ParseError> {
    match input.first() {
        None => return Ok(None),
        // Only a server must accept an empty line before the head (RFC 9112 section 2.2).
        Some(b'\r' | b'\n') => return Err(ParseError::StatusLineInvalid),
        Some(_) => {}
    }
    // Bytes beyond the limit are never read: otherwise the result would depend on whether they have
    // arrived.
    let window = input.get(..limits.head_bytes_max).unwrap_or(input);
    if let Some((head, used)) = parse_plain_response_head(window, method, limits) {
        // With debug assertions, as in tests and fuzz targets, both parsers read each plain head.
        debug_assert!(
            matches!(
                parse_general(window, method, limits),
                Ok(Some((other, end))) if head.is_same(&other) && used == end
            ),
            "the plain parser and the general parser disagree about {head:?}",
        );
        return Ok(Some((head, used)));
    }
    parse_general(window, method, limits)
}

/// Parses a head of any form. If it is malformed, this function decides the reason.
#[inline(never)]
pub(crate) fn parse_general<'a>(
    window: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, ParseError> {
    parse_with_index::<FIELDS_FEW>(window, method, limits)
}

/// Parses with room for `N` fields, and if there are more, with room for [`Limits::FIELDS_CAP`].
#[inline]
fn parse_with_index<'a, const N: usize>(
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
            return parse_many_fields(window, method, limits);
        }
        Err(error) => return Err(reason(error, ParseError::StatusLineInvalid)),
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
        if !is_after_crlf(window, start) {
            return Err(ParseError::LineEndInvalid);
        }
        facts.note(version, name, header.value)?;
    }
    let head = ResponseHead::from_facts(version, status, &facts, method, bytes)?;
    Ok(Some((head, used)))
}

/// This is a separate function so that the stack frame of the common case stays small.
#[cold]
#[inline(never)]
fn parse_many_fields<'a>(
    window: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, ParseError> {
    parse_with_index::<{ Limits::FIELDS_CAP }>(window, method, limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::framing::ResponseFraming;

    #[test]
    fn a_limit_above_the_cap_is_reduced_to_the_cap() {
        let limits = Limits {
            fields_max: Limits::FIELDS_CAP + 1,
            head_bytes_max: 1 << 20,
            ..Limits::default()
        };
        let parsed = |fields: usize| {
            let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(fields));
            parse_response_head(head.as_bytes(), &Method::GET, &limits)
                .map(|parsed| parsed.is_some())
        };
        assert_eq!(parsed(Limits::FIELDS_CAP), Ok(true));
        assert_eq!(parsed(Limits::FIELDS_CAP + 1), Err(ParseError::TooManyFields));
    }

    #[test]
    fn a_name_of_the_same_length_is_another_field() {
        for field in ["connexions: close", "content-weight: 5", "transfer-recoding: chunked"] {
            let input = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{field}\r\n\r\n");
            let parsed = parse_response_head(input.as_bytes(), &Method::GET, &Limits::default());
            let parsed =
                parsed.map(|parsed| parsed.map(|(head, _)| (head.framing(), head.is_persistent())));
            assert_eq!(parsed, Ok(Some((ResponseFraming::Length(0), true))), "{field}");
        }
    }
}
