//! The bytes of the requests that a client writes.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]
#![allow(clippy::needless_pass_by_value, reason = "test rows are easier to read with values")]

use expect_test::{Expect, expect};
use filoplume_http1::{ContentLength, Headers, OutgoingRequest};
use http::Method;

#[track_caller]
fn check_request(
    method: Method,
    target: &str,
    headers: &[(&str, &str)],
    content: ContentLength,
    expected: Expect,
) {
    let mut fields = Headers::new();
    for (name, value) in headers {
        fields.append(name, value).unwrap();
    }
    let request = OutgoingRequest {
        method: &method,
        target,
        authority: "h:1",
        headers: &fields,
        content,
        closes: headers.is_empty(),
    };
    let mut out = Vec::new();
    let encoding = request.write_head(&mut out);
    if encoding.is_err() {
        assert!(out.is_empty());
    }
    expected.assert_eq(&format!(
        "{}{encoding:?}",
        String::from_utf8(out).unwrap().replace("\r\n", "\n")
    ));
}

#[test]
fn requests_are_framed_by_their_content_length() {
    use ContentLength::{Known, None as Nothing, Unknown};
    check_request(
        Method::GET,
        "/a?b",
        &[],
        Nothing,
        expect![[r#"
        GET /a?b HTTP/1.1
        host: h:1
        connection: close

        Ok(None)"#]],
    );
    check_request(
        Method::POST,
        "/",
        &[],
        Nothing,
        expect![[r#"
        POST / HTTP/1.1
        host: h:1
        connection: close
        content-length: 0

        Ok(None)"#]],
    );
    check_request(
        Method::PUT,
        "/",
        &[("Host", "other"), ("Content-Length", "9"), ("Connection", "x"), ("Accept", "*/*")],
        Known(3),
        expect![[r#"
            PUT / HTTP/1.1
            host: other
            Accept: */*
            content-length: 3

            Ok(Length(3))"#]],
    );
    check_request(
        Method::POST,
        "/",
        &[("transfer-encoding", "gzip")],
        Unknown,
        expect![[r#"
        POST / HTTP/1.1
        host: h:1
        transfer-encoding: chunked

        Ok(Chunked)"#]],
    );
    check_request(
        Method::CONNECT,
        "h:1",
        &[("a", "b")],
        Nothing,
        expect![[r#"
        CONNECT h:1 HTTP/1.1
        host: h:1
        a: b

        Ok(None)"#]],
    );
    check_request(Method::GET, "/a b", &[], Nothing, expect!["Err(TargetInvalid)"]);
    check_request(Method::GET, "/", &[("host", "h%zz")], Nothing, expect!["Err(HostInvalid)"]);
}

#[test]
fn methods_that_usually_have_content_say_that_there_is_none() {
    for (method, has_length) in [
        (Method::POST, true),
        (Method::PUT, true),
        (Method::PATCH, true),
        (Method::GET, false),
        (Method::DELETE, false),
    ] {
        let request = OutgoingRequest {
            method: &method,
            target: "/",
            authority: "h",
            headers: &Headers::new(),
            content: ContentLength::None,
            closes: false,
        };
        let mut out = Vec::new();
        request.write_head(&mut out).unwrap();
        let has_zero = out.windows(19).any(|line| line == b"content-length: 0\r\n");
        assert_eq!(has_zero, has_length, "{method}");
    }
}

#[test]
fn a_request_for_two_hosts_is_refused() {
    check_request(
        Method::GET,
        "/",
        &[("Host", "a"), ("host", "a")],
        ContentLength::None,
        expect!["Err(HostRepeated)"],
    );
}

#[test]
fn a_request_for_a_malformed_host_is_refused_however_short_it_is() {
    for host in ["[", "a b", ":1"] {
        check_request(
            Method::GET,
            "/",
            &[("host", host)],
            ContentLength::None,
            expect!["Err(HostInvalid)"],
        );
    }
}
