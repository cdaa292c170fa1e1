//! The bytes of responses, and whether the connection stays open.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]
#![allow(clippy::needless_pass_by_value, reason = "test rows are easier to read with values")]

use std::time::UNIX_EPOCH;

use expect_test::{Expect, expect};
use filoplume_http1::{
    ContentLength, Date, Headers, Limits, Next, ServerConnection, encode_last_chunk, write_refusal,
};
use http::StatusCode;

use ContentLength::{Known, None as Nothing, Unknown};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_CLOSE: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const GET_1_0: &str = "GET / HTTP/1.0\r\n\r\n";
const GET_1_0_STAY: &str = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
const HEAD_1_0: &str = "HEAD / HTTP/1.0\r\n\r\n";
const CONNECT: &str = "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const POST_EXPECT: &str =
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";

fn date() -> Date {
    Date::new(UNIX_EPOCH)
}

fn fields(fields: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.append(name, value).unwrap();
    }
    headers
}

/// Returns the text without carriage returns, which makes it readable, after checking that each
/// line has one.
fn text(out: &[u8]) -> String {
    let text = std::str::from_utf8(out).unwrap();
    let head = text.split_once("\r\n\r\n").map_or(text, |(head, _)| head);
    assert_eq!(head.matches('\n').count(), head.matches("\r\n").count());
    text.replace("\r\n", "\n")
}

/// Answers a request without content, and checks the head, the encoding of the content, and what
/// follows.
#[track_caller]
fn check(
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

#[test]
fn a_known_length_is_sent() {
    check(
        GET,
        200,
        &[("content-type", "text/plain"), ("server", "x")],
        Known(13),
        expect![[r#"
        HTTP/1.1 200 OK
        content-type: text/plain
        server: x
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 13

        Length(13), then Some(KeepAlive)
    "#]],
    );
    check(
        GET,
        200,
        &[],
        Known(0),
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 0

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        GET,
        404,
        &[],
        Known(u64::MAX),
        expect![[r#"
        HTTP/1.1 404 Not Found
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 18446744073709551615

        Length(18446744073709551615), then Some(KeepAlive)
    "#]],
    );
    check(
        GET,
        200,
        &[],
        Nothing,
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 0

        None, then Some(KeepAlive)
    "#]],
    );
}

#[test]
fn an_unknown_length_is_chunked_or_ends_with_the_connection() {
    check(
        GET,
        200,
        &[],
        Unknown,
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        transfer-encoding: chunked

        Chunked, then Some(KeepAlive)
    "#]],
    );
    check(
        GET_1_0,
        200,
        &[],
        Unknown,
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close

        UntilClose, then Some(Close(Http10))
    "#]],
    );
    check(
        GET_1_0_STAY,
        200,
        &[],
        Unknown,
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close

        UntilClose, then Some(Close(UntilClose))
    "#]],
    );
}

#[test]
fn http_1_0_is_answered_with_1_1_and_keep_alive_if_it_may_stay() {
    check(
        GET_1_0,
        200,
        &[],
        Known(2),
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close
        content-length: 2

        Length(2), then Some(Close(Http10))
    "#]],
    );
    check(
        GET_1_0_STAY,
        200,
        &[],
        Known(2),
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: keep-alive
        content-length: 2

        Length(2), then Some(KeepAlive)
    "#]],
    );
}

#[test]
fn a_response_to_head_has_the_length_for_get_and_no_content() {
    check(
        HEAD,
        200,
        &[],
        Known(13),
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 13

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        HEAD,
        200,
        &[],
        Unknown,
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        HEAD,
        200,
        &[],
        Nothing,
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        HEAD,
        304,
        &[],
        Known(13),
        expect![[r#"
        HTTP/1.1 304 Not Modified
        date: Thu, 01 Jan 1970 00:00:00 GMT

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        HEAD_1_0,
        200,
        &[],
        Unknown,
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close

        None, then Some(Close(Http10))
    "#]],
    );
}

#[test]
fn some_statuses_never_have_content() {
    check(
        GET,
        204,
        &[("content-length", "3")],
        Known(3),
        expect![[r#"
        HTTP/1.1 204 No Content
        date: Thu, 01 Jan 1970 00:00:00 GMT

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        GET,
        204,
        &[],
        Unknown,
        expect![[r#"
        HTTP/1.1 204 No Content
        date: Thu, 01 Jan 1970 00:00:00 GMT

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        GET,
        205,
        &[],
        Known(3),
        expect![[r#"
        HTTP/1.1 205 Reset Content
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 0

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        GET,
        304,
        &[("etag", "\"a\"")],
        Known(3),
        expect![[r#"
        HTTP/1.1 304 Not Modified
        etag: "a"
        date: Thu, 01 Jan 1970 00:00:00 GMT

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        GET_1_0,
        304,
        &[],
        Unknown,
        expect![[r#"
        HTTP/1.1 304 Not Modified
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close

        None, then Some(Close(Http10))
    "#]],
    );
}

#[test]
fn framing_fields_of_the_handler_are_not_sent() {
    check(
        GET,
        200,
        &[
            ("Content-Length", "999"),
            ("TRANSFER-ENCODING", "gzip"),
            ("Keep-Alive", "timeout=5"),
            ("Connection", "keep-alive, x-hop"),
            ("X-Stays", "yes"),
        ],
        Known(2),
        expect![[r#"
            HTTP/1.1 200 OK
            X-Stays: yes
            date: Thu, 01 Jan 1970 00:00:00 GMT
            content-length: 2

            Length(2), then Some(KeepAlive)
        "#]],
    );
}

#[test]
fn a_date_of_the_handler_replaces_the_default() {
    check(
        GET,
        200,
        &[("Date", "Sun, 06 Nov 1994 08:49:37 GMT")],
        Known(2),
        expect![[r#"
        HTTP/1.1 200 OK
        Date: Sun, 06 Nov 1994 08:49:37 GMT
        content-length: 2

        Length(2), then Some(KeepAlive)
    "#]],
    );
}

#[test]
fn a_close_by_either_side_is_sent() {
    check(
        GET_CLOSE,
        200,
        &[],
        Known(2),
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close
        content-length: 2

        Length(2), then Some(Close(PeerAsked))
    "#]],
    );
    check(
        GET,
        200,
        &[("connection", "x, Close")],
        Known(2),
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close
        content-length: 2

        Length(2), then Some(Close(HandlerAsked))
    "#]],
    );
}

#[test]
fn after_an_upgrade_the_connection_belongs_to_another_protocol() {
    check(
        UPGRADE,
        101,
        &[("Upgrade", "websocket"), ("Connection", "Upgrade")],
        Nothing,
        expect![[r#"
        HTTP/1.1 101 Switching Protocols
        Upgrade: websocket
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: upgrade

        None, then Some(Close(Upgraded))
    "#]],
    );
    check(
        GET,
        426,
        &[("upgrade", "h2c")],
        Known(0),
        expect![[r#"
        HTTP/1.1 426 Upgrade Required
        upgrade: h2c
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: upgrade
        content-length: 0

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        GET_CLOSE,
        426,
        &[("upgrade", "h2c")],
        Known(0),
        expect![[r#"
        HTTP/1.1 426 Upgrade Required
        upgrade: h2c
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: upgrade, close
        content-length: 0

        None, then Some(Close(PeerAsked))
    "#]],
    );
    check(
        CONNECT,
        200,
        &[],
        Known(5),
        expect![[r#"
        HTTP/1.1 200 OK
        date: Thu, 01 Jan 1970 00:00:00 GMT

        None, then Some(Close(Upgraded))
    "#]],
    );
    check(
        CONNECT,
        502,
        &[],
        Known(5),
        expect![[r#"
        HTTP/1.1 502 Bad Gateway
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 5

        Length(5), then Some(KeepAlive)
    "#]],
    );
}

#[test]
fn statuses_without_a_phrase_keep_the_space() {
    check(
        GET,
        299,
        &[],
        Known(0),
        expect![[r#"
        HTTP/1.1 299 
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 0

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        GET,
        999,
        &[],
        Known(0),
        expect![[r#"
        HTTP/1.1 999 
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 0

        None, then Some(KeepAlive)
    "#]],
    );
    check(
        GET,
        418,
        &[],
        Known(0),
        expect![[r#"
        HTTP/1.1 418 I'm a teapot
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 0

        None, then Some(KeepAlive)
    "#]],
    );
}

#[test]
fn parsed_fields_can_be_sent_unchanged() {
    let input = "GET / HTTP/1.1\r\nHost:h\r\nA:  b  \r\nC:\r\nD: e\r\n\r\n";
    let mut connection = ServerConnection::new();
    let (head, _) = connection.read_head(input.as_bytes(), &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    connection.write_head(StatusCode::OK, head.headers(), Known(0), &date(), &mut out);
    expect![[r#"
        HTTP/1.1 200 OK
        Host:h
        A: b
        C:
        D: e
        date: Thu, 01 Jan 1970 00:00:00 GMT
        content-length: 0

    "#]]
    .assert_eq(&text(&out));
}

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
fn a_second_final_head_is_not_written() {
    let mut connection = ServerConnection::new();
    connection.read_head(GET.as_bytes(), &Limits::default()).unwrap().unwrap();
    let mut out = Vec::new();
    connection.write_head(StatusCode::OK, &Headers::new(), Known(2), &date(), &mut out);
    let len = out.len();
    connection.write_head(StatusCode::OK, &Headers::new(), Known(2), &date(), &mut out);
    assert_eq!(out.len(), len);
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

#[test]
fn a_refusal_is_a_complete_response() {
    let mut out = Vec::new();
    write_refusal(StatusCode::BAD_REQUEST, &date(), None, &mut out);
    expect![[r#"
        HTTP/1.1 400 Bad Request
        content-type: text/plain; charset=utf-8
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close
        content-length: 12

        Bad Request
    "#]]
    .assert_eq(&text(&out));
    out.clear();
    write_refusal(StatusCode::SERVICE_UNAVAILABLE, &date(), Some(("retry-after", "1")), &mut out);
    expect![[r#"
        HTTP/1.1 503 Service Unavailable
        content-type: text/plain; charset=utf-8
        retry-after: 1
        date: Thu, 01 Jan 1970 00:00:00 GMT
        connection: close
        content-length: 20

        Service Unavailable
    "#]]
    .assert_eq(&text(&out));
    out.clear();
    write_refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        &date(),
        Some(("allow", "GET\r\nx: y")),
        &mut out,
    );
    assert!(!text(&out).contains("x: y"), "an invalid field is left out");
}

#[test]
fn framing_fields_are_not_sent_as_trailers() {
    let trailers = fields(&[
        ("A", "b"),
        ("Content-Length", "3"),
        ("transfer-encoding", "chunked"),
        ("Content-Lengths", "c"),
    ]);
    let mut out = Vec::new();
    encode_last_chunk(&trailers, &mut out);
    assert_eq!(text(&out), text(b"0\r\nA: b\r\nContent-Lengths: c\r\n\r\n"));
}

#[test]
fn a_refusal_has_content_unless_the_request_is_a_head() {
    let rows = [
        ("GET / HTTP/1.1\r\n\r\n", true),
        ("HEAD / HTTP/1.1\r\n\r\n", false),
        ("\r\nHEAD / HTTP/1.1\r\n\r\n", false),
        ("HEAD / HTTP/1.1\r\nHo", false),
        ("HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n", false),
        ("HEADS / HTTP/1.1\r\n\r\n", true),
        ("head / HTTP/1.1\r\n\r\n", true),
        ("", true),
    ];
    for (request, has_content) in rows {
        let mut connection = ServerConnection::new();
        let _ = connection.read_head(request.as_bytes(), &Limits::default());
        let mut out = Vec::new();
        connection.write_refusal(StatusCode::BAD_REQUEST, &date(), None, &mut out);
        let text = text(&out);
        assert!(text.contains("content-length: 12\n"), "{request:?}: {text}");
        let end = if has_content { "\n\nBad Request\n" } else { "\n\n" };
        assert!(text.ends_with(end), "{request:?}: {text}");
    }
}
