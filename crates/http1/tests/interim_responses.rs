//! Interim responses: when they are written, and that the final one follows.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod writing;

use expect_test::expect;
use filoplume_http1::{ContentLength, Headers, Limits, Next, ServerConnection};
use http::StatusCode;

use ContentLength::{Known, None as Nothing};
use writing::{GET, GET_1_0, date, fields, text};

const POST_EXPECT: &str =
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";

#[test]
fn interim_heads_come_before_the_final_one() {
    let mut connection = ServerConnection::new();
    connection.read_head(GET.as_bytes(), &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    let hints = fields(&[("link", "</a.css>"), ("content-length", "3"), ("connection", "close")]);
    connection.write_head(StatusCode::EARLY_HINTS, &hints, Known(3), &date(), &mut out);
    assert_eq!(connection.next(), None);
    connection.write_head(StatusCode::OK, &Headers::new(), Known(0), &date(), &mut out);
    connection.write_done();
    assert_eq!(connection.next(), Some(Next::KeepAlive));
    expect![[r#"
        HTTP/1.1 103 Early Hints
        link: </a.css>

        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 0

    "#]]
    .assert_eq(&text(&out));
}

#[test]
fn http_1_0_gets_no_interim_head() {
    let mut connection = ServerConnection::new();
    connection.read_head(GET_1_0.as_bytes(), &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    connection.write_head(StatusCode::EARLY_HINTS, &Headers::new(), Nothing, &date(), &mut out);
    assert_eq!(text(&out), "");
}

#[test]
fn one_hundred_continue_is_written_once_and_not_after_the_final_head() {
    let mut connection = ServerConnection::new();
    connection.read_head(POST_EXPECT.as_bytes(), &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    assert!(connection.write_continue(&mut out));
    assert!(!connection.write_continue(&mut out));
    expect![[r#"
        HTTP/1.1 100 Continue

    "#]]
    .assert_eq(&text(&out));

    let mut connection = ServerConnection::new();
    connection.read_head(POST_EXPECT.as_bytes(), &Limits::default()).unwrap().unwrap();
    connection.write_head(
        StatusCode::PAYLOAD_TOO_LARGE,
        &Headers::new(),
        Known(0),
        &date(),
        &mut out,
    );
    assert!(!connection.write_continue(&mut out));
}

/// A peer that waits gets one `100 Continue` (RFC 9110 section 10.1.1).
#[test]
fn only_a_100_of_the_handler_replaces_the_default_one() {
    for (status, is_due) in [(StatusCode::CONTINUE, false), (StatusCode::EARLY_HINTS, true)] {
        let mut connection = ServerConnection::new();
        connection.read_head(POST_EXPECT.as_bytes(), &Limits::default()).unwrap().unwrap();
        let mut out = Vec::new();
        connection.write_head(status, &Headers::new(), Nothing, &date(), &mut out);
        assert_eq!(connection.write_continue(&mut out), is_due, "{status}");
    }
}
