//! How requests arrive, and how refusals are sent. The corpus has the requests that are refused.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use filoplume_runtime::{Request, ServerConfig};
use filoplume_tests::{TestServer, eventually, site};

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n";

/// Sends each row followed by a complete request. Expects one response with that status, and then
/// the end.
#[track_caller]
fn refused(status: u16, rows: &[&str]) {
    let server = TestServer::start(site);
    for row in rows {
        let mut client = server.client();
        client.send(format!("{row}{SMUGGLED}"));
        let response =
            client.try_response().unwrap_or_else(|ended| panic!("no answer to {row:?}: {ended}"));
        assert_eq!(response.status, status, "{row:?}: {response:?}");
        assert!(response.closes(), "{row:?}: {response:?}");
        assert!(response.header("date").is_some(), "{row:?}: {response:?}");
        let rest = client.read_to_end();
        assert!(rest.is_empty(), "behind {row:?}: {}", rest.escape_ascii());
    }
    eventually("each refusal is counted", || server.metrics().refused == rows.len() as u64);
}

#[test]
fn endless_chunk_extensions_and_trailers_are_refused() {
    let head = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    let long_extension = format!("{head}5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(1000));
    let many_extensions =
        format!("{head}{}0\r\n\r\n", format!("1;{}\r\nx\r\n", "a".repeat(200)).repeat(200));
    refused(400, &[&long_extension, &many_extensions]);
    let long_trailer = format!("{head}5\r\nhello\r\n0\r\nX: {}\r\n\r\n", "a".repeat(10_000));
    let many_trailers = format!("{head}5\r\nhello\r\n0\r\n{}\r\n", "X: y\r\n".repeat(500));
    refused(431, &[&long_trailer, &many_trailers]);
}

#[test]
fn an_endless_chunk_extension_is_refused_while_it_arrives() {
    let server = TestServer::start(site);
    let mut client = server.client();
    client.send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5;");
    client.send("a".repeat(1000));
    assert_eq!(client.response().status, 400);
}

#[test]
fn a_request_sent_byte_by_byte_is_answered() {
    let server = TestServer::start(site);
    let requests = [
        ("GET /a?b=c HTTP/1.1\r\nHost: test\r\nX: y\r\n\r\n", "GET /a?b=c"),
        (
            "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 11\r\n\r\nhello world",
            "hello world",
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: \
             chunked\r\n\r\n5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX: y\r\n\r\n",
            "hello world",
        ),
    ];
    let mut client = server.client();
    for (request, text) in requests {
        let (last, before) = request.as_bytes().split_last().unwrap();
        // Each byte is a separate segment, and there is no response before the last one.
        client.drip(before, Duration::from_millis(1));
        client.is_silent_for(Duration::from_millis(5));
        assert_eq!(client.send([*last]).response().text(), text);
    }
}

#[test]
fn a_request_cut_anywhere_is_answered_as_one_in_one_piece() {
    let server = TestServer::start(site);
    let request = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: \
                   chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
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
        // More than the socket's buffers take at once. If the socket were closed with unread bytes,
        // the connection would be reset.
        for _ in 0..16 {
            if client.try_send(vec![b'x'; 64 * 1024]).is_err() {
                break;
            }
        }
        assert_eq!(client.response().status, 400);
        client.is_closed();
    }
}

/// Requests that are refused or fail, with the placeholder `METHOD`, and their status.
const FAILING: &[(u16, &str)] = &[
    (400, "METHOD / HTTP/1.1\r\n\r\n"),
    (400, "\r\nMETHOD / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    (400, "METHOD / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
    (408, "METHOD / HTTP/1.1\r\nHo"),
    (408, "METHOD / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nab"),
    (413, "METHOD / HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999999\r\n\r\n"),
    (417, "METHOD / HTTP/1.1\r\nHost: t\r\nExpect: tea\r\n\r\n"),
    (431, "METHOD / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: \\x\r\n\r\n"),
    (500, "METHOD /panic HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"),
    (501, "METHOD / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
    (505, "METHOD / HTTP/2.0\r\nHost: t\r\n\r\n"),
];

#[test]
fn all_errors_have_a_date_and_no_content_in_response_to_head() {
    let config = ServerConfig::default()
        .head_timeout(Duration::from_millis(100))
        .content_timeout(Duration::from_millis(100));
    let server = TestServer::with(config, |request: Request| {
        if request.path() == "/panic" {
            // `resume_unwind` does not print a panic message.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        site(request)
    });
    for (status, request) in FAILING {
        let request = request.replace("\\x", &"x".repeat(10_000));
        for method in ["GET", "HEAD"] {
            let mut client = server.client();
            client.send(request.replace("METHOD", method));
            let is_head = method == "HEAD";
            let response = if is_head { client.head_response() } else { client.response() };
            assert_eq!(response.status, *status, "{method} {request:.60}: {response:?}");
            assert_eq!(response.headers("date").len(), 1, "{response:?}");
            assert!(response.closes(), "{response:?}");
            client.is_closed();
        }
    }
}
