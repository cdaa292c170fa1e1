//! The head of a response as bytes.

use http::StatusCode;

use crate::date::Date;
use crate::fields::Headers;

/// The value of the `Connection` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionField {
    /// No field: HTTP/1.1 keeps the connection open by default.
    Absent,
    Close,
    /// HTTP/1.0 keeps the connection open only with this option.
    KeepAlive,
    Upgrade,
    UpgradeAndClose,
}

/// The field that describes the length of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LengthField {
    Absent,
    Length(u64),
    Chunked,
}

const LENGTH_NAME: &[u8] = b"content-length: ";

/// Room for a common head, so that the buffer does not grow while it is written.
const HEAD_BYTES_RESERVED: usize = 256;

/// Appends the head of a `200` with content. `lines` are its fields, already encoded.
#[inline]
pub(crate) fn write_ok_head(
    lines: (&[u8], &[u8]),
    length: u64,
    connection: ConnectionField,
    date: &Date,
    out: &mut Vec<u8>,
) {
    out.reserve(HEAD_BYTES_RESERVED);
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    write_wire_lines(lines, out);
    if connection == ConnectionField::Absent {
        out.extend_from_slice(date.line_and_length_name());
    } else {
        out.extend_from_slice(date.line());
        write_connection(connection, out);
        out.extend_from_slice(LENGTH_NAME);
    }
    write_length_value(length, out);
}

/// Appends a complete head. Framing fields, `Connection` and `Keep-Alive` among the caller's fields
/// are not copied.
pub(crate) fn write_response_head(
    status: StatusCode,
    headers: &Headers,
    length: LengthField,
    connection: ConnectionField,
    date: Option<&Date>,
    out: &mut Vec<u8>,
) {
    out.reserve(HEAD_BYTES_RESERVED);
    write_status_line(status, out);
    let mut date = date;
    match headers.wire_lines() {
        Some(lines) => write_wire_lines(lines, out),
        None => {
            headers.write_lines(out, |name, _| match name.len() {
                4 if name.eq_ignore_ascii_case(b"date") => {
                    date = None;
                    true
                }
                10 => {
                    !name.eq_ignore_ascii_case(b"connection")
                        && !name.eq_ignore_ascii_case(b"keep-alive")
                }
                14 => !name.eq_ignore_ascii_case(b"content-length"),
                17 => !name.eq_ignore_ascii_case(b"transfer-encoding"),
                _ => true,
            });
        }
    }
    if let Some(date) = date {
        out.extend_from_slice(date.line());
    }
    write_connection(connection, out);
    match length {
        LengthField::Absent => out.extend_from_slice(b"\r\n"),
        LengthField::Length(length) => write_length(length, out),
        LengthField::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n"),
    }
}

/// Appends fields that are already encoded.
#[inline]
fn write_wire_lines((first, others): (&[u8], &[u8]), out: &mut Vec<u8>) {
    out.extend_from_slice(first);
    if !others.is_empty() {
        out.extend_from_slice(others);
    }
}

fn write_connection(connection: ConnectionField, out: &mut Vec<u8>) {
    match connection {
        ConnectionField::Absent => {}
        ConnectionField::Close => out.extend_from_slice(b"connection: close\r\n"),
        ConnectionField::KeepAlive => out.extend_from_slice(b"connection: keep-alive\r\n"),
        ConnectionField::Upgrade => out.extend_from_slice(b"connection: upgrade\r\n"),
        ConnectionField::UpgradeAndClose => {
            out.extend_from_slice(b"connection: upgrade, close\r\n");
        }
    }
}

/// Appends `content-length` as the last field, and the end of the head.
#[inline]
fn write_length(length: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(LENGTH_NAME);
    write_length_value(length, out);
}

#[inline]
fn write_length_value(length: u64, out: &mut Vec<u8>) {
    if let Some((line, unused)) = short_length_value(length) {
        out.extend_from_slice(&line);
        out.truncate(out.len().saturating_sub(unused));
        return;
    }
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
}

/// Returns the digits of a length of up to four digits and the end of the head, and how many bytes
/// at the end are not used. Most responses are that short, and eight bytes are written faster than
/// a number of bytes that is not known in advance.
#[inline]
fn short_length_value(length: u64) -> Option<([u8; 8], usize)> {
    const END: u64 = u32::from_le_bytes(*b"\r\n\r\n") as u64;
    if length > 9_999 {
        return None;
    }
    // Two lanes of 16 bits, each with two of the digits. The factor 103 / 1,024 divides a number
    // below 100 by ten.
    let pairs = (length / 100) | ((length % 100) << 16);
    let tens = (pairs.wrapping_mul(103) >> 10) & 0x000f_000f;
    let ones = pairs.wrapping_sub(tens.wrapping_mul(10));
    let digits = tens | ones << 8;
    // The last digit is written even if it is 0.
    let zeros = (digits | 1 << 24).trailing_zeros() / 8;
    let line = (digits | 0x3030_3030 | END << 32).wrapping_shr(zeros.wrapping_mul(8));
    Some((line.to_le_bytes(), zeros as usize))
}

/// Appends a complete response to a refused request. It has `Connection: close`, and its content is
/// only the reason phrase: the peer is told the status, and the log is told the reason.
///
/// `extra` is one more field, e.g. `("retry-after", "1")`. It is left out if it is invalid.
///
/// ```
/// use filoplume_http1::{Date, write_refusal};
/// use http::StatusCode;
///
/// let mut out = Vec::new();
/// let date = Date::new(std::time::UNIX_EPOCH);
/// write_refusal(
///     StatusCode::SERVICE_UNAVAILABLE,
///     &date,
///     Some(("retry-after", "1")),
///     &mut out,
/// );
/// let text = String::from_utf8(out).unwrap();
/// assert!(text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
/// assert!(text.ends_with("\r\n\r\nService Unavailable\n"));
/// ```
pub fn write_refusal(
    status: StatusCode,
    date: &Date,
    extra: Option<(&str, &str)>,
    out: &mut Vec<u8>,
) {
    let text = write_refusal_head(status, date, extra, out);
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

/// Appends the head of a refusal and returns its content, one line.
pub(crate) fn write_refusal_head(
    status: StatusCode,
    date: &Date,
    extra: Option<(&str, &str)>,
    out: &mut Vec<u8>,
) -> &'static str {
    let text = status.canonical_reason().unwrap_or("Refused");
    let mut headers = Headers::new();
    // The names and values here are valid. `extra` may be invalid, as documented at
    // `write_refusal`.
    let _ = headers.append("content-type", "text/plain; charset=utf-8");
    if let Some((name, value)) = extra {
        let _ = headers.append(name, value);
    }
    let length = LengthField::Length((text.len() as u64).saturating_add(1));
    write_response_head(status, &headers, length, ConnectionField::Close, Some(date), out);
    text
}

/// Appends the status line. Its version is always HTTP/1.1, because it is the version of the sender
/// and not of the message (RFC 9110 section 2.5).
fn write_status_line(status: StatusCode, out: &mut Vec<u8>) {
    let line: &[u8] = match status.as_u16() {
        200 => b"HTTP/1.1 200 OK\r\n",
        201 => b"HTTP/1.1 201 Created\r\n",
        204 => b"HTTP/1.1 204 No Content\r\n",
        206 => b"HTTP/1.1 206 Partial Content\r\n",
        302 => b"HTTP/1.1 302 Found\r\n",
        304 => b"HTTP/1.1 304 Not Modified\r\n",
        400 => b"HTTP/1.1 400 Bad Request\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        500 => b"HTTP/1.1 500 Internal Server Error\r\n",
        503 => b"HTTP/1.1 503 Service Unavailable\r\n",
        _ => return write_rare_status_line(status, out),
    };
    out.extend_from_slice(line);
}

fn write_rare_status_line(status: StatusCode, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    // The space is part of the line even if no phrase follows (RFC 9112 section 4).
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_written_as_its_digits_and_the_end_of_the_head() {
        for length in (0..20_000).chain([99_999, 100_000, u64::MAX]) {
            let mut out = b"content-length: ".to_vec();
            write_length_value(length, &mut out);
            assert_eq!(out, format!("content-length: {length}\r\n\r\n").as_bytes());
        }
    }

    #[test]
    fn a_prepared_status_line_equals_the_computed_one() {
        for status in 100..=999 {
            let status = StatusCode::from_u16(status).unwrap();
            let (mut line, mut made) = (Vec::new(), Vec::new());
            write_status_line(status, &mut line);
            write_rare_status_line(status, &mut made);
            assert_eq!(line, made, "{status}");
        }
    }
}
