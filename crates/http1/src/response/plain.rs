//! Plain response heads, as nearly every server sends them, in one pass.
//!
//! As for requests in `request::plain`: this pass refuses nothing. What it does not take, be it
//! wrong, incomplete or just unusual, is left to the careful way in
//! [`parse`](crate::response::parse), which is the one that decides; what it takes has to mean the
//! same to that one. Wherever there are debug assertions both are compared.
//!
//! It is here for load generators, which have to be cheaper than what they measure. A head is not
//! taken apart: of its fields only those are looked at that say where the message ends, and of the
//! others only that they are well-formed.

use http::{Method, StatusCode};

use crate::limits::Limits;
use crate::response::framing::FieldFacts;
use crate::response::head::ResponseHead;
use crate::scan::{Start, first_word, letter_run, name_run, printable_run};
use crate::version::Version;

/// The status line that is by far the most common.
const OK_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";

// Names that nearly every answer has: to compare them as words costs less than to find their ends.
// The second words follow `content-`.
const CONTENT: Start = Start::new(b"content-");
const LENGTH: Start = Start::new(b"length: ");
const TYPE: Start = Start::new(b"type:\0\0\0");
const DATE: Start = Start::new(b"date: \0\0");
const SERVER: Start = Start::new(b"server: ");
const CONNECTION: Start = Start::new(b"connecti");

/// What is usual behind the start of `Connection`.
const KEEP_ALIVE: &[u8] = b"on: keep-alive\r\n";

/// `date: `, a date as all are written, and the end of the line.
const DATE_LINE_BYTES: usize = 37;

/// More digits could be more than a length has bits for.
const DIGITS_MAX: usize = 19;

/// Returns the head at the start of `window` and how many bytes it has, or `None` if it is not
/// plain or not whole.
#[inline]
pub(crate) fn parse_plain_response_head<'a>(
    window: &'a [u8],
    method: &Method,
    limits: &Limits,
) -> Option<(ResponseHead<'a>, usize)> {
    let (status, fields) = plain_status_line(window)?;
    let (facts, behind) = plain_fields(fields, limits)?;
    let used = window.len().wrapping_sub(behind.len());
    let head =
        ResponseHead::from_facts(Version::Http11, status, &facts, method, window.get(..used)?)
            .ok()?;
    Some((head, used))
}

/// Returns the status and what is behind its line.
#[inline(always)]
fn plain_status_line(window: &[u8]) -> Option<(StatusCode, &[u8])> {
    if let Some(fields) = window.strip_prefix(OK_LINE) {
        return Some((StatusCode::OK, fields));
    }
    let (code, rest) = window.strip_prefix(b"HTTP/1.1 ")?.split_at_checked(3)?;
    let status = StatusCode::from_bytes(code).ok()?;
    let reason = rest.strip_prefix(b" ")?;
    Some((status, behind_line(reason, printable_run(reason))?))
}

/// Returns what the fields say together, and what is behind them and the empty line.
#[inline(always)]
fn plain_fields<'a>(fields: &'a [u8], limits: &Limits) -> Option<(FieldFacts, &'a [u8])> {
    let mut fields_left = limits.fields_max.min(Limits::FIELDS_CAP);
    let mut facts = FieldFacts::default();
    let mut rest = fields;
    loop {
        if let Some(behind) = rest.strip_prefix(b"\r\n") {
            return Some((facts, behind));
        }
        fields_left = fields_left.checked_sub(1)?;
        rest = plain_field(rest, &mut facts)?;
    }
}

/// Takes note of the field at the start of `line`, and returns what is behind it.
#[inline(always)]
fn plain_field<'a>(line: &'a [u8], facts: &mut FieldFacts) -> Option<&'a [u8]> {
    let (first, behind_first) = line.split_first_chunk()?;
    let first = u64::from_le_bytes(*first);
    if CONTENT.begins(first) {
        let second = first_word(behind_first);
        if LENGTH.begins(second) {
            return plain_length(behind_first.get(8..)?, facts);
        }
        if TYPE.begins(second) {
            return behind_value(behind_first.get(5..)?);
        }
    } else if DATE.begins(first) {
        if let Some(behind) = behind_date(line) {
            return Some(behind);
        }
    } else if SERVER.begins(first) {
        return behind_value(behind_first);
    } else if CONNECTION.begins(first) {
        // In HTTP/1.1 it says nothing.
        if let Some(behind) = behind_first.strip_prefix(KEEP_ALIVE) {
            return Some(behind);
        }
    }
    plain_field_of_any_name(line, facts)
}

/// Takes note of a length, and returns what is behind its line.
#[inline(always)]
fn plain_length<'a>(value: &'a [u8], facts: &mut FieldFacts) -> Option<&'a [u8]> {
    let mut length: u64 = 0;
    let mut rest = value;
    while let [digit @ b'0'..=b'9', behind @ ..] = rest {
        length = length.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')));
        rest = behind;
    }
    let digits = value.len().wrapping_sub(rest.len());
    if !(1..=DIGITS_MAX).contains(&digits) {
        return None;
    }
    facts.note_length(Some(length)).ok()?;
    rest.strip_prefix(b"\r\n")
}

/// Returns what is behind a line with a date of the usual length. It may say anything: nobody asks
/// for it here.
#[inline(always)]
fn behind_date(line: &[u8]) -> Option<&[u8]> {
    let (line, behind) = line.split_first_chunk::<DATE_LINE_BYTES>()?;
    let value = line.strip_suffix(b"\r\n")?.get(6..)?;
    value.iter().fold(true, |all, &byte| all & matches!(byte, b' '..=b'~')).then_some(behind)
}

/// Takes note of any field, and returns what is behind its line.
#[inline(always)]
fn plain_field_of_any_name<'a>(line: &'a [u8], facts: &mut FieldFacts) -> Option<&'a [u8]> {
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
    // There may be whitespace around the value of a field that nobody asks for.
    if FieldFacts::may_matter(name_len) {
        note_plain(name, value.get(..value_len)?, facts)?;
    }
    behind_line(value, value_len)
}

fn note_plain(name: &[u8], value: &[u8], facts: &mut FieldFacts) -> Option<()> {
    let value = value.strip_prefix(b" ")?;
    if matches!(value, [] | [b' ', ..] | [.., b' ']) {
        return None;
    }
    facts.note(Version::Http11, name, value).ok()
}

#[inline(always)]
fn behind_value(value: &[u8]) -> Option<&[u8]> {
    behind_line(value, printable_run(value))
}

/// Returns what is behind a line that ends at `end`.
#[inline(always)]
fn behind_line(line: &[u8], end: usize) -> Option<&[u8]> {
    line.get(end..)?.strip_prefix(b"\r\n")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::response::parse::parse_carefully;
    use crate::variations::{with_every_byte, with_every_piece};

    /// What servers really send.
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

    /// What is plain has to mean the same to the careful way.
    #[track_caller]
    fn compare(input: &[u8], limits: &Limits) {
        let window = input.get(..limits.head_bytes_max).unwrap_or(input);
        for method in METHODS {
            let Some((head, used)) = parse_plain_response_head(window, &method, limits) else {
                continue;
            };
            let careful = parse_carefully(window, &method, limits);
            assert!(
                matches!(careful, Ok(Some((other, end))) if head.is_same(&other) && used == end),
                "{head:?} and {careful:?}: {}",
                input.escape_ascii()
            );
        }
    }

    #[test]
    fn what_servers_send_is_plain() {
        for head in PLAIN {
            assert!(is_plain(head.as_bytes()), "{head}");
        }
    }

    #[test]
    fn what_is_not_whole_is_left_alone() {
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
                compare(head.as_bytes(), &Limits { fields_max: max, ..limits });
            }
        }
    }

    /// Lines that are nearly all right, put together in any order, with a few bytes changed.
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
            .prop_map(|(status, fields, behind, changes)| {
                let mut bytes = format!("{status}\r\n{}\r\n{behind}", fields.concat()).into_bytes();
                for (place, byte) in changes {
                    *place.get_mut(&mut bytes) = byte;
                }
                bytes
            })
    }

    proptest! {
        #[test]
        fn what_is_nearly_plain_means_the_same_as_to_the_careful_way(input in nearly_plain()) {
            for end in 0..=input.len() {
                compare(&input[..end], &Limits::default());
            }
        }
    }
}
