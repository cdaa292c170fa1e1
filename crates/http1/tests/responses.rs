//! The heads of final responses, refusals included, and whether the connection stays open.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod writing;

use expect_test::expect;
use filoplume_http1::{ContentLength, Headers, Limits, ServerConnection, write_refusal};
use http::StatusCode;

use ContentLength::{Known, None as Nothing};
use writing::{GET, GET_1_0, GET_1_0_STAY, check, date, text};

const GET_CLOSE: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const CONNECT: &str = "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

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
}

#[test]
fn a_426_lists_upgrade_in_its_connection_header() {
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
}

#[test]
fn only_a_connect_that_succeeds_ends_http() {
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
