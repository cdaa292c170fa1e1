//! Parses the head of a request. httparse finds the tokens. This module refuses what httparse
//! accepts but RFC 9112 forbids.

use std::mem::MaybeUninit;

use http::Method;
use httparse::{Header, Request, Status};

use crate::error::ParseError;
use crate::fields::{FIELDS_FEW, Field, HeadParts, Span, Storage, is_after_crlf, offset, reason};
use crate::limits::Limits;
use crate::request::framing::FieldFacts;
use crate::request::head::RequestHead;
use crate::request::plain::parse_plain_head;
use crate::request::target::parse_target;
use crate::version::Version;

/// Longest method accepted. The longest registered one has 17 bytes (`UPDATEREDIRECTREF`).
const METHOD_BYTES_MAX: usize = 32;

/// Returns the head at the start of `input` and how many bytes it has, or `None` if more bytes are
/// needed.
///
/// One empty line before the head is skipped and counted (RFC 9112 section 2.2).
///
/// ```
/// use filoplume_http1::{Limits, parse_request_head};
///
/// let limits = Limits::default();
/// assert!(parse_request_head(b"GET / HTTP/1.1\r\nHo", &limits)?.is_none());
///
/// let (head, used) =
///     parse_request_head(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /next", &limits)?
///         .unwrap();
/// assert_eq!((head.path(), used), ("/", 27));
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the bytes cannot become a head that all readers interpret in the same way.
/// The result does not depend on how many of the bytes earlier calls had.
#[inline]
pub fn parse_request_head(
    input: &[u8],
    limits: &Limits,
) -> Result<Option<(RequestHead, usize)>, ParseError> {
    match parse_if_plain(input, limits) {
        Some(plain) => Ok(Some(plain)),
        None => parse_if_not_plain(input, limits),
    }
}

/// Returns the head at the start of `input` if it is plain and complete.
#[inline]
pub(crate) fn parse_if_plain(input: &[u8], limits: &Limits) -> Option<(RequestHead, usize)> {
    let window = window_of(input, limits);
    let (storage, used) = parse_plain_head(window, limits)?;
    let head = RequestHead::from_storage(storage);
    // With debug assertions, as in tests and fuzz targets, both parsers read each plain head.
    debug_assert!(
        matches!(
            parse_general(window, 0, limits),
            Ok(Some(general)) if is_same(&general, &(&head, used))
        ),
        "the plain parser and the general parser disagree about {head:?}",
    );
    Some((head, used))
}

/// Returns the result of [`parse_request_head`] for an `input` that [`parse_if_plain`] did not
/// accept.
pub(crate) fn parse_if_not_plain(
    input: &[u8],
    limits: &Limits,
) -> Result<Option<(RequestHead, usize)>, ParseError> {
    let empty_line_len = match input {
        [] => return Ok(None),
        [b'\r' | b'\n', ..] => match empty_line(input)? {
            Some(len) => len,
            None => return Ok(None),
        },
        _ => 0,
    };
    let input = input.get(empty_line_len..).unwrap_or_default();
    parse_general(window_of(input, limits), empty_line_len, limits)
}

/// Cuts the input at the limit. Bytes beyond it are never read: otherwise the result would depend
/// on whether they have arrived.
#[inline]
fn window_of<'a>(input: &'a [u8], limits: &Limits) -> &'a [u8] {
    input.get(..limits.head_bytes_max.min(Span::ARENA_BYTES_MAX)).unwrap_or(input)
}

/// Parses a head of any form. If it is malformed, this function decides the reason.
#[inline(never)]
fn parse_general(
    window: &[u8],
    empty_line_len: usize,
    limits: &Limits,
) -> Result<Option<(RequestHead, usize)>, ParseError> {
    parse_with_index::<FIELDS_FEW>(window, empty_line_len, limits)
}

/// Returns whether two parsed heads are equal in everything that the public interface shows.
fn is_same(one: &(RequestHead, usize), other: &(&RequestHead, usize)) -> bool {
    let ((one, one_used), (other, other_used)) = (one, other);
    one_used == other_used
        && (one.method(), one.version()) == (other.method(), other.version())
        && (one.target(), one.path(), one.query()) == (other.target(), other.path(), other.query())
        && one.authority() == other.authority()
        && one.facts() == other.facts()
        && one.headers().iter_bytes().eq(other.headers().iter_bytes())
}

/// Returns the length of the empty line that is skipped, or `None` if more bytes are needed to
/// decide.
#[cold]
fn empty_line(input: &[u8]) -> Result<Option<usize>, ParseError> {
    match input {
        [b'\r'] | [b'\r', b'\n'] => Ok(None),
        [b'\r', b'\n', next, ..] if !matches!(next, b'\r' | b'\n') => Ok(Some(2)),
        _ => Err(ParseError::LineEndInvalid),
    }
}

/// Parses with room for `N` fields, and if there are more, with room for [`Limits::FIELDS_CAP`].
#[inline]
fn parse_with_index<const N: usize>(
    window: &[u8],
    empty_line_len: usize,
    limits: &Limits,
) -> Result<Option<(RequestHead, usize)>, ParseError> {
    let mut index = [const { MaybeUninit::<Header<'_>>::uninit() }; N];
    let index = index.get_mut(..limits.fields_max.min(N)).unwrap_or_default();
    let mut request = Request::new(&mut []);
    let used = match request.parse_with_uninit_headers(window, index) {
        Ok(Status::Complete(used)) => used,
        Ok(Status::Partial) => return incomplete(window, limits),
        Err(httparse::Error::Version) => return wrong_version(window, limits),
        Err(httparse::Error::TooManyHeaders) if N < Limits::FIELDS_CAP && limits.fields_max > N => {
            return parse_many_fields(window, empty_line_len, limits);
        }
        Err(error) => return Err(reason(error, ParseError::RequestLineInvalid)),
    };
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(ParseError::RequestLineInvalid);
    };
    if method.len() > METHOD_BYTES_MAX {
        return Err(ParseError::MethodTooLong);
    }
    if target.len() > limits.target_bytes_max {
        return Err(ParseError::TargetTooLong);
    }
    let method =
        Method::from_bytes(method.as_bytes()).map_err(|_| ParseError::RequestLineInvalid)?;
    let parts = parse_target(&method, target.as_bytes())?;
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let head = window.get(..used).unwrap_or_default();
    if !head.ends_with(b"\r\n\r\n") {
        return Err(ParseError::LineEndInvalid);
    }
    let mut storage = Storage::take();
    let mut facts = FieldFacts::default();
    storage.fields.reserve(request.headers.len());
    for header in request.headers.iter() {
        let name = header.name.as_bytes();
        let start = offset(window, name);
        if !is_after_crlf(window, start) {
            return Err(ParseError::LineEndInvalid);
        }
        facts.note(version, name, header.value)?;
        let name = Span::new(start, name.len());
        let value = Span::new(offset(window, header.value), header.value.len());
        storage.fields.push(Field { name, value });
    }
    let facts = facts.finish(version, true)?;
    storage.bytes.extend_from_slice(head);
    storage.target.push_str(target);
    storage.parts = HeadParts { method, version, facts, target: parts };
    storage.is_wire_format = false;
    let used = used.saturating_add(empty_line_len);
    Ok(Some((RequestHead::from_storage(storage), used)))
}

/// This is a separate function so that the stack frame of the common case stays small.
#[cold]
#[inline(never)]
fn parse_many_fields(
    window: &[u8],
    empty_line_len: usize,
    limits: &Limits,
) -> Result<Option<(RequestHead, usize)>, ParseError> {
    parse_with_index::<{ Limits::FIELDS_CAP }>(window, empty_line_len, limits)
}

/// Decides about a head that does not end in the window: it is too long, or not all of it has
/// arrived.
#[cold]
fn incomplete(window: &[u8], limits: &Limits) -> Result<Option<(RequestHead, usize)>, ParseError> {
    if window.len() < limits.head_bytes_max {
        return Ok(None);
    }
    let target_len = window.split(|&byte| byte == b' ').nth(1).map_or(0, <[u8]>::len);
    if target_len > limits.target_bytes_max {
        return Err(ParseError::TargetTooLong);
    }
    Err(ParseError::HeadTooLong)
}

/// Distinguishes an unsupported version from a malformed one. httparse stops at the first wrong
/// byte, which may be too early to decide.
#[cold]
fn wrong_version(
    window: &[u8],
    limits: &Limits,
) -> Result<Option<(RequestHead, usize)>, ParseError> {
    let text = window.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or_default();
    let text = text.get(..8).unwrap_or(text);
    let is_well_formed_so_far =
        text.iter().zip(b"HTTP/0.0").all(|(&byte, &pattern)| match pattern {
            b'0' => byte.is_ascii_digit(),
            _ => byte == pattern,
        });
    match (is_well_formed_so_far, text.len()) {
        (true, 8) => Err(ParseError::VersionUnsupported),
        (true, _) => incomplete(window, limits),
        (false, _) => Err(ParseError::VersionInvalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &str) -> (RequestHead, usize) {
        parse_general(input.as_bytes(), 0, &Limits::default()).unwrap().unwrap()
    }

    /// The end of the window may lie anywhere in the version.
    #[test]
    fn a_head_without_an_end_is_refused_at_the_limit_wherever_that_lies() {
        let limits = Limits::default();
        for end in [" HTTP/2.0\r\n", " HTTP/1.1\r\n", " HTTP/0.9\r\n", "\r\n"] {
            for target in limits.head_bytes_max - 40..limits.head_bytes_max {
                let mut head = format!("GET /{}{end}", "a".repeat(target)).into_bytes();
                head.resize(limits.head_bytes_max * 2, b'b');
                assert!(parse_if_not_plain(&head, &limits).is_err(), "{target} {end:?}");
            }
        }
    }

    /// Tests the comparison of the two parsers, because all other tests of plain heads depend on
    /// it.
    #[test]
    fn heads_that_differ_in_one_part_are_not_the_same() {
        const HEAD: &str = "GET /a?b HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n";
        let (head, used) = read(HEAD);
        assert!(is_same(&read(HEAD), &(&head, used)));
        assert!(!is_same(&read(HEAD), &(&head, used + 1)));
        for other in [
            "PUT /a?b HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n",
            "GET /c?b HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n",
            "GET /a?c HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n",
            "GET /a?b HTTP/1.1\r\nHost: i\r\nX: y\r\n\r\n",
            "GET /a?b HTTP/1.1\r\nHost: h\r\nZ: y\r\n\r\n",
            "GET /a?b HTTP/1.1\r\nHost: h\r\nX: z\r\n\r\n",
            "GET /a?b HTTP/1.0\r\nHost: h\r\nX: y\r\n\r\n",
        ] {
            let (other, other_used) = read(other);
            assert_eq!(other_used, used);
            assert!(!is_same(&read(HEAD), &(&other, used)), "{other:?}");
        }
    }
}
