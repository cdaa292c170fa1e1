//! The four forms of a request target, and the host that a request is for (RFC 9112 section 3.2).

use std::net::Ipv6Addr;

use http::Method;

use crate::error::ParseError;
use crate::fields::{Span, TargetParts};
use crate::syntax::{REG_NAME, TARGET_PATH};

/// Splits a target into its parts.
///
/// Refuses what two readers could interpret differently: controls, spaces, bytes outside of ASCII,
/// fragments, user information, and a backslash in the path (some readers treat it as a separator).
/// RFC 3986 also forbids `"<>^{|}` and the backtick, but browsers and scripts send them, and all
/// readers interpret them in the same way.
#[inline]
pub(crate) fn parse_target(method: &Method, target: &[u8]) -> Result<TargetParts, ParseError> {
    match target {
        [b'/', ..] if *method != Method::CONNECT => {
            let (path, query) = split_path(target, 0)?;
            Ok(TargetParts { path, query, authority: None })
        }
        _ => parse_rare_form(method, target),
    }
}

fn parse_rare_form(method: &Method, target: &[u8]) -> Result<TargetParts, ParseError> {
    if *method == Method::CONNECT {
        // The port is part of the form (RFC 9110 section 9.3.6).
        return match validate_host(target)? {
            Port::Number => {
                Ok(TargetParts { authority: Some(Span::new(0, target.len())), ..TargetParts::NONE })
            }
            Port::None | Port::Empty => Err(ParseError::TargetInvalid),
        };
    }
    if target == b"*" && *method == Method::OPTIONS {
        return Ok(TargetParts { path: Span::new(0, 1), ..TargetParts::NONE });
    }
    let scheme_len = [b"http://".as_slice(), b"https://"]
        .into_iter()
        .find(|scheme| {
            target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
        .map(<[u8]>::len)
        .ok_or(ParseError::TargetInvalid)?;
    let rest = target.get(scheme_len..).unwrap_or_default();
    let authority_len =
        rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at_checked(authority_len).unwrap_or_default();
    validate_host(authority)?;
    let tail_start = scheme_len.saturating_add(authority_len);
    let (path, query) = split_path(tail, tail_start)?;
    Ok(TargetParts { path, query, authority: Some(Span::new(scheme_len, authority_len)) })
}

/// A path and the query after it, if there is one.
type PathAndQuery = (Span, Option<Span>);

/// Returns the path and the query in `text`, which begins at offset `start` of the target.
#[inline]
fn split_path(text: &[u8], start: usize) -> Result<PathAndQuery, ParseError> {
    let at = TARGET_PATH.span(text);
    if at == text.len() {
        return Ok((Span::new(start, at), None));
    }
    let Some((b'?', query)) = text.get(at..).and_then(<[u8]>::split_first) else {
        return Err(ParseError::TargetInvalid);
    };
    if !query.iter().all(|&byte| byte == b'?' || byte == b'\\' || TARGET_PATH.has(byte)) {
        return Err(ParseError::TargetInvalid);
    }
    let query_start = start.saturating_add(at).saturating_add(1);
    Ok((Span::new(start, at), Some(Span::new(query_start, query.len()))))
}

/// The port after a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    None,
    /// A colon without a number, which RFC 3986 section 3.2.3 allows.
    Empty,
    Number,
}

/// Checks `uri-host [ ":" port ]` (RFC 9110 section 7.2, RFC 3986 section 3.2.2). The host may not
/// be empty.
#[inline]
pub(crate) fn validate_host(host: &[u8]) -> Result<Port, ParseError> {
    let name_len = REG_NAME.span(host);
    match host.split_at_checked(name_len) {
        Some(([_, ..], [])) => Ok(Port::None),
        Some(([_, ..], [b':', port @ ..])) => validate_port(port),
        _ => validate_rare_host(host),
    }
}

fn validate_rare_host(host: &[u8]) -> Result<Port, ParseError> {
    let rest = match host {
        [b'[', literal @ ..] => {
            let end =
                literal.iter().position(|&byte| byte == b']').ok_or(ParseError::HostInvalid)?;
            let (address, rest) = literal.split_at_checked(end).unwrap_or_default();
            if !is_ipv6(address) && !is_ip_future(address) {
                return Err(ParseError::HostInvalid);
            }
            rest.get(1..).unwrap_or_default()
        }
        _ => skip_encoded_name(host)?,
    };
    match rest {
        [] => Ok(Port::None),
        [b':', port @ ..] => validate_port(port),
        _ => Err(ParseError::HostInvalid),
    }
}

/// Returns the rest after a registered name that contains percent-encodings.
fn skip_encoded_name(host: &[u8]) -> Result<&[u8], ParseError> {
    let mut rest = host;
    loop {
        rest = match rest {
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [byte, rest @ ..] if REG_NAME.has(*byte) => rest,
            // An http URI with an empty host is invalid (RFC 9110 section 4.2.1).
            _ if rest.len() == host.len() => return Err(ParseError::HostInvalid),
            _ => return Ok(rest),
        }
    }
}

#[inline]
fn validate_port(port: &[u8]) -> Result<Port, ParseError> {
    if port.is_empty() {
        return Ok(Port::Empty);
    }
    // The check in each step finds a number that is too large before it can overflow.
    let mut number = 0u32;
    for &byte in port {
        let digit = u32::from(byte.wrapping_sub(b'0'));
        number = number.saturating_mul(10).saturating_add(digit);
        if digit > 9 || number > u32::from(u16::MAX) {
            return Err(ParseError::HostInvalid);
        }
    }
    Ok(Port::Number)
}

fn is_ipv6(address: &[u8]) -> bool {
    std::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// `"v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" )`
fn is_ip_future(address: &[u8]) -> bool {
    let Some((b'v' | b'V', rest)) = address.split_first() else {
        return false;
    };
    let mut parts = rest.splitn(2, |&byte| byte == b'.');
    let (Some(version), Some(text)) = (parts.next(), parts.next()) else {
        return false;
    };
    !version.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && !text.is_empty()
        && text.iter().all(|&byte| byte == b':' || REG_NAME.has(byte))
}
