//! What is not one clear request is refused, and nothing behind it is taken for another.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use filoplume_tests::{TestServer, eventually, site};

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n";

/// Sends each row with a whole request behind it. One answer may come, with that status; then the end.
#[track_caller]
fn refused(status: u16, rows: &[&str]) {
    let server = TestServer::start(site);
    for row in rows {
        let mut client = server.client();
        client.send(format!("{row}{SMUGGLED}"));
        let response = client.try_response().unwrap_or_else(|ended| panic!("no answer to {row:?}: {ended}"));
        assert_eq!(response.status, status, "{row:?}: {response:?}");
        assert!(response.closes(), "{row:?}: {response:?}");
        assert!(response.header("date").is_some(), "{row:?}: {response:?}");
        let rest = client.read_to_end();
        assert!(rest.is_empty(), "behind {row:?}: {}", rest.escape_ascii());
    }
    eventually("each refusal is counted", || server.metrics().refused == rows.len() as u64);
}

/// Sends each row with a whole request behind it. Both are answered, the first with this text.
#[track_caller]
fn accepted(text: &str, rows: &[&str]) {
    let server = TestServer::start(site);
    for row in rows {
        let mut client = server.client();
        client.send(format!("{row}{SMUGGLED}"));
        let response = client.try_response().unwrap_or_else(|ended| panic!("no answer to {row:?}: {ended}"));
        assert_eq!((response.status, response.text()), (200, text), "{row:?}");
        assert_eq!(client.response().text(), "GET /smuggled", "behind {row:?}");
    }
}

#[test]
fn a_content_length_that_is_not_one_number_is_refused() {
    let values = [
        "+5",
        "-5",
        "0x5",
        "5,5",
        "5, 5",
        "",
        " ",
        "5 5",
        "5.0",
        "five",
        "5\t6",
        "18446744073709551616",
        "99999999999999999999999",
        "５",
    ];
    let rows =
        values.map(|value| format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {value}\r\n\r\nhello"));
    refused(400, &rows.each_ref().map(String::as_str));
}

#[test]
fn two_lengths_are_refused() {
    refused(
        400,
        &[
            "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
            "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn a_transfer_coding_other_than_one_chunked_is_refused() {
    let fields = [
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: chu\0nked",
        "Transfer-Encoding:",
    ];
    let rows = fields.map(|field| format!("POST /echo HTTP/1.1\r\nHost: t\r\n{field}\r\n\r\n0\r\n\r\n"));
    refused(400, &rows.each_ref().map(String::as_str));
}

#[test]
fn a_transfer_coding_that_is_not_known_is_not_implemented() {
    refused(501, &["POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"]);
}

#[test]
fn a_transfer_coding_in_http_1_0_is_refused() {
    refused(
        400,
        &[
            "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn a_chunk_that_is_not_framed_exactly_is_refused() {
    let chunks = [
        "+5\r\nhello\r\n0\r\n\r\n",
        "-1\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5g\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        ";a=b\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloo\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
        "5\r\nhello\r\n0\r\nX: y\n\r\n",
        "5\r\nhello\r\n0\r\nX : y\r\n\r\n",
        "5\r\nhello\r\n0\r\nX\0: y\r\n\r\n",
    ];
    let rows = chunks.map(|chunks| {
        format!("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")
    });
    refused(400, &rows.each_ref().map(String::as_str));
}

#[test]
fn endless_chunk_extensions_and_trailers_are_refused() {
    let head = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    let long_extension = format!("{head}5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(1000));
    let many_extensions = format!("{head}{}0\r\n\r\n", format!("1;{}\r\nx\r\n", "a".repeat(200)).repeat(200));
    refused(400, &[&long_extension, &many_extensions]);
    let long_trailer = format!("{head}5\r\nhello\r\n0\r\nX: {}\r\n\r\n", "a".repeat(10_000));
    let many_trailers = format!("{head}5\r\nhello\r\n0\r\n{}\r\n", "X: y\r\n".repeat(500));
    refused(431, &[&long_trailer, &many_trailers]);
}

#[test]
fn an_endless_chunk_extension_is_refused_while_it_comes() {
    let server = TestServer::start(site);
    let mut client = server.client();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5;");
    client.send("a".repeat(1000));
    assert_eq!(client.response().status, 400);
}

#[test]
fn line_ends_other_than_cr_lf_are_refused() {
    refused(
        400,
        &[
            "GET / HTTP/1.1\nHost: t\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nX: y\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\n\n",
            "GET / HTTP/1.1\rHost: t\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\rX: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nX: a\rb\r\n\r\n",
            "\n\nGET / HTTP/1.1\r\nHost: t\r\n\r\n",
        ],
    );
}

#[test]
fn header_lines_that_readers_disagree_about_are_refused() {
    refused(
        400,
        &[
            "GET / HTTP/1.1\r\nHost: t\r\nX: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nX\0: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nX: a\r\n\tb\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: t\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : t\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nContent-Length : 5\r\n\r\nhello",
            "GET / HTTP/1.1\r\nHost: t\r\nX\t: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\n: no name\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nX(y): z\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nX: \x07\r\n\r\n",
        ],
    );
}

#[test]
fn a_request_without_one_valid_host_is_refused() {
    let hosts = [
        "X: y",
        "Host: a\r\nHost: a",
        "Host: a\r\nHost: b",
        "Host: h:abc",
        "Host: [::1",
        "Host: ::1",
        "Host: h:1:2",
        "Host: h%zz",
        "Host: h:99999999",
        "Host: a b",
        "Host: a/b",
        "Host: user@h",
        "Host: h?q",
        "Host: h#f",
        "Host: [::g]",
        "Host: a\\b",
    ];
    let rows = hosts.map(|host| format!("GET / HTTP/1.1\r\n{host}\r\n\r\n"));
    refused(400, &rows.each_ref().map(String::as_str));
}

#[test]
fn a_request_line_that_is_not_clear_is_refused() {
    refused(
        400,
        &[
            "GET  / HTTP/1.1\r\nHost: t\r\n\r\n",
            "GET /  HTTP/1.1\r\nHost: t\r\n\r\n",
            " GET / HTTP/1.1\r\nHost: t\r\n\r\n",
            "GET\t/\tHTTP/1.1\r\nHost: t\r\n\r\n",
            "GET / HTTP/1.1 \r\nHost: t\r\n\r\n",
            "GET / http/1.1\r\nHost: t\r\n\r\n",
            "GET / HTTP/1.10\r\nHost: t\r\n\r\n",
            "GET /\r\nHost: t\r\n\r\n",
            "GET / a HTTP/1.1\r\nHost: t\r\n\r\n",
            "GET no-slash HTTP/1.1\r\nHost: t\r\n\r\n",
            "GET /\0 HTTP/1.1\r\nHost: t\r\n\r\n",
            "G@T / HTTP/1.1\r\nHost: t\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: t\r\n\r\n",
            "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03",
        ],
    );
}

#[test]
fn another_version_is_not_supported() {
    refused(
        505,
        &[
            "GET / HTTP/1.2\r\nHost: t\r\n\r\n",
            "GET / HTTP/0.9\r\nHost: t\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ],
    );
}

#[test]
fn an_unknown_expectation_is_refused() {
    refused(417, &["POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 200-ok\r\nContent-Length: 5\r\n\r\nhello"]);
}

#[test]
fn what_is_unusual_but_clear_is_answered() {
    accepted(
        "GET /",
        &[
            "\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:t\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: \t t \t\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\nhOsT: [::1]:80\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nX:\r\nX: \u{e9}\r\nX: a\tb\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 000\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nConnection: keep-alive, X\r\nX: y\r\n\r\n",
        ],
    );
    accepted("GET /%ff%00?%zz", &["GET /%ff%00?%zz HTTP/1.1\r\nHost: t\r\n\r\n"]);
    accepted("GET http://else:1/a?b", &["GET http://else:1/a?b HTTP/1.1\r\nHost: t\r\n\r\n"]);
    accepted("OPTIONS *", &["OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n"]);
    accepted(
        "hello",
        &[
            "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n005;a;b=c;d=\"e\"\r\nhello\r\n000\r\nX: y\r\n\r\n",
            "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn a_wish_to_upgrade_changes_nothing_unless_it_is_granted() {
    accepted(
        "GET /",
        &[
            "GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n",
        ],
    );
}

#[test]
fn a_request_that_comes_byte_by_byte_is_answered() {
    let server = TestServer::start(site);
    let requests = [
        ("GET /a?b=c HTTP/1.1\r\nHost: test\r\nX: y\r\n\r\n", "GET /a?b=c"),
        ("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 11\r\n\r\nhello world", "hello world"),
        (
            "POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX: y\r\n\r\n",
            "hello world",
        ),
    ];
    let mut client = server.client();
    for (request, text) in requests {
        let (last, before) = request.as_bytes().split_last().unwrap();
        // Each byte is a segment of its own, and nothing is said before the last one.
        client.drip(before, Duration::from_millis(1));
        client.is_silent_for(Duration::from_millis(5));
        assert_eq!(client.send([*last]).response().text(), text);
    }
}

#[test]
fn a_request_cut_anywhere_is_answered_as_if_it_were_whole() {
    let server = TestServer::start(site);
    let request =
        "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut client = server.client();
    for cut in 1..request.len() {
        let (first, second) = request.split_at(cut);
        client.send(first).is_silent_for(Duration::from_millis(2));
        assert_eq!(client.send(second).response().text(), "hello", "cut at {cut}");
    }
}

#[test]
fn a_refusal_reaches_a_peer_that_is_still_sending() {
    let server = TestServer::start(site);
    for _ in 0..20 {
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
        // More than the socket's buffers take at once: were the socket closed with it unread, it would be reset.
        for _ in 0..16 {
            if client.try_send(vec![b'x'; 64 * 1024]).is_err() {
                break;
            }
        }
        assert_eq!(client.response().status, 400);
        client.is_closed();
    }
}
