//! Content with a length, in chunks, with trailers, and requests behind one another.

mod driver;

use driver::check;
use expect_test::{Expect, expect};

/// Chunked content with another request behind it.
#[track_caller]
fn chunked(content: &[u8], expected: Expect) {
    let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    check([head, content, b"GET /2 HTTP/1.1\r\nHost: h\r\n\r\n"].concat(), expected);
}

#[test]
fn content_of_a_known_length_ends_there() {
    check(
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        expect![[r#"POST / 1.1 length=3; content "abc""#]],
    );
    check(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab", expect!["POST / 1.1 length=3; more"]);
    check(
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        expect![[r#"POST / 1.1 length=3; content "abc"; GET /2 1.1"#]],
    );
    check(
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n\r\n\r",
        expect![[r#"GET / 1.1 length=3; content "\r\n\r""#]],
    );
    check(
        b"HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        expect![[r#"HEAD / 1.1 length=2; content "ab"; GET /2 1.1"#]],
    );
    check(
        b"POST / HTTP/1.0\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nabPOST /2 HTTP/1.0\r\n\r\n",
        expect![[r#"POST / 1.0 length=2; content "ab"; POST /2 1.0; close Http10"#]],
    );
    check(
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n\x00\xff",
        expect![[r#"POST / 1.1 length=2; content "\x00\xff""#]],
    );
}

#[test]
fn chunks_are_joined() {
    chunked(b"0\r\n\r\n", expect![[r#"POST / 1.1 chunked; content ""; GET /2 1.1"#]]);
    chunked(b"3\r\nabc\r\n0\r\n\r\n", expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]]);
    chunked(
        b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]],
    );
    chunked(
        b"a\r\n0123456789\r\n0\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "0123456789"; GET /2 1.1"#]],
    );
    chunked(
        b"A\r\n0123456789\r\n0\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "0123456789"; GET /2 1.1"#]],
    );
    chunked(b"0003\r\nabc\r\n0\r\n\r\n", expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]]);
    chunked(
        b"00000000000000000000003\r\nabc\r\n0\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]],
    );
    chunked(b"3\r\nabc\r\n0000\r\n\r\n", expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]]);
    chunked(
        b"5\r\na\r\nb\n\r\n0\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "a\r\nb\n"; GET /2 1.1"#]],
    );
    chunked(b"3\r\n0\r\n\r\n0\r\n\r\n", expect![[r#"POST / 1.1 chunked; content "0\r\n"; GET /2 1.1"#]]);
}

#[test]
fn a_chunk_size_is_hexadecimal_and_fits() {
    chunked(b"+3\r\nabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"-3\r\nabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"0x3\r\nabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b" 3\r\nabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"3 \r\nabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"3\t\r\nabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"g\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"3h\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"3_0\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b";a\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"\x003\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"10000000000000000\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"FFFFFFFFFFFFFFFF\r\n", expect!["POST / 1.1 chunked; refused 413 ContentTooLong"]);
    chunked(b"fffffffffffffffff\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(
        b"FFFFFFFF0000000000000003\r\nabc\r\n0\r\n\r\n",
        expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"],
    );
    chunked(b"3.\r\nabc", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"3,3\r\nabc", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"\xb2\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
}

#[test]
fn a_chunk_line_ends_in_cr_lf() {
    chunked(b"3\nabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"3\rabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\r\rabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\n\rabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"0\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"0\r\n\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"0\r\n\r\r", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"3;a\nabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a\rabc\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
}

#[test]
fn the_data_of_a_chunk_ends_where_its_size_says() {
    chunked(b"3\r\nabcd\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\r\nab\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\r\nabc\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\r\nabc\r0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\r\nabc0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\r\nabc\n\r0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\r\nabc \r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkEndInvalid"]);
    chunked(b"3\r\nabc\r\n\r\n0\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
}

#[test]
fn content_over_the_bound_is_refused_before_it_is_read() {
    chunked(
        b"40\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n0\r\n\r\n",
        expect![[
            r#"POST / 1.1 chunked; content "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; GET /2 1.1"#
        ]],
    );
    chunked(b"41\r\n", expect!["POST / 1.1 chunked; refused 413 ContentTooLong"]);
    chunked(
        b"3f\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n2\r\n",
        expect!["POST / 1.1 chunked; refused 413 ContentTooLong"],
    );
    chunked(
        b"40\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n1\r\n",
        expect!["POST / 1.1 chunked; refused 413 ContentTooLong"],
    );
}

#[test]
fn well_formed_chunk_extensions_are_skipped() {
    chunked(b"3;a\r\nabc\r\n0\r\n\r\n", expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]]);
    chunked(b"3;a=b\r\nabc\r\n0\r\n\r\n", expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]]);
    chunked(b"3;a=b;c\r\nabc\r\n0;d\r\n\r\n", expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]]);
    chunked(
        b"3;a=\"b;c\\\"d\te\"\r\nabc\r\n0\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]],
    );
    chunked(
        b"3;a=\"\";b=c\r\nabc\r\n0\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]],
    );
    chunked(
        b"3;a=\"\xc3\xa4\"\r\nabc\r\n0\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "abc"; GET /2 1.1"#]],
    );
}

#[test]
fn malformed_chunk_extensions_are_refused() {
    chunked(b"3;\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;=b\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=b=c\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;;a\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3 ;a\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkSizeInvalid"]);
    chunked(b"3; a\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a =b\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a= b\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a \r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=\"b\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=\"b\"c\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=\"b\\\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=\"b\nc\"\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=b\x00\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=\xc3\xa4\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a=\"\x7f\"\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
    chunked(b"3;a\n\r\nabc\r\n", expect!["POST / 1.1 chunked; refused 400 ChunkExtensionInvalid"]);
}

#[test]
fn trailers_are_fields_behind_the_last_chunk() {
    chunked(b"0\r\nA: b\r\n\r\n", expect![[r#"POST / 1.1 chunked; content ""; trailer A=b; GET /2 1.1"#]]);
    chunked(
        b"3\r\nabc\r\n0\r\nA: b\r\nC:\t d \r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content "abc"; trailer A=b; trailer C=d; GET /2 1.1"#]],
    );
    chunked(b"0\r\nA:\r\n\r\n", expect![[r#"POST / 1.1 chunked; content ""; trailer A=; GET /2 1.1"#]]);
    chunked(
        b"0\r\nDigest: x\r\nAuthorization: secret\r\nCookie: a\r\n\r\n",
        expect![[r#"POST / 1.1 chunked; content ""; trailer Digest=x; GET /2 1.1"#]],
    );
    chunked(b"0\r\nConnection: close\r\n\r\n", expect![[r#"POST / 1.1 chunked; content ""; GET /2 1.1"#]]);
}

#[test]
fn trailers_that_frame_or_route_are_refused() {
    chunked(b"0\r\nContent-Length: 3\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerForbidden"]);
    chunked(
        b"0\r\ntransfer-encoding: chunked\r\n\r\n",
        expect!["POST / 1.1 chunked; refused 400 TrailerForbidden"],
    );
    chunked(b"0\r\nA: b\r\nHost: other\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerForbidden"]);
}

#[test]
fn malformed_trailers_are_refused() {
    chunked(b"0\r\nA: b\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\nA: b\r\n\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\nA: b\rC: d\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\nA : b\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\n A: b\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\nA: b\r\n c\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\nA\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\n: b\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\nA: \x00\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
    chunked(b"0\r\nA: b\r\r\n\r\n", expect!["POST / 1.1 chunked; refused 400 TrailerInvalid"]);
}

#[test]
fn requests_behind_one_another_are_answered_in_order() {
    check(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\nGET /3 HTTP/1.1\r\nHost: h\r\n\r\n", expect!["GET /1 1.1; GET /2 1.1; GET /3 1.1"]);
    check(b"POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabPOST /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nc\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nHost: h\r\n\r\n", expect![[r#"POST /1 1.1 length=2; content "ab"; POST /2 1.1 chunked; content "c"; GET /3 1.1"#]]);
    check(
        b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nHost: h\r\n\r\n",
        expect!["GET /1 1.1; refused 400 HostMissing"],
    );
    check(
        b"HEAD /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        expect!["HEAD /1 1.1; GET /2 1.1"],
    );
    check(
        b"GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        expect!["GET /1 1.0; GET /2 1.1"],
    );
}

#[test]
fn what_follows_a_close_is_not_read() {
    check(
        b"GET /1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        expect!["GET /1 1.1; close PeerAsked"],
    );
    check(b"GET /1 HTTP/1.0\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", expect!["GET /1 1.0; close Http10"]);
    check(b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n\x16\x03\x01", expect!["CONNECT h:1 1.1; close Upgraded"]);
    check(
        b"GET /1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n\x00garbage",
        expect!["GET /1 1.1; close PeerAsked"],
    );
}

#[test]
fn a_peer_that_expects_100_is_told_to_go_on_once() {
    check(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", expect![[r#"POST / 1.1 length=3 continue; 100; content "abc"; GET /2 1.1"#]]);
    check(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", expect![[r#"POST / 1.1 chunked continue; 100; content "a""#]]);
    check(
        b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 65\r\n\r\n",
        expect!["POST / 1.1 length=65 continue; refused 413 ContentTooLong"],
    );
}
