//! Plain heads, as nearly every client sends them, in one pass.
//!
//! This pass refuses nothing: what it does not take, be it wrong, incomplete or just unusual, is
//! left to the careful way in [`parse`](crate::request::parse), which is the one that decides. So
//! there is no rule here to be kept up to date; it has to take only what the careful way takes, and
//! understand the same by it. Wherever there are debug assertions, as in tests and fuzz targets,
//! every head that is taken here is read in both ways and compared.
//!
//! It is here because a general parser has to be ready for everything at every byte, and a second
//! pass has to find again what the first one knew. For a short head both together were almost half
//! of the instructions of a request.

use http::Method;

use crate::fields::{Facts, Field, HeadParts, Span, Storage, TargetParts};
use crate::limits::Limits;
use crate::request::framing::FieldFacts;
use crate::scan::{begins_with_host, digit_run_of_word, name_run, path_run, query_run, value_run};
use crate::syntax::REG_NAME;
use crate::version::Version;

/// The longest port without zeros in front of it.
const PORT_BYTES_MAX: usize = PORT_MAX.len();

/// The highest port. Digits compare like the numbers that they write.
const PORT_MAX: &[u8] = b"65535";

/// What stands between the target and the fields.
const VERSION: &[u8] = b" HTTP/1.1\r\n";

/// Returns the head at the start of `window` and how many bytes it has, or `None` if it is not
/// plain or not whole.
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
        storage.give_back();
        return None;
    };
    storage.bytes.extend_from_slice(window.get(..used).unwrap_or_default());
    if !storage.keep_target(target_start, target_end) {
        storage.give_back();
        return None;
    }
    let target = TargetParts { path: Span::new(0, path_len), query, authority: None };
    storage.parts = HeadParts { method, version: Version::Http11, facts, target };
    storage.is_wire = false;
    Some((storage, used))
}

/// Returns a common method and where its target begins, if that is a path.
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

/// Returns what the fields from `start` say together, and where they end, behind the empty line.
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

/// Returns the length of a host, with its port if there is one, that ends its line.
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

/// Returns the length of a port of five digits at most, which is one that can be.
#[inline(always)]
fn plain_port_len(bytes: &[u8]) -> Option<usize> {
    match digit_run_of_word(bytes) {
        len @ 1..PORT_BYTES_MAX => Some(len),
        PORT_BYTES_MAX if bytes.get(..PORT_BYTES_MAX)? <= PORT_MAX => Some(PORT_BYTES_MAX),
        _ => None,
    }
}

/// Returns the lengths of the name and the value of the field at `at`, and takes note of it.
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
    // Whitespace around a value is to be removed, and a name has to have a length.
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

    /// What clients really send.
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
            storage.give_back();
            used == input.len()
        })
    }

    /// Parsing itself compares the two ways where there are debug assertions.
    fn compare(input: &[u8], limits: &Limits) {
        let _ = parse_request_head(input, limits);
    }

    #[test]
    fn what_clients_send_is_plain() {
        for head in PLAIN {
            assert!(is_plain(head.as_bytes()), "{head}");
        }
    }

    #[test]
    fn what_is_not_whole_is_left_alone() {
        for head in PLAIN {
            for cut in 0..head.len() {
                assert!(!is_plain(&head.as_bytes()[..cut]), "{head} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_just_fits_the_limits_is_plain() {
        for head in PLAIN {
            let target_len = head.split(' ').nth(1).unwrap().len();
            // Two lines are no fields: the first, and the empty one.
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
    fn every_byte_at_every_place_means_the_same_as_to_the_careful_way() {
        for head in PLAIN {
            with_every_byte(head, |bytes| compare(bytes, &Limits::default()));
        }
    }

    #[test]
    fn a_piece_that_is_missing_or_there_twice_means_the_same_as_to_the_careful_way() {
        for head in PLAIN {
            with_every_piece(head, |bytes| compare(bytes, &Limits::default()));
        }
    }

    #[test]
    fn every_limit_means_the_same_as_to_the_careful_way() {
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
