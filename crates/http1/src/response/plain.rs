//! The fast path: parses plain response heads, which nearly every server sends, in one pass.
//!
//! As for requests in `request::plain`, the fast path never refuses a response. If a head is
//! malformed, incomplete or only unusual, it returns `None`, and the general parser in
//! [`parse`](crate::response::parse) decides. A head that is accepted here must give the same
//! result in the general parser. With debug assertions, the results of both parsers are compared.
//!
//! The fast path exists for load generators, which have to be cheaper than the servers that they
//! measure. It interprets only the fields that determine the end of the message. For other fields
//! it checks only that they are well-formed.

use http::{Method, StatusCode};

use crate::limits::Limits;
use crate::response::framing::FieldFacts;
use crate::response::head::ResponseHead;
use crate::scan::{Prefix, first_word, letter_run, name_run, printable_run};
use crate::version::Version;

/// By far the most common status line.
const OK_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";

// Prefixes of the field lines that nearly every response has. Comparing them as words costs less
// than finding the ends of the names. `LENGTH` and `TYPE` follow `CONTENT`.
const CONTENT: Prefix = Prefix::new(b"content-");
const LENGTH: Prefix = Prefix::new(b"length: ");
const TYPE: Prefix = Prefix::new(b"type:\0\0\0");
const DATE: Prefix = Prefix::new(b"date: \0\0");
const SERVER: Prefix = Prefix::new(b"server: ");
const CONNECTION: Prefix = Prefix::new(b"connecti");

/// The usual rest of the line after `CONNECTION`.
const KEEP_ALIVE: &[u8] = b"on: keep-alive\r\n";

/// The length of a line with `date: `, a date in the usual format, and the line end.
const DATE_LINE_BYTES: usize = 37;

/// A number with more digits may not fit in 64 bits.
const DIGITS_MAX: usize = 19;

/// Returns the head at the start of `window` and its length, or `None` if it is not plain or not
/// complete.
#[inline]
pub(crate) fn parse_plain_response_head<'a>(
    window: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Option<(ResponseHead<'a>, usize)> {
    let (status, fields) = plain_status_line(window)?;
    let (facts, tail) = plain_fields(fields, limits)?;
    let used = window.len().wrapping_sub(tail.len());
    let head =
        ResponseHead::from_facts(Version::Http11, status, &facts, method, window.get(..used)?)
            .ok()?;
    Some((head, used))
}

/// Returns the status and the rest after the status line.
#[inline(always)]
fn plain_status_line(window: &[u8]) -> Option<(StatusCode, &[u8])> {
    if let Some(fields) = window.strip_prefix(OK_LINE) {
        return Some((StatusCode::OK, fields));
    }
    let (code, rest) = window.strip_prefix(b"HTTP/1.1 ")?.split_at_checked(3)?;
    let status = StatusCode::from_bytes(code).ok()?;
    let reason = rest.strip_prefix(b" ")?;
    Some((status, after_line(reason, printable_run(reason))?))
}

/// Returns the facts that follow from the fields, and the rest after the empty line.
#[inline(always)]
fn plain_fields<'a>(fields: &'a [u8], limits: &Limits) -> Option<(FieldFacts, &'a [u8])> {
    let mut fields_left = limits.fields_max.min(Limits::FIELDS_CAP);
    let mut facts = FieldFacts::default();
    let mut rest = fields;
    loop {
        if let Some(tail) = rest.strip_prefix(b"\r\n") {
            return Some((facts, tail));
        }
        fields_left = fields_left.checked_sub(1)?;
        rest = plain_field(rest, &mut facts)?;
    }
}

/// Records the field at the start of `line`, and returns the rest after its line.
#[inline(always)]
fn plain_field<'a>(line: &'a [u8], facts: &mut FieldFacts) -> Option<&'a [u8]> {
    let (first, after_first) = line.split_first_chunk()?;
    let first = u64::from_le_bytes(*first);
    if CONTENT.matches(first) {
        let second = first_word(after_first);
        if LENGTH.matches(second) {
            return plain_length(after_first.get(8..)?, facts);
        }
        if TYPE.matches(second) {
            return after_value(after_first.get(5..)?);
        }
    } else if DATE.matches(first) {
        if let Some(tail) = after_date(line) {
            return Some(tail);
        }
    } else if SERVER.matches(first) {
        return after_value(after_first);
    } else if CONNECTION.matches(first) {
        // In HTTP/1.1 this option has no effect.
        if let Some(tail) = after_first.strip_prefix(KEEP_ALIVE) {
            return Some(tail);
        }
    }
    other_plain_field(line, facts)
}

/// Records a content length, and returns the rest after its line.
#[inline(always)]
fn plain_length<'a>(value: &'a [u8], facts: &mut FieldFacts) -> Option<&'a [u8]> {
    let mut length: u64 = 0;
    let mut rest = value;
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        length = length.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')));
        rest = tail;
    }
    let digits = value.len().wrapping_sub(rest.len());
    if !(1..=DIGITS_MAX).contains(&digits) {
        return None;
    }
    facts.note_length(Some(length)).ok()?;
    rest.strip_prefix(b"\r\n")
}

/// Returns the rest after a line with a date of the usual length. The date itself is not checked,
/// because it is not used.
#[inline(always)]
fn after_date(line: &[u8]) -> Option<&[u8]> {
    let (line, tail) = line.split_first_chunk::<DATE_LINE_BYTES>()?;
    let value = line.strip_suffix(b"\r\n")?.get(6..)?;
    value.iter().fold(true, |all, &byte| all & matches!(byte, b' '..=b'~')).then_some(tail)
}

/// Records a field of any name, and returns the rest after its line.
#[inline(always)]
fn other_plain_field<'a>(line: &'a [u8], facts: &mut FieldFacts) -> Option<&'a [u8]> {
    let mut name_len = letter_run(line);
    if line.get(name_len) != Some(&b':') {
        name_len = name_run(line, 0);
    }
    let (name, rest) = line.split_at_checked(name_len)?;
    let value = rest.strip_prefix(b":")?;
    let value_len = printable_run(value);
    if name.is_empty() {
        return None;
    }
    // Other fields may have whitespace around the value, because the value is not used.
    if FieldFacts::may_matter(name_len) {
        note_plain(name, value.get(..value_len)?, facts)?;
    }
    after_line(value, value_len)
}

fn note_plain(name: &[u8], value: &[u8], facts: &mut FieldFacts) -> Option<()> {
    let value = value.strip_prefix(b" ")?;
    if matches!(value, [] | [b' ', ..] | [.., b' ']) {
        return None;
    }
    facts.note(Version::Http11, name, value).ok()
}

#[inline(always)]
fn after_value(value: &[u8]) -> Option<&[u8]> {
    after_line(value, printable_run(value))
}

/// Returns the rest after a line that ends at `end`.
#[inline(always)]
fn after_line(line: &[u8], end: usize) -> Option<&[u8]> {
    line.get(end..)?.strip_prefix(b"\r\n")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::response::parse::parse_general;
    use crate::variations::{with_every_byte, with_every_piece};

    /// Heads of the kind that servers send.
    const PLAIN: &[&str] = &[
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\nDate: Thu, 01 Jan \
         1970 00:00:00 GMT\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nserver: nginx/1.22.1\r\ndate: today\r\nConnection: \
         keep-alive\r\nX-1: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCONNECTION: \
         close\r\nX-Empty:\r\nX-Long: 0123456789abcdef\r\n\r\n",
        "HTTP/1.1 304 \r\nContent-Encoding: gzip\r\nETag:\"a\" \r\nconnection: \
         Keep-Alive\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ];

    const METHODS: [Method; 3] = [Method::GET, Method::HEAD, Method::CONNECT];

    fn is_plain(input: &[u8]) -> bool {
        let parsed = parse_plain_response_head(input, &Method::GET, &Limits::default());
        parsed.is_some_and(|(_, used)| used == input.len())
    }

    /// Checks that the general parser gives the same result for a plain head.
    #[track_caller]
    fn compare(input: &[u8], limits: &Limits) {
        let window = input.get(..limits.head_bytes_max).unwrap_or(input);
        for method in METHODS {
            let Some((head, used)) = parse_plain_response_head(window, &method, limits) else {
                continue;
            };
            let general = parse_general(window, &method, limits);
            assert!(
                matches!(general, Ok(Some((other, end))) if head.is_same(&other) && used == end),
                "{head:?} and {general:?}: {}",
                input.escape_ascii()
            );
        }
    }

    #[test]
    fn the_heads_of_common_servers_are_plain() {
        for head in PLAIN {
            assert!(is_plain(head.as_bytes()), "{head}");
        }
    }

    #[test]
    fn an_incomplete_head_is_not_accepted() {
        for head in PLAIN {
            for cut in 0..head.len() {
                assert!(!is_plain(&head.as_bytes()[..cut]), "{head} cut at {cut}");
                compare(&head.as_bytes()[..cut], &Limits::default());
            }
        }
    }

    #[test]
    fn a_length_is_plain_up_to_nineteen_digits() {
        for (digits, plain) in [
            ("0", true),
            ("9999999999999999999", true),
            ("10000000000000000000", false),
            ("", false),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {digits}\r\n\r\n");
            assert_eq!(is_plain(head.as_bytes()), plain, "{digits}");
            compare(head.as_bytes(), &Limits::default());
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
                compare(head.as_bytes(), &Limits { fields_max: max, ..limits });
            }
        }
    }

    /// Mostly valid lines in any order, with a few bytes changed.
    fn nearly_plain() -> impl Strategy<Value = Vec<u8>> {
        let status = select(vec![
            "HTTP/1.1 200 OK",
            "HTTP/1.1 204 No Content",
            "HTTP/1.1 099 x",
            "HTTP/1.0 200 OK",
            "HTTP/1.1 200",
        ]);
        let name = select(vec![
            "content-length",
            "Content-Type",
            "transfer-encoding",
            "Connection",
            "Date",
            "Server",
            "server",
            "X-1",
            "a_b",
            "ten-digits",
            "",
        ]);
        let value = prop_oneof![
            select(vec![
                "0",
                "12",
                "chunked",
                "close",
                "keep-alive",
                "a, close",
                "Thu, 01 Jan 1970 00:00:00 GMT",
                "",
                " x "
            ])
            .prop_map(str::to_owned),
            "[ -~\t\u{e9}]{0,40}",
        ];
        let field = (
            name,
            select(vec![": ", ":", " : ", ":\t"]),
            value,
            select(vec!["\r\n", "\r\n", "\r\n", "\n"]),
        )
            .prop_map(|(name, colon, value, end)| format!("{name}{colon}{value}{end}"));
        let changes = vec((any::<Index>(), any::<u8>()), 0..3);
        (status, vec(field, 0..6), select(vec!["", "Hello", "HTTP/1.1 200 OK\r\n\r\n"]), changes)
            .prop_map(|(status, fields, tail, changes)| {
                let mut bytes = format!("{status}\r\n{}\r\n{tail}", fields.concat()).into_bytes();
                for (place, byte) in changes {
                    *place.get_mut(&mut bytes) = byte;
                }
                bytes
            })
    }

    proptest! {
        #[test]
        fn both_parsers_agree_on_nearly_plain_heads(input in nearly_plain()) {
            for end in 0..=input.len() {
                compare(&input[..end], &Limits::default());
            }
        }
    }
}
