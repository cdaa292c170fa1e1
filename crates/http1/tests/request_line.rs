//! Methods, targets, versions and line ends of a request.

mod driver;

use driver::check;
use expect_test::{Expect, expect};

/// A request line with a `Host` behind it.
#[track_caller]
fn line(line: &[u8], expected: Expect) {
    check([line, b"\r\nHost: h\r\n\r\n"].concat(), expected);
}

#[test]
fn methods_are_tokens_and_case_sensitive() {
    line(b"GET / HTTP/1.1", expect!["GET / 1.1"]);
    line(b"HEAD / HTTP/1.1", expect!["HEAD / 1.1"]);
    line(b"POST / HTTP/1.1", expect!["POST / 1.1"]);
    line(b"PUT / HTTP/1.1", expect!["PUT / 1.1"]);
    line(b"DELETE / HTTP/1.1", expect!["DELETE / 1.1"]);
    line(b"PATCH / HTTP/1.1", expect!["PATCH / 1.1"]);
    line(b"TRACE / HTTP/1.1", expect!["TRACE / 1.1"]);
    line(b"OPTIONS / HTTP/1.1", expect!["OPTIONS / 1.1"]);
    line(b"get / HTTP/1.1", expect!["get / 1.1"]);
    line(b"PROPFIND / HTTP/1.1", expect!["PROPFIND / 1.1"]);
    line(b"M-SEARCH / HTTP/1.1", expect!["M-SEARCH / 1.1"]);
    line(b"!#$%&'*+-.^_`|~ / HTTP/1.1", expect!["!#$%&'*+-.^_`|~ / 1.1"]);
    line(b"UPDATEREDIRECTREF / HTTP/1.1", expect!["UPDATEREDIRECTREF / 1.1"]);
    line(b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1", expect!["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / 1.1"]);
    line(b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1", expect!["refused 501 MethodTooLong"]);
}

#[test]
fn malformed_methods_are_refused() {
    line(b" / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GE(T / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"G\x00T / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"G\xc3\xa9T / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET\t/ HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"\tGET / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b" GET / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET: / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"\"GET\" / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
}

#[test]
fn one_space_separates_the_parts() {
    line(b"GET  / HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET /  HTTP/1.1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/1.1 ", expect!["refused 400 LineEndInvalid"]);
    line(b"GET / x HTTP/1.1", expect!["refused 400 VersionInvalid"]);
    line(b"GET /\tHTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET ", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET /", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET / ", expect!["refused 400 VersionInvalid"]);
    line(b"", expect!["refused 400 RequestLineInvalid"]);
}

#[test]
fn origin_form_is_taken_for_every_method_but_connect() {
    line(b"GET /a/b?c=d&e HTTP/1.1", expect!["GET /a/b?c=d&e 1.1"]);
    line(b"GET /?? HTTP/1.1", expect!["GET /?? 1.1"]);
    line(b"GET // HTTP/1.1", expect!["GET // 1.1"]);
    line(b"GET //evil.example/x HTTP/1.1", expect!["GET //evil.example/x 1.1"]);
    line(b"GET /%zz%00 HTTP/1.1", expect!["GET /%zz%00 1.1"]);
    line(b"GET /a;b=c,d:e@f!$&'()*+ HTTP/1.1", expect!["GET /a;b=c,d:e@f!$&'()*+ 1.1"]);
    line(b"GET /\"<>^`{|} HTTP/1.1", expect![[r#"GET /"<>^`{|} 1.1"#]]);
    line(b"GET /?a\\b HTTP/1.1", expect![[r#"GET /?a\b 1.1"#]]);
    line(b"CONNECT / HTTP/1.1", expect!["refused 400 HostInvalid"]);
}

#[test]
fn ambiguous_bytes_in_a_target_are_refused() {
    line(b"GET /a#b HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET /?a#b HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET /a\\b HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET /\x7f HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET /\x00 HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET /\x01 HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET /\xc3\xa9 HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET /\xff HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET /?\xc3\xa9 HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET /a\rb HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
    line(b"GET /a\nb HTTP/1.1", expect!["refused 400 RequestLineInvalid"]);
}

#[test]
fn absolute_form_has_an_http_scheme_and_a_host() {
    line(b"GET http://h HTTP/1.1", expect!["GET http://h 1.1"]);
    line(b"GET http://h/ HTTP/1.1", expect!["GET http://h/ 1.1"]);
    line(b"GET https://h:443/a?b HTTP/1.1", expect!["GET https://h:443/a?b 1.1"]);
    line(b"GET HTTP://h?q HTTP/1.1", expect!["GET HTTP://h?q 1.1"]);
    line(b"GET http://[::1]:80/ HTTP/1.1", expect!["GET http://[::1]:80/ 1.1"]);
    line(b"GET http:// HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"GET http:///a HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"GET http://u@h/ HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"GET http://u:p@h/ HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"GET http://h:x/ HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"GET http://h#f HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET http://h\\a/ HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"GET ftp://h/ HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET http:/h HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET http HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET h/ HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET ?a HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET #a HTTP/1.1", expect!["refused 400 TargetInvalid"]);
}

#[test]
fn authority_form_is_for_connect_only_and_has_a_port() {
    line(b"CONNECT h:443 HTTP/1.1", expect!["CONNECT h:443 1.1; close Upgraded"]);
    line(b"CONNECT [::1]:443 HTTP/1.1", expect!["CONNECT [::1]:443 1.1; close Upgraded"]);
    line(b"CONNECT h HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"CONNECT h: HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"CONNECT :443 HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"CONNECT h:65536 HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"CONNECT u@h:443 HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"CONNECT h:443/ HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"CONNECT * HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"CONNECT http://h:80/ HTTP/1.1", expect!["refused 400 HostInvalid"]);
    line(b"GET h:443 HTTP/1.1", expect!["refused 400 TargetInvalid"]);
}

#[test]
fn asterisk_form_is_for_options_only() {
    line(b"OPTIONS * HTTP/1.1", expect!["OPTIONS * 1.1"]);
    line(b"OPTIONS ** HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"OPTIONS *?a HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"GET * HTTP/1.1", expect!["refused 400 TargetInvalid"]);
    line(b"OPTIONS http://h HTTP/1.1", expect!["OPTIONS http://h 1.1"]);
}

#[test]
fn only_versions_1_0_and_1_1_are_spoken() {
    line(b"GET / HTTP/1.0", expect!["GET / 1.0; close Http10"]);
    line(b"GET / HTTP/1.1", expect!["GET / 1.1"]);
    line(b"GET / HTTP/1.2", expect!["refused 505 VersionUnsupported"]);
    line(b"GET / HTTP/0.9", expect!["refused 505 VersionUnsupported"]);
    line(b"GET / HTTP/2.0", expect!["refused 505 VersionUnsupported"]);
    line(b"GET / HTTP/3.0", expect!["refused 505 VersionUnsupported"]);
    line(b"GET / HTTP/9.9", expect!["refused 505 VersionUnsupported"]);
    line(b"PRI * HTTP/2.0", expect!["refused 505 VersionUnsupported"]);
}

#[test]
fn malformed_versions_are_refused() {
    line(b"GET / http/1.1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/1.", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/11", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/1.10", expect!["refused 400 LineEndInvalid"]);
    line(b"GET / HTTP/1.1.", expect!["refused 400 LineEndInvalid"]);
    line(b"GET / HTTP/01.1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP 1.1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/1,1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTPS/1.1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/-1.1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/x.1", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/2.x", expect!["refused 400 VersionInvalid"]);
    line(b"GET / H", expect!["refused 400 VersionInvalid"]);
    line(b"GET / HTTP/2", expect!["refused 400 VersionInvalid"]);
}

#[test]
fn one_empty_line_before_a_request_is_skipped() {
    check(b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", expect!["GET / 1.1"]);
    check(b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"\r\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"\r\n", expect!["more"]);
    check(b"\r", expect!["more"]);
    check(b"\n", expect!["refused 400 LineEndInvalid"]);
    check(b"\r\n\r", expect!["refused 400 LineEndInvalid"]);
    check(
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        expect!["GET / 1.1; GET /2 1.1"],
    );
    check(
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        expect![[r#"POST / 1.1 length=1; content "x"; GET /2 1.1"#]],
    );
}

#[test]
fn lines_end_in_cr_lf_and_in_nothing_else() {
    check(b"GET / HTTP/1.1\nHost: h\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\r\n\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\nHost: h\n\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\r\nA: b\nHost: h\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\n\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\rHost: h\r\r", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\r\rHost: h\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\r\rA: b\r\n\r\n", expect!["refused 400 FieldValueInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\rA: b\r\n\r\n", expect!["refused 400 FieldValueInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\r\n\rA", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.0\n\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.0\r\n\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.0\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.0\r\n\r\n", expect!["GET / 1.0; close Http10"]);
    check(b"GET / HTTP/1.1\r\nHost: h\r\nA:\n\r\n", expect!["refused 400 LineEndInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\r\nA:\nB: c\r\n\r\n", expect!["refused 400 LineEndInvalid"]);
}

#[test]
fn what_is_not_http_is_refused() {
    check(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", expect!["refused 400 RequestLineInvalid"]);
    check(b"hello\r\n", expect!["refused 400 RequestLineInvalid"]);
    check(b"GET /\r\n", expect!["refused 400 RequestLineInvalid"]);
    check(b"SSH-2.0-x\r\n", expect!["refused 400 RequestLineInvalid"]);
    check(b"\x00", expect!["refused 400 RequestLineInvalid"]);
    check(b"\x80", expect!["refused 400 RequestLineInvalid"]);
    check(b"{\"a\":1}", expect!["refused 400 RequestLineInvalid"]);
    check(b"GET / HTTP/1.1\r\nHost: h\r\n", expect!["more"]);
}
