//! How the content of a response is delimited, and which fields say so.

mod writing;

use expect_test::expect;
use filoplume_http1::{ContentLength, encode_last_chunk};

use ContentLength::{Known, None as Nothing, Unknown};
use writing::{GET, GET_1_0, GET_1_0_STAY, check, fields, text};

const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n";
const HEAD_1_0: &str = "HEAD / HTTP/1.0\r\n\r\n";

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
