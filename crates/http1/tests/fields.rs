//! Field syntax, `Host`, lengths, codings, expectations and connection options.

mod driver;

use driver::check;
use expect_test::{Expect, expect};

/// A field in an HTTP/1.1 request with `Host`. Several fields may be given, with CR LF between them.
#[track_caller]
fn field(field: &[u8], expected: Expect) {
    check([b"POST / HTTP/1.1\r\nHost: h\r\n", field, b"\r\n\r\n"].concat(), expected);
}

/// A field in an HTTP/1.0 request.
#[track_caller]
fn field_1_0(field: &[u8], expected: Expect) {
    check([b"POST / HTTP/1.0\r\n", field, b"\r\n\r\n"].concat(), expected);
}

/// A value of the only `Host` field.
#[track_caller]
fn host(value: &[u8], expected: Expect) {
    check([b"GET / HTTP/1.1\r\nHost:", value, b"\r\n\r\n"].concat(), expected);
}

#[test]
fn field_names_are_tokens_right_before_the_colon() {
    field(b"A: b", expect!["POST / 1.1"]);
    field(b"a!#$%&'*+-.^_`|~9: b", expect!["POST / 1.1"]);
    field(b"A : b", expect!["refused 400 FieldNameInvalid"]);
    field(b"A\t: b", expect!["refused 400 FieldNameInvalid"]);
    field(b" A: b", expect!["refused 400 FieldNameInvalid"]);
    field(b"\tA: b", expect!["refused 400 FieldNameInvalid"]);
    field(b": b", expect!["refused 400 FieldNameInvalid"]);
    field(b"A", expect!["refused 400 FieldNameInvalid"]);
    field(b"A b: c", expect!["refused 400 FieldNameInvalid"]);
    field(b"A\x00: b", expect!["refused 400 FieldNameInvalid"]);
    field(b"A\x7f: b", expect!["refused 400 FieldNameInvalid"]);
    field(b"\xc3\x84: b", expect!["refused 400 FieldNameInvalid"]);
    field(b"A(: b", expect!["refused 400 FieldNameInvalid"]);
    field(b"A/: b", expect!["refused 400 FieldNameInvalid"]);
    field(b"A\"b: c", expect!["refused 400 FieldNameInvalid"]);
    field(b"[a]: b", expect!["refused 400 FieldNameInvalid"]);
    field(b"A;: b", expect!["refused 400 FieldNameInvalid"]);
}

#[test]
fn field_values_have_no_controls_but_htab() {
    field(b"A:", expect!["POST / 1.1"]);
    field(b"A: ", expect!["POST / 1.1"]);
    field(b"A:b", expect!["POST / 1.1"]);
    field(b"A: \t b \t ", expect!["POST / 1.1"]);
    field(b"A: b\tc", expect!["POST / 1.1"]);
    field(b"A: \xc3\xa4\xff", expect!["POST / 1.1"]);
    field(b"A: b\x00c", expect!["refused 400 FieldValueInvalid"]);
    field(b"A: b\x01c", expect!["refused 400 FieldValueInvalid"]);
    field(b"A: b\x7fc", expect!["refused 400 FieldValueInvalid"]);
    field(b"A: b\x0bc", expect!["refused 400 FieldValueInvalid"]);
    field(b"A: b\x1bc", expect!["refused 400 FieldValueInvalid"]);
    field(b"A: b\rc", expect!["refused 400 FieldValueInvalid"]);
    field(b"A: \x00", expect!["refused 400 FieldValueInvalid"]);
}

#[test]
fn a_value_that_goes_on_in_the_next_line_is_refused() {
    field(b"A: b\r\n c", expect!["refused 400 FieldNameInvalid"]);
    field(b"A: b\r\n\tc", expect!["refused 400 FieldNameInvalid"]);
    field(b"A: b\r\n ", expect!["refused 400 FieldNameInvalid"]);
    field(b"A:\r\n b", expect!["refused 400 FieldNameInvalid"]);
    field(b"Content-Length: 1\r\n 0", expect!["refused 400 FieldNameInvalid"]);
}

#[test]
fn a_host_is_required_once() {
    check(b"GET / HTTP/1.1\r\n\r\n", expect!["refused 400 HostMissing"]);
    check(b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", expect!["refused 400 HostRepeated"]);
    check(b"GET / HTTP/1.1\r\nHost: h\r\nHOST: i\r\n\r\n", expect!["refused 400 HostRepeated"]);
    check(b"GET / HTTP/1.0\r\n\r\n", expect!["GET / 1.0; close Http10"]);
    check(b"GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", expect!["refused 400 HostRepeated"]);
    check(b"GET / HTTP/1.0\r\nHost: h:x\r\n\r\n", expect!["refused 400 HostInvalid"]);
    check(b"GET http://h/ HTTP/1.1\r\n\r\n", expect!["refused 400 HostMissing"]);
    check(b"GET http://h/ HTTP/1.1\r\nHost: other\r\n\r\n", expect!["GET http://h/ 1.1"]);
    check(b"CONNECT h:1 HTTP/1.1\r\n\r\n", expect!["refused 400 HostMissing"]);
    check(b"GET / HTTP/1.1\r\nXHost: h\r\n\r\n", expect!["refused 400 HostMissing"]);
    check(b"GET / HTTP/1.1\r\nhOsT: h\r\n\r\n", expect!["GET / 1.1"]);
}

#[test]
fn a_host_is_a_name_or_an_address_with_an_optional_port() {
    host(b"", expect!["GET / 1.1"]);
    host(b"  ", expect!["GET / 1.1"]);
    host(b" h", expect!["GET / 1.1"]);
    host(b"h\t", expect!["GET / 1.1"]);
    host(b" localhost:8080", expect!["GET / 1.1"]);
    host(b" h:", expect!["GET / 1.1"]);
    host(b" h:0", expect!["GET / 1.1"]);
    host(b" h:65535", expect!["GET / 1.1"]);
    host(b" h:00080", expect!["GET / 1.1"]);
    host(b" example.org.", expect!["GET / 1.1"]);
    host(b" 127.0.0.1:80", expect!["GET / 1.1"]);
    host(b" a_b~c!$&'()*+,;=d", expect!["GET / 1.1"]);
    host(b" %41%7e", expect!["GET / 1.1"]);
    host(b" h%20i:1", expect!["GET / 1.1"]);
    host(b" [::1]", expect!["GET / 1.1"]);
    host(b" [::1]:80", expect!["GET / 1.1"]);
    host(b" [2001:db8::1.2.3.4]:", expect!["GET / 1.1"]);
    host(b" [v1.a:b]", expect!["GET / 1.1"]);
    host(b" [vF.~]:9", expect!["GET / 1.1"]);
    host(b" xn--bcher-kva.example", expect!["GET / 1.1"]);
}

#[test]
fn a_malformed_host_is_refused() {
    host(b" h:abc", expect!["refused 400 HostInvalid"]);
    host(b" [::1", expect!["refused 400 HostInvalid"]);
    host(b" h:1:2", expect!["refused 400 HostInvalid"]);
    host(b" h%zz", expect!["refused 400 HostInvalid"]);
    host(b" h%4", expect!["refused 400 HostInvalid"]);
    host(b" h%", expect!["refused 400 HostInvalid"]);
    host(b" h:65536", expect!["refused 400 HostInvalid"]);
    host(b" h:99999999999999999999", expect!["refused 400 HostInvalid"]);
    host(b" h:-1", expect!["refused 400 HostInvalid"]);
    host(b" h:+1", expect!["refused 400 HostInvalid"]);
    host(b" h: 80", expect!["refused 400 HostInvalid"]);
    host(b" h :80", expect!["refused 400 HostInvalid"]);
    host(b" :80", expect!["refused 400 HostInvalid"]);
    host(b" :", expect!["refused 400 HostInvalid"]);
    host(b" a b", expect!["refused 400 HostInvalid"]);
    host(b" a/b", expect!["refused 400 HostInvalid"]);
    host(b" a?b", expect!["refused 400 HostInvalid"]);
    host(b" a#b", expect!["refused 400 HostInvalid"]);
    host(b" u@h", expect!["refused 400 HostInvalid"]);
    host(b" a\\b", expect!["refused 400 HostInvalid"]);
    host(b" <h>", expect!["refused 400 HostInvalid"]);
    host(b" \"h\"", expect!["refused 400 HostInvalid"]);
    host(b" h\xc3\xa4", expect!["refused 400 HostInvalid"]);
    host(b" ::1", expect!["refused 400 HostInvalid"]);
    host(b" []", expect!["refused 400 HostInvalid"]);
    host(b" [::1]x", expect!["refused 400 HostInvalid"]);
    host(b" [::1]]", expect!["refused 400 HostInvalid"]);
    host(b" [[::1]]", expect!["refused 400 HostInvalid"]);
    host(b" [::g]", expect!["refused 400 HostInvalid"]);
    host(b" [1.2.3.4]", expect!["refused 400 HostInvalid"]);
    host(b" [::1%25eth0]", expect!["refused 400 HostInvalid"]);
    host(b" [fe80::1%eth0]", expect!["refused 400 HostInvalid"]);
    host(b" [v.a]", expect!["refused 400 HostInvalid"]);
    host(b" [v1.]", expect!["refused 400 HostInvalid"]);
    host(b" [v1a]", expect!["refused 400 HostInvalid"]);
    host(b" [vg.a]", expect!["refused 400 HostInvalid"]);
    host(b" [v1.a b]", expect!["refused 400 HostInvalid"]);
    host(b" ]", expect!["refused 400 HostInvalid"]);
    host(b" h]", expect!["refused 400 HostInvalid"]);
    host(b" http://h", expect!["refused 400 HostInvalid"]);
    host(b" a|b", expect!["refused 400 HostInvalid"]);
    host(b" a^b", expect!["refused 400 HostInvalid"]);
    host(b" {h}", expect!["refused 400 HostInvalid"]);
    host(b" h, i:1, j", expect!["refused 400 HostInvalid"]);
}

#[test]
fn a_content_length_is_one_number() {
    field(b"Content-Length: 0", expect!["POST / 1.1 length=0"]);
    field(b"content-length: 0", expect!["POST / 1.1 length=0"]);
    field(b"CONTENT-LENGTH:0", expect!["POST / 1.1 length=0"]);
    field(b"Content-Length: 0000", expect!["POST / 1.1 length=0"]);
    field(b"Content-Length: \t0\t", expect!["POST / 1.1 length=0"]);
    field(b"Content-Length: 3", expect!["POST / 1.1 length=3; more"]);
    field(b"Content-Length: 64", expect!["POST / 1.1 length=64; more"]);
}

#[test]
fn any_other_content_length_is_refused() {
    field(b"Content-Length: +5", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: -5", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 0x5", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 5,5", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 5, 5", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length:", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: ", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 5 5", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 5.0", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 5e1", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: five", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 5;", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: \"5\"", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 5\x005", expect!["refused 400 FieldValueInvalid"]);
    field(b"Content-Length: 18446744073709551616", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 99999999999999999999999999", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: 5\r\nContent-Length: 5", expect!["refused 400 LengthRepeated"]);
    field(b"Content-Length: 5\r\nContent-Length: 6", expect!["refused 400 LengthRepeated"]);
    field(b"Content-Length: 0\r\ncontent-length: 0", expect!["refused 400 LengthRepeated"]);
    field(b"Content-Length : 5", expect!["refused 400 FieldNameInvalid"]);
    field(b"Content-Length: 5_0", expect!["refused 400 LengthInvalid"]);
    field(b"Content-Length: \xb2", expect!["refused 400 LengthInvalid"]);
}

#[test]
fn a_declared_length_over_the_bound_is_refused() {
    field(b"Content-Length: 65", expect!["POST / 1.1 length=65; refused 413 ContentTooLong"]);
    field(
        b"Content-Length: 400000000000",
        expect!["POST / 1.1 length=400000000000; refused 413 ContentTooLong"],
    );
    field(
        b"Content-Length: 18446744073709551615",
        expect!["POST / 1.1 length=18446744073709551615; refused 413 ContentTooLong"],
    );
}

#[test]
fn a_transfer_coding_is_exactly_chunked() {
    field(b"Transfer-Encoding: chunked", expect!["POST / 1.1 chunked; more"]);
    field(b"transfer-encoding:CHUNKED", expect!["POST / 1.1 chunked; more"]);
    field(b"TRANSFER-ENCODING: \tChunked \t", expect!["POST / 1.1 chunked; more"]);
}

#[test]
fn any_other_transfer_coding_is_refused() {
    field(b"Transfer-Encoding:", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: identity", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: gzip", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: gzip, chunked", expect!["refused 501 CodingUnsupported"]);
    field(b"Transfer-Encoding: identity, chunked", expect!["refused 501 CodingUnsupported"]);
    field(b"Transfer-Encoding: chunked, chunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunked, gzip", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunked, identity", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunked,", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: ,chunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: gzip,,chunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: xchunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunkedx", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunke", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunked;q=1", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunked ;", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: \"chunked\"", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: 'chunked'", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chun ked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: \x0bchunked", expect!["refused 400 FieldValueInvalid"]);
    field(b"Transfer-Encoding: chunked\x00", expect!["refused 400 FieldValueInvalid"]);
    field(b"Transfer-Encoding: chunked\x0c", expect!["refused 400 FieldValueInvalid"]);
    field(b"Transfer-Encoding: \xa0chunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: gzip chunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: gz(ip, chunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", expect!["refused 400 CodingInvalid"]);
    field(b"Transfer-Encoding : chunked", expect!["refused 400 FieldNameInvalid"]);
    field(b"Transfer-Encoding\t: chunked", expect!["refused 400 FieldNameInvalid"]);
    field(b"Transfer-Encoding: chunked\r\n x", expect!["refused 400 FieldNameInvalid"]);
    field(b"Transfer_Encoding: chunked", expect!["POST / 1.1"]);
}

#[test]
fn a_length_beside_a_coding_is_refused() {
    field(b"Content-Length: 3\r\nTransfer-Encoding: chunked", expect!["refused 400 AmbiguousLength"]);
    field(b"Transfer-Encoding: chunked\r\nContent-Length: 3", expect!["refused 400 AmbiguousLength"]);
    field(b"Transfer-Encoding: chunked\r\nContent-Length: 0", expect!["refused 400 AmbiguousLength"]);
    field(b"Transfer-Encoding: chunked\r\nContent-Length: x", expect!["refused 400 LengthInvalid"]);
    field(b"Transfer-Encoding: gzip, chunked\r\nContent-Length: 3", expect!["refused 501 CodingUnsupported"]);
}

#[test]
fn http_1_0_knows_no_transfer_coding() {
    field_1_0(b"Transfer-Encoding: chunked", expect!["refused 400 CodingInHttp10"]);
    field_1_0(b"Transfer-Encoding: identity", expect!["refused 400 CodingInHttp10"]);
    field_1_0(b"Content-Length: 3\r\nTransfer-Encoding: chunked", expect!["refused 400 CodingInHttp10"]);
    field_1_0(b"Content-Length: 0", expect!["POST / 1.0 length=0; close Http10"]);
}

#[test]
fn only_100_continue_can_be_expected() {
    field(b"Expect: 100-continue\r\nContent-Length: 3", expect!["POST / 1.1 length=3 continue; 100; more"]);
    field(
        b"Expect: 100-Continue\r\nTransfer-Encoding: chunked",
        expect!["POST / 1.1 chunked continue; 100; more"],
    );
    field(b"Expect: 100-continue", expect!["POST / 1.1"]);
    field(b"Expect: 100-continue\r\nContent-Length: 0", expect!["POST / 1.1 length=0"]);
    field(
        b"Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 3",
        expect!["POST / 1.1 length=3 continue; 100; more"],
    );
    field(b"Expect: 100-continue, x", expect!["refused 417 ExpectationUnknown"]);
    field(b"Expect: tea", expect!["refused 417 ExpectationUnknown"]);
    field(b"Expect:", expect!["refused 417 ExpectationUnknown"]);
    field(b"Expect: 100", expect!["refused 417 ExpectationUnknown"]);
    field(b"Expect: 100-continue;q=1", expect!["refused 417 ExpectationUnknown"]);
}

#[test]
fn http_1_0_knows_no_expectation() {
    field_1_0(b"Expect: 100-continue\r\nContent-Length: 3", expect!["POST / 1.0 length=3; more"]);
    field_1_0(b"Expect: tea", expect!["POST / 1.0; close Http10"]);
}

#[test]
fn a_connection_option_decides_who_stays() {
    field(b"Connection: close", expect!["POST / 1.1; close PeerAsked"]);
    field(b"connection: CLOSE", expect!["POST / 1.1; close PeerAsked"]);
    field(b"Connection: keep-alive", expect!["POST / 1.1"]);
    field(b"Connection: keep-alive, close", expect!["POST / 1.1; close PeerAsked"]);
    field(b"Connection: close\r\nConnection: keep-alive", expect!["POST / 1.1; close PeerAsked"]);
    field(b"Connection: keep-alive\r\nConnection: close", expect!["POST / 1.1; close PeerAsked"]);
    field(b"Connection: a, ,close ,b", expect!["POST / 1.1; close PeerAsked"]);
    field(b"Connection:", expect!["POST / 1.1"]);
    field(b"Connection: closed", expect!["POST / 1.1"]);
    field(b"Connection: close;x", expect!["POST / 1.1"]);
    field(b"Connection: clo se", expect!["POST / 1.1"]);
    field(b"Proxy-Connection: close", expect!["POST / 1.1"]);
}

#[test]
fn http_1_0_closes_unless_told_to_stay() {
    field_1_0(b"A: b", expect!["POST / 1.0; close Http10"]);
    field_1_0(b"Connection: keep-alive", expect!["POST / 1.0"]);
    field_1_0(b"Connection: Keep-Alive", expect!["POST / 1.0"]);
    field_1_0(b"Connection: keep-alive, x", expect!["POST / 1.0"]);
    field_1_0(b"Connection: close", expect!["POST / 1.0; close Http10"]);
    field_1_0(b"Connection: keep-alive, close", expect!["POST / 1.0; close Http10"]);
    field_1_0(b"Connection: keep-alive\r\nConnection: close", expect!["POST / 1.0; close Http10"]);
    field_1_0(b"Keep-Alive: timeout=5", expect!["POST / 1.0; close Http10"]);
}

#[test]
fn an_upgrade_is_wanted_if_connection_lists_it() {
    field(b"Connection: upgrade\r\nUpgrade: websocket", expect!["POST / 1.1 upgrade=websocket"]);
    field(b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket", expect!["POST / 1.1 upgrade=websocket"]);
    field(b"Upgrade: websocket\r\nConnection: Upgrade", expect!["POST / 1.1 upgrade=websocket"]);
    field(b"Upgrade: websocket", expect!["POST / 1.1"]);
    field(b"Connection: upgrade", expect!["POST / 1.1"]);
    field(b"Connection: upgrade\r\nUpgrade:", expect!["POST / 1.1"]);
    field(b"Connection: close, upgrade\r\nUpgrade: h2c", expect!["POST / 1.1 upgrade=h2c; close PeerAsked"]);
}

#[test]
fn http_1_0_cannot_upgrade() {
    field_1_0(b"Connection: keep-alive, upgrade\r\nUpgrade: websocket", expect!["POST / 1.0"]);
}
