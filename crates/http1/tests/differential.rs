//! Compares the parser of request heads with httparse, and with a second implementation of the
//! rules.
//!
//! The library uses httparse for the tokens and refuses what httparse accepts but RFC 9112 forbids.
//! The intended differences are a list of rules, [`RULES`], which are implemented here in a
//! different way than in the library. The library must accept a head that httparse accepts exactly
//! if it breaks no rule, and then both results must agree.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod driver;

use std::net::Ipv6Addr;
use std::path::PathBuf;

use driver::corpus::read_corpus;
use filoplume_http1::{Limits, ParseError, parse_request_head};
use httparse::{EMPTY_HEADER, Header, Request, Status};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A head as httparse parses it.
struct Seen<'a> {
    /// The bytes of the head, with the empty lines before it.
    bytes: &'a [u8],
    method: &'a str,
    target: &'a str,
    is_http_1_1: bool,
    fields: &'a [Header<'a>],
}

impl<'a> Seen<'a> {
    fn values(&self, name: &str) -> Vec<&'a [u8]> {
        self.fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
            .collect()
    }
}

/// An intended difference: the error of the library for a head that httparse accepts, and the
/// condition.
type Rule = (ParseError, fn(&Seen<'_>) -> bool);

/// All intended differences except the limits.
const RULES: &[Rule] = &[
    // httparse accepts a bare LF as a line end, and skips any number of empty lines before a
    // request.
    (ParseError::LineEndInvalid, |seen| {
        let text: Vec<char> = seen.bytes.iter().copied().map(char::from).collect();
        let text: String = text.into_iter().collect();
        text.replace("\r\n", "").contains(['\r', '\n']) || text.starts_with("\r\n\r\n")
    }),
    // It does not limit the length of a method.
    (ParseError::MethodTooLong, |seen| seen.method.len() > 32),
    // It does not check targets: neither their bytes nor whether the method allows their form.
    (ParseError::TargetInvalid, |seen| target_error(seen) == Some(ParseError::TargetInvalid)),
    (ParseError::HostInvalid, |seen| target_error(seen) == Some(ParseError::HostInvalid)),
    // It does not interpret fields. Rules for `Host`:
    (ParseError::HostMissing, |seen| seen.is_http_1_1 && seen.values("host").is_empty()),
    (ParseError::HostRepeated, |seen| seen.values("host").len() > 1),
    (ParseError::HostInvalid, |seen| {
        seen.values("host").iter().any(|host| !host.is_empty() && port_of(host).is_none())
    }),
    // Rules for lengths:
    (ParseError::LengthRepeated, |seen| seen.values("content-length").len() > 1),
    (ParseError::LengthInvalid, |seen| {
        let is_number = |value: &&[u8]| {
            let text = std::str::from_utf8(value).unwrap_or("?");
            text.parse::<u64>().is_ok() && !text.starts_with('+')
        };
        !seen.values("content-length").iter().all(is_number)
    }),
    // Rules for codings:
    (ParseError::CodingInHttp10, |seen| {
        !seen.is_http_1_1 && !seen.values("transfer-encoding").is_empty()
    }),
    (ParseError::CodingUnsupported, |seen| {
        seen.values("transfer-encoding").iter().any(|value| names_another_coding(value))
    }),
    (ParseError::CodingInvalid, |seen| {
        let values = seen.values("transfer-encoding");
        let is_chunked = |value: &&[u8]| value.eq_ignore_ascii_case(b"chunked");
        values.len() > 1
            || !values.iter().all(|value| is_chunked(value) || names_another_coding(value))
    }),
    (ParseError::AmbiguousLength, |seen| {
        !seen.values("transfer-encoding").is_empty() && !seen.values("content-length").is_empty()
    }),
    // The rule for expectations:
    (ParseError::ExpectationUnknown, |seen| {
        seen.is_http_1_1
            && seen
                .values("expect")
                .iter()
                .any(|value| !value.eq_ignore_ascii_case(b"100-continue"))
    }),
];

/// Returns whether the value is a list of tokens that ends in its only `chunked` and has another
/// coding before it.
fn names_another_coding(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value).to_ascii_lowercase();
    let codings: Vec<&str> =
        text.split(',').map(|coding| coding.trim_matches([' ', '\t'])).collect();
    let is_token = |coding: &&str| {
        !coding.is_empty()
            && coding.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
    };
    codings.len() > 1
        && codings.iter().all(is_token)
        && codings.iter().position(|&coding| coding == "chunked") == Some(codings.len() - 1)
}

/// Returns the error of a target, if there is one.
fn target_error(seen: &Seen<'_>) -> Option<ParseError> {
    if seen.method == "CONNECT" {
        return match port_of(seen.target.as_bytes()) {
            None => Some(ParseError::HostInvalid),
            Some("") => Some(ParseError::TargetInvalid),
            Some(_) => None,
        };
    }
    if seen.method == "OPTIONS" && seen.target == "*" {
        return None;
    }
    let lower = seen.target.to_ascii_lowercase();
    let authority_at = ["http://", "https://"].iter().find(|scheme| lower.starts_with(*scheme));
    let path_and_query = match authority_at {
        Some(scheme) => {
            let rest = &seen.target[scheme.len()..];
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            if port_of(&rest.as_bytes()[..end]).is_none() {
                return Some(ParseError::HostInvalid);
            }
            &rest[end..]
        }
        None if seen.target.starts_with('/') => seen.target,
        None => return Some(ParseError::TargetInvalid),
    };
    let path = path_and_query.split('?').next().unwrap_or_default();
    let is_good =
        path_and_query.chars().all(|c| c.is_ascii_graphic() && c != '#') && !path.contains('\\');
    (!is_good).then_some(ParseError::TargetInvalid)
}

/// Returns the port after a host, empty if there is none, or `None` if the host is invalid.
fn port_of(host: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(host).ok()?;
    let name_end = match host.strip_prefix('[') {
        Some(literal) => {
            let address = literal.split(']').next()?;
            let is_future = || {
                let (version, rest) = address.strip_prefix(['v', 'V'])?.split_once('.')?;
                let is_good = !version.is_empty()
                    && version.chars().all(|c| c.is_ascii_hexdigit())
                    && !rest.is_empty()
                    && rest.chars().all(|c| c == ':' || is_name_char(c));
                is_good.then_some(())
            };
            if address.parse::<Ipv6Addr>().is_err() && is_future().is_none() {
                return None;
            }
            // The closing bracket must be present.
            if literal.len() == address.len() {
                return None;
            }
            address.len() + 2
        }
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, rest) = host.split_at(name_end);
    if name.is_empty() || (!name.starts_with('[') && !is_reg_name(name)) {
        return None;
    }
    let Some(port) = rest.strip_prefix(':') else {
        return rest.is_empty().then_some("");
    };
    let number = port.trim_start_matches('0');
    let is_port = port.chars().all(|c| c.is_ascii_digit())
        && number.len() <= 5
        && number.parse::<u32>().unwrap_or(0) < 65_536;
    is_port.then_some(port)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(c)
}

fn is_reg_name(name: &str) -> bool {
    let mut pieces = name.split('%');
    let is_plain = |text: &str| text.chars().all(is_name_char);
    pieces.next().is_some_and(is_plain)
        && pieces.all(|piece| {
            piece.split_at_checked(2).is_some_and(|(hex, rest)| {
                hex.chars().all(|c| c.is_ascii_hexdigit()) && is_plain(rest)
            })
        })
}

/// Compares both parsers at the start of `input`. Returns why the library refuses a head that
/// httparse accepts.
fn compare(input: &[u8]) -> Option<ParseError> {
    let limits = Limits::default();
    let ours = parse_request_head(input, &limits);
    let mut fields = [EMPTY_HEADER; Limits::FIELDS_MAX];
    let mut request = Request::new(&mut fields);
    let theirs = request.parse(input);
    let shown = input.escape_ascii();
    match (theirs, ours) {
        (Ok(Status::Complete(used)), ours) => {
            let seen = Seen {
                bytes: &input[..used],
                method: request.method.unwrap(),
                target: request.path.unwrap(),
                is_http_1_1: request.version == Some(1),
                fields: request.headers,
            };
            let broken: Vec<ParseError> = RULES
                .iter()
                .filter(|(_, is_broken)| is_broken(&seen))
                .map(|(error, _)| *error)
                .collect();
            match ours {
                Ok(Some((head, our_used))) => {
                    assert!(broken.is_empty(), "taken, and {broken:?}: {shown}");
                    assert_eq!(our_used, used, "{shown}");
                    assert_eq!((head.method().as_str(), head.target()), (seen.method, seen.target));
                    let of_ours: Vec<(&str, &[u8])> = head.headers().iter().collect();
                    let of_theirs: Vec<(&str, &[u8])> =
                        seen.fields.iter().map(|field| (field.name, field.value)).collect();
                    assert_eq!(of_ours, of_theirs, "{shown}");
                }
                Ok(None) => panic!("more is waited for: {shown}"),
                Err(error) => {
                    assert!(broken.contains(&error), "{error:?}, and not {broken:?}: {shown}");
                    return Some(error);
                }
            }
        }
        (Ok(Status::Partial), Ok(None)) => {}
        // Empty lines and LF before a request are refused as soon as they are read, and so are
        // heads that exceed a limit.
        (Ok(Status::Partial), Err(ParseError::LineEndInvalid)) => {
            assert!(
                input.starts_with(b"\n")
                    || input.starts_with(b"\r\n\r")
                    || input.starts_with(b"\r\n\n")
            );
        }
        (Ok(Status::Partial), Err(ParseError::HeadTooLong)) => {
            assert!(input.len() >= limits.head_bytes_max);
        }
        (Ok(Status::Partial), ours) => panic!("{ours:?}, not more: {shown}"),
        // A version that may still become a well-formed, unsupported one needs more bytes.
        (Err(httparse::Error::Version), Ok(None)) => {
            let version = input.rsplit(|&byte| byte == b' ').next().unwrap();
            assert!(version.len() < 8 && version.starts_with(b"HTTP/"), "{shown}");
        }
        (Err(error), Ok(ours)) => panic!("{error:?}, and not {ours:?}: {shown}"),
        (Err(_), Err(_)) => {}
    }
    None
}

fn corpus() -> Vec<Vec<u8>> {
    let folder: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "corpus"].iter().collect();
    read_corpus(&folder).into_iter().map(|case| case.input).collect()
}

#[test]
fn the_corpus_is_parsed_as_by_httparse_except_for_the_rules() {
    for input in corpus() {
        for end in 0..=input.len() {
            compare(&input[..end]);
        }
    }
}

#[test]
fn each_rule_has_cases() {
    let met: Vec<ParseError> = corpus().iter().filter_map(|input| compare(input)).collect();
    for (error, _) in RULES {
        assert!(met.contains(error), "no case of the corpus is refused for {error:?} only by us");
    }
}

/// Removes, inserts and changes one byte at every position of every short case.
#[test]
fn changed_cases_are_parsed_as_by_httparse_except_for_the_rules() {
    for input in corpus().into_iter().filter(|input| input.len() < 90) {
        for at in 0..input.len() {
            let (before, behind) = input.split_at(at);
            compare(&[before, &behind[1..]].concat());
            for byte in [b"\r", b"\n", b" ", b":", b"\xff"] {
                compare(&[before, byte, behind].concat());
                compare(&[before, byte, &behind[1..]].concat());
            }
        }
    }
}

/// Mostly valid parts, so that all parts of a head are reached.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        4 => select(vec!["GET", "POST", "HEAD", "OPTIONS", "CONNECT", "get"])
            .prop_map(str::to_owned),
        1 => "[!-~]{0,40}",
    ];
    let host = prop_oneof![
        2 => Just("h".to_owned()),
        2 => "[a-z0-9.%:\\[\\]@_-]{0,12}",
        1 => "\\[[0-9a-f:.v]{0,20}\\](:[0-9]{0,7})?",
        1 => "[a-z]{1,3}:[0-9]{0,7}",
    ];
    let target = prop_oneof![
        4 => "/[a-z0-9?/%.]{0,20}",
        2 => "/[ -~]{0,12}",
        1 => Just("*".to_owned()),
        2 => (
            select(vec!["http://", "HTTPS://", "ftp://", "http:/"]),
            host.clone(),
            "[/?#][ -~]{0,6}|",
        )
            .prop_map(|(scheme, host, rest)| format!("{scheme}{host}{rest}")),
        2 => host.clone(),
    ];
    let version = prop_oneof![
        8 => select(vec!["HTTP/1.1", "HTTP/1.0"]).prop_map(str::to_owned),
        1 => "HTTP/[0-9]\\.[0-9]",
        1 => "[HTP/.0-9]{0,9}",
    ];
    let field = prop_oneof![
        4 => host.prop_map(|host| format!("Host: {host}")),
        2 => "Content-Length: (0|3|[0-9]{1,22}|[0-9+, x]{0,5})",
        2 => "Transfer-Encoding: (chunked|gzip, chunked|[a-z, ]{0,20})",
        1 => "Expect: (100-continue|[a-z0-9-]{0,12})",
        1 => "Connection: (close|keep-alive|upgrade|[a-z, ]{0,12})",
        2 => "[A-Za-z-]{1,8}: ?[ -~\\t]{0,12}",
        1 => "[ -~\\t]{0,12}",
    ];
    let end = prop_oneof![30 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r")];
    (method, target, version, vec((field, end.clone()), 0..6), end.clone(), end).prop_map(
        |(method, target, version, fields, line_end, head_end)| {
            let mut head = format!("{method} {target} {version}{line_end}");
            for (field, end) in fields {
                head.push_str(&field);
                head.push_str(end);
            }
            head.push_str(head_end);
            head.into_bytes()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn a_generated_head_is_parsed_as_by_httparse_except_for_the_rules(
        head in head(),
        end in any::<Index>(),
    ) {
        compare(&head);
        compare(&head[..end.index(head.len() + 1)]);
    }

    #[test]
    fn a_damaged_head_is_parsed_as_by_httparse_except_for_the_rules(
        mut head in head(),
        places in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        for (place, byte) in places {
            let place = place.index(head.len());
            head[place] = byte;
        }
        compare(&head);
    }
}
