//! Parses responses strictly: a test client should not tolerate invalid HTTP (RFC 9112).
//!
//! Heads are not parsed by `filoplume_http1::parse_response_head`, which accepts what real servers
//! send and clients can read anyway, such as a `204` with a `Content-Length`.

use filoplume_http1::{ContentDecoder, Framing, Limits};
use filoplume_runtime::{Headers, Method, StatusCode};

/// A parsed response.
#[derive(Debug)]
pub(super) struct ParsedResponse {
    pub(super) status: StatusCode,
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
}

/// Parses the response to one request.
///
/// # Errors
///
/// A description of what is wrong with it.
pub(super) fn parse(bytes: &[u8], method: &Method) -> Result<ParsedResponse, String> {
    let mut rest = bytes;
    loop {
        let (version, status, headers, after) = parse_head(rest)?;
        rest = after;
        // Interim responses such as `100 Continue` precede the response. After a `101` another
        // protocol follows.
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            continue;
        }
        let body = parse_content(rest, version, status, &headers, method)?;
        return Ok(ParsedResponse { status, headers, body });
    }
}

type Head<'a> = (u8, StatusCode, Headers, &'a [u8]);

/// `HTTP/1.x SP 3DIGIT SP [reason] CRLF *(field CRLF) CRLF`
fn parse_head(bytes: &[u8]) -> Result<Head<'_>, String> {
    if bytes.is_empty() {
        return Err("there is no response".to_owned());
    }
    let end =
        bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or("the head has no end")?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "the head is not UTF-8")?;
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let (version, rest) = match line.split_at_checked(9) {
        Some(("HTTP/1.1 ", rest)) => (1, rest),
        Some(("HTTP/1.0 ", rest)) => (0, rest),
        _ => return Err(format!("the status line {line:?} does not begin with a version")),
    };
    let status = rest.get(..3).filter(|code| code.bytes().all(|byte| byte.is_ascii_digit()));
    let status = status.and_then(|code| code.parse().ok()).filter(|_| rest[3..].starts_with(' '));
    let status = status.ok_or_else(|| format!("the status line {line:?} has no status"))?;
    let mut headers = Headers::new();
    for line in lines {
        let (name, value) =
            line.split_once(':').ok_or_else(|| format!("the header {line:?} has no colon"))?;
        // This checks that names are tokens, and that values have no control characters.
        headers
            .append(name, value.trim_matches([' ', '\t']))
            .map_err(|error| format!("the header {line:?} is invalid: {error}"))?;
    }
    Ok((version, status, headers, &bytes[end + 4..]))
}

/// Returns the content, which must end where the input ends (RFC 9112, 6.3).
fn parse_content(
    bytes: &[u8],
    version: u8,
    status: StatusCode,
    headers: &Headers,
    method: &Method,
) -> Result<Vec<u8>, String> {
    let lengths: Vec<&[u8]> = headers.get_all("content-length").collect();
    let codings: Vec<&[u8]> = headers.get_all("transfer-encoding").collect();
    let has_framing = !lengths.is_empty() || !codings.is_empty();
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::SWITCHING_PROTOCOLS) && has_framing {
        return Err(format!("a {} must not have framing headers (RFC 9110, 8.6)", status.as_u16()));
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(bytes.to_vec());
    }
    let has_content = *method != Method::HEAD
        && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framing = match (lengths.as_slice(), codings.as_slice()) {
        (&[length], []) => Framing::Length(parse_length(length)?),
        ([], &[b"chunked"]) if version == 1 => Framing::Chunked,
        ([], []) if has_content => {
            let is_last =
                headers.get_all("connection").any(|value| value.eq_ignore_ascii_case(b"close"));
            if version == 1 && !is_last {
                return Err(
                    "nothing says where the content ends, and the connection stays open".to_owned()
                );
            }
            return Ok(bytes.to_vec());
        }
        ([], []) => Framing::Empty,
        _ => return Err("it is not clear where the content ends (RFC 9112, 6.3)".to_owned()),
    };
    decode(bytes, if has_content { framing } else { Framing::Empty })
}

fn parse_length(value: &[u8]) -> Result<u64, String> {
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        format!("the content-length {:?} is not a number", String::from_utf8_lossy(value))
    })
}

fn decode(mut bytes: &[u8], framing: Framing) -> Result<Vec<u8>, String> {
    let mut decoder = ContentDecoder::new(framing, u64::MAX, &Limits::default())
        .map_err(|error| format!("the content cannot be read: {error}"))?;
    let mut content = Vec::new();
    while !decoder.is_complete() {
        let decoded =
            decoder.decode(bytes).map_err(|error| format!("the content is broken: {error}"))?;
        if decoded.consumed == 0 {
            let had = content.len();
            return Err(format!(
                "the content ends after {had} bytes, before it is complete ({framing:?})"
            ));
        }
        content.extend_from_slice(&bytes[decoded.data]);
        bytes = &bytes[decoded.consumed..];
    }
    if !bytes.is_empty() {
        return Err(format!("{} bytes follow the end of the response", bytes.len()));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(answer: &str, why: &str) {
        let result = parse(answer.as_bytes(), &Method::GET);
        assert!(result.as_ref().is_err_and(|error| error.contains(why)), "{result:?}");
    }

    #[test]
    fn contents_are_found_with_every_framing() {
        let body = |answer: &str| parse(answer.as_bytes(), &Method::GET).map(|answer| answer.body);
        assert_eq!(body("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"), Ok(b"hi".to_vec()));
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n";
        assert_eq!(body(chunked), Ok(b"hi".to_vec()));
        assert_eq!(body("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhi"), Ok(b"hi".to_vec()));
        assert_eq!(body("HTTP/1.1 204 No Content\r\n\r\n"), Ok(Vec::new()));
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
        assert_eq!(body(interim), Ok(b"hi".to_vec()));
        let head = parse(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", &Method::HEAD);
        assert_eq!(head.map(|answer| answer.body), Ok(Vec::new()));
    }

    #[test]
    fn invalid_responses_are_refused() {
        refused("", "no response");
        refused("HTTP/1.1 200 OK\r\n", "no end");
        refused("HTTP/2 200 OK\r\n\r\n", "begin with a version");
        refused("HTTP/1.1 20 OK\r\n\r\n", "no status");
        refused("HTTP/1.1 200\r\n\r\n", "no status");
        refused("HTTP/1.1 200 OK\r\na\r\n\r\n", "no colon");
        refused("HTTP/1.1 200 OK\r\na b: c\r\n\r\n", "invalid");
        refused("HTTP/1.1 200 OK\r\na: b\nc\r\n\r\n", "invalid");
        refused("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhi", "ends after 2 bytes");
        refused("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nhi", "1 bytes follow");
        refused("HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nhi", "not a number");
        refused("HTTP/1.1 200 OK\r\n\r\nhi", "nothing says");
        refused("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", "8.6");
        refused(
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nhi",
            "not clear",
        );
        refused("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", "broken");
        refused(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n",
            "before it is complete",
        );
    }
}
