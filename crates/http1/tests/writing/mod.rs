//! Writes the head of the response to a request, and shows its bytes.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]
#![allow(clippy::needless_pass_by_value, reason = "test rows are easier to read with values")]

use std::time::UNIX_EPOCH;

use expect_test::Expect;
use filoplume_http1::{ContentLength, Date, Headers, Limits, ServerConnection};
use http::StatusCode;

pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
pub(crate) const GET_1_0: &str = "GET / HTTP/1.0\r\n\r\n";
pub(crate) const GET_1_0_STAY: &str = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";

pub(crate) fn date() -> Date {
    Date::new(UNIX_EPOCH)
}

pub(crate) fn fields(fields: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.append(name, value).unwrap();
    }
    headers
}

/// Returns the text without carriage returns, which makes it readable, after checking that each
/// line has one.
pub(crate) fn text(out: &[u8]) -> String {
    let text = std::str::from_utf8(out).unwrap();
    let head = text.split_once("\r\n\r\n").map_or(text, |(head, _)| head);
    assert_eq!(head.matches('\n').count(), head.matches("\r\n").count());
    text.replace("\r\n", "\n")
}

/// Answers a request without content, and checks the head, the encoding of the content, and what
/// follows.
#[track_caller]
pub(crate) fn check(
    request: &str,
    status: u16,
    headers: &[(&str, &str)],
    content: ContentLength,
    expected: Expect,
) {
    let mut connection = ServerConnection::new();
    connection.read_head(request.as_bytes(), &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    let status = StatusCode::from_u16(status).unwrap();
    let encoding = connection.write_head(status, &fields(headers), content, &date(), &mut out);
    connection.write_done();
    expected.assert_eq(&format!("{}{encoding:?}, then {:?}\n", text(&out), connection.next()));
}
