//! The fast path: parses plain heads, which nearly every client sends, in one pass.
//!
//! The fast path never refuses a request. If a head is malformed, incomplete or only unusual, it
//! returns `None`, and the general parser in [`parse`](crate::request::parse) decides. So no rule
//! of the protocol is repeated here. The one requirement is that every head accepted here gives the
//! same result in the general parser. With debug assertions, as in tests and fuzz targets, every
//! accepted head is parsed by both and compared.
//!
//! The fast path exists because a general parser has to expect any byte at any position, and a
//! second pass has to find the fields again. For a short head, both passes together were almost
//! half of the instructions of a request.

use http::Method;

use crate::fields::{Facts, Field, HeadParts, Span, Storage, TargetParts};
use crate::limits::Limits;
use crate::request::framing::FieldFacts;
use crate::scan::{begins_with_host, digit_run_of_word, name_run, path_run, query_run, value_run};
use crate::syntax::REG_NAME;
use crate::version::Version;

/// The length of the longest port without leading zeros.
const PORT_BYTES_MAX: usize = PORT_MAX.len();

/// The highest port. Strings of the same number of digits compare like their numbers.
const PORT_MAX: &[u8] = b"65535";

/// The bytes between the target and the fields.
const VERSION: &[u8] = b" HTTP/1.1\r\n";

/// Returns the head at the start of `window` and its length, or `None` if it is not plain or not
/// complete.
#[inline(never)]
pub(crate) fn parse_plain_head(window: &[u8], limits: &Limits) -> Option<(Box<Storage>, usize)> {
    let (method, target_start) = plain_method(window)?;
    let path_len = path_run(window, target_start);
    let mut target_end = target_start.wrapping_add(path_len);
    let mut query = None;
    if window.get(target_end) == Some(&b'?') {
        let query_start = target_end.wrapping_add(1);
        let query_len = query_run(window, query_start);
        query = Some(Span::new(path_len.wrapping_add(1), query_len));
        target_end = query_start.wrapping_add(query_len);
    }
    if !window.get(target_end..)?.starts_with(VERSION) {
        return None;
    }
    if target_end.wrapping_sub(target_start) > limits.target_bytes_max {
        return None;
    }
    let mut storage = Storage::take();
    let fields_start = target_end.wrapping_add(VERSION.len());
    let Some((facts, used)) = plain_fields(window, fields_start, limits, &mut storage.fields)
    else {
        storage.recycle();
        return None;
    };
    storage.bytes.extend_from_slice(window.get(..used).unwrap_or_default());
    if !storage.keep_target(target_start, target_end) {
        storage.recycle();
        return None;
    }
    let target = TargetParts { path: Span::new(0, path_len), query, authority: None };
    storage.parts = HeadParts { method, version: Version::Http11, facts, target };
    storage.is_wire_format = false;
    Some((storage, used))
}

/// Returns the method and the position of the target, if the method is a common one and the target
/// is a path.
#[inline(always)]
fn plain_method(window: &[u8]) -> Option<(Method, usize)> {
    if window.starts_with(b"GET /") {
        return Some((Method::GET, 4));
    }
    if window.starts_with(b"POST /") {
        return Some((Method::POST, 5));
    }
    if window.starts_with(b"HEAD /") {
        return Some((Method::HEAD, 5));
    }
    if window.starts_with(b"PUT /") {
        return Some((Method::PUT, 4));
    }
    if window.starts_with(b"DELETE /") {
        return Some((Method::DELETE, 7));
    }
    if window.starts_with(b"PATCH /") {
        return Some((Method::PATCH, 6));
    }
    window.starts_with(b"OPTIONS /").then_some((Method::OPTIONS, 8))
}

/// Returns the facts that follow from the fields at `start`, and the end of the head, after the
/// empty line.
#[inline(always)]
fn plain_fields(
    window: &[u8],
    start: usize,
    limits: &Limits,
    fields: &mut Vec<Field>,
) -> Option<(Facts, usize)> {
    let fields_max = limits.fields_max.min(Limits::FIELDS_CAP);
    let mut facts = FieldFacts::default();
    let mut at = start;
    loop {
        let line = window.get(at..)?;
        if line.starts_with(b"\r\n") {
            let facts = facts.finish(Version::Http11, true).ok()?;
            return Some((facts, at.wrapping_add(2)));
        }
        let (name_len, value_len) = if begins_with_host(line) {
            facts.note_valid_host().ok()?;
            (4, plain_host_len(line.get(6..)?)?)
        } else {
            plain_field(window, at, line, &mut facts)?
        };
        if fields.len() == fields_max {
            return None;
        }
        let value_start = at.wrapping_add(name_len).wrapping_add(2);
        fields.push(Field {
            name: Span::new(at, name_len),
            value: Span::new(value_start, value_len),
        });
        at = value_start.wrapping_add(value_len).wrapping_add(2);
    }
}

/// Returns the length of a host and its optional port, or `None` if the line does not end after
/// them.
#[inline(always)]
fn plain_host_len(value: &[u8]) -> Option<usize> {
    let name_len = REG_NAME.span(value);
    let rest = value.get(name_len..)?;
    if name_len == 0 {
        return None;
    }
    if rest.starts_with(b"\r\n") {
        return Some(name_len);
    }
    let [b':', rest @ ..] = rest else { return None };
    let port_len = plain_port_len(rest)?;
    let rest = rest.get(port_len..)?;
    rest.starts_with(b"\r\n").then(|| name_len.wrapping_add(port_len).wrapping_add(1))
}

/// Returns the length of a port of at most five digits, if the port is in range.
#[inline(always)]
fn plain_port_len(bytes: &[u8]) -> Option<usize> {
    match digit_run_of_word(bytes) {
        len @ 1..PORT_BYTES_MAX => Some(len),
        PORT_BYTES_MAX if bytes.get(..PORT_BYTES_MAX)? <= PORT_MAX => Some(PORT_BYTES_MAX),
        _ => None,
    }
}

/// Records the field at `at` and returns the lengths of its name and its value.
#[inline(always)]
fn plain_field(
    window: &[u8],
    at: usize,
    line: &[u8],
    facts: &mut FieldFacts,
) -> Option<(usize, usize)> {
    let name_len = name_run(window, at);
    let (name, rest) = line.split_at_checked(name_len)?;
    let rest = rest.strip_prefix(b": ")?;
    let value_len = value_run(window, at.wrapping_add(name_len).wrapping_add(2));
    let (value, rest) = rest.split_at_checked(value_len)?;
    // The general parser removes whitespace around a value and refuses an empty name.
    if matches!(value, [] | [b' ', ..] | [.., b' '])
        || name.is_empty()
        || !rest.starts_with(b"\r\n")
    {
        return None;
    }
    facts.note(Version::Http11, name, value).ok()?;
    Some((name_len, value_len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::parse::parse_request_head;
    use crate::variations::{with_every_byte, with_every_piece};

    /// Heads of the kind that clients send.
    const PLAIN: &[&str] = &[
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /plaintext HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /a/b?c=d?e\\&f HTTP/1.1\r\nhost: example.org:8080\r\nUser-Agent: \
         curl/8.5.0\r\nAccept: */*\r\n\r\n",
        "POST /upload? HTTP/1.1\r\nHOST: 127.0.0.1:65535\r\nContent-Length: 17\r\nExpect: \
         100-continue\r\n\r\n",
        "PUT /%7Euser HTTP/1.1\r\nContent-Type: a/b; c=\"d\"\r\nTransfer-Encoding: \
         chunked\r\nHost: h\r\n\r\n",
        "HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: x\r\nX: \
         \u{e9}\u{fc}\r\n\r\n",
        "DELETE /users/17 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nCookie: a=b; c=d\r\n\r\n",
        "PATCH /users/17 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nX-Long: \
         0123456789abcdef0123456789\r\n\r\n",
        "OPTIONS /users HTTP/1.1\r\nHost: h\r\nOrigin: http://h\r\n\r\n",
    ];

    fn is_plain(input: &[u8]) -> bool {
        parse_plain_head(input, &Limits::default()).is_some_and(|(storage, used)| {
            storage.recycle();
            used == input.len()
        })
    }

    /// With debug assertions, parsing compares the two parsers.
    fn compare(input: &[u8], limits: &Limits) {
        let _ = parse_request_head(input, limits);
    }

    #[test]
    fn the_heads_of_common_clients_are_plain() {
        for head in PLAIN {
            assert!(is_plain(head.as_bytes()), "{head}");
        }
    }

    #[test]
    fn an_incomplete_head_is_not_accepted() {
        for head in PLAIN {
            for cut in 0..head.len() {
                assert!(!is_plain(&head.as_bytes()[..cut]), "{head} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_head_at_its_limits_is_plain_and_one_beyond_is_not() {
        for head in PLAIN {
            let target_len = head.split(' ').nth(1).unwrap().len();
            // Two lines are not fields: the request line and the empty line.
            let fields = head.matches("\r\n").count() - 2;
            let is_within = |target_bytes_max, fields_max| {
                let limits = Limits { target_bytes_max, fields_max, ..Limits::default() };
                parse_plain_head(head.as_bytes(), &limits).is_some()
            };
            assert!(is_within(target_len, fields), "{head}");
            assert!(!is_within(target_len - 1, fields), "{head}");
            assert!(!is_within(target_len, fields - 1), "{head}");
        }
    }

    #[test]
    fn both_parsers_agree_on_every_byte_at_every_position() {
        for head in PLAIN {
            with_every_byte(head, |bytes| compare(bytes, &Limits::default()));
        }
    }

    #[test]
    fn both_parsers_agree_on_missing_and_repeated_pieces() {
        for head in PLAIN {
            with_every_piece(head, |bytes| compare(bytes, &Limits::default()));
        }
    }

    #[test]
    fn both_parsers_agree_on_every_limit() {
        for head in PLAIN {
            for max in 0..=head.len() {
                let limits = Limits::default();
                compare(head.as_bytes(), &Limits { head_bytes_max: max, ..limits });
                compare(head.as_bytes(), &Limits { target_bytes_max: max, ..limits });
                compare(head.as_bytes(), &Limits { fields_max: max, ..limits });
            }
        }
    }
}
