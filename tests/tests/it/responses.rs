//! Responses on the wire: heads, contents and their ends, whatever the handler does.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, Read};
use std::panic::resume_unwind;
use std::time::{Duration, SystemTime};

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Ended, Example, Framing, TestServer, eventually_within, site};

fn send(client: &mut Client, method: &str, target: &str, version: &str) {
    client.send(format!("{method} {target} HTTP/{version}\r\nHost: test\r\n\r\n"));
}

/// Returns its bytes, then ends as specified.
struct Reader {
    bytes_left: usize,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    InOrder,
    Error,
    Panic,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.bytes_left.min(buffer.len());
        self.bytes_left -= length;
        buffer[..length].fill(b'r');
        match self.end {
            _ if length > 0 => Ok(length),
            End::InOrder => Ok(0),
            End::Error => Err(io::Error::other("asked to")),
            // `resume_unwind` does not print a panic message.
            End::Panic => resume_unwind(Box::new("asked to")),
        }
    }
}

/// Answers `/sized/<declared>/<given>/<end>` and `/unsized/<given>/<end>` with a reader.
fn readers(request: Request) -> Response {
    let mut parts = request.path().trim_start_matches('/').split('/').rev();
    let end = match parts.next() {
        Some("error") => End::Error,
        Some("panic") => End::Panic,
        Some("end") => End::InOrder,
        _ => return site(request),
    };
    let bytes_left = parts.next().unwrap().parse().unwrap();
    let mut response = Response::default();
    match parts.next().unwrap().parse() {
        Ok(declared) => response.set_reader(Reader { bytes_left, end }, declared),
        Err(_) => response.set_stream(Reader { bytes_left, end }),
    };
    response
}

#[test]
fn the_answer_to_head_is_the_head_of_the_answer_to_get() {
    let server = TestServer::start(readers);
    for target in ["/large?n=0", "/large?n=100000", "/sized/50/50/end", "/unsized/100/end"] {
        let mut client = server.client();
        let get = client.get(target);
        send(&mut client, "HEAD", target, "1.1");
        let head = client.head_response();
        assert_eq!(head.status, get.status, "{target}");
        for name in ["content-length", "content-type"] {
            assert_eq!(head.header(name), get.header(name), "{name} of {target}");
        }
        client.is_alive();
    }
}

#[test]
fn the_reader_of_a_response_to_head_is_not_read() {
    let server = TestServer::start(readers);
    let mut client = server.client();
    for target in ["/sized/5/0/panic", "/unsized/0/panic", "/sized/5/0/error"] {
        send(&mut client, "HEAD", target, "1.1");
        assert_eq!(client.head_response().status, 200, "{target}");
    }
    client.is_alive();
    assert_eq!(server.metrics().panics, 0);
}

#[test]
fn statuses_without_content_have_none_whatever_the_handler_returns() {
    let server = TestServer::start(|request: Request| {
        let status = request.query_value("status").unwrap_or("200").parse::<u16>().unwrap();
        let mut response = Response::new(status);
        match request.path() {
            "/text" => response.set_text("content"),
            "/sized" => response.set_reader(&b"content"[..], 7),
            "/unsized" => response.set_stream(&b"content"[..]),
            _ => &mut response,
        };
        response
    });
    let mut client = server.client();
    for kind in ["/text", "/sized", "/unsized", "/empty"] {
        for status in [204, 304] {
            let response = client.get(&format!("{kind}?status={status}"));
            assert_eq!((response.status, response.framing), (status, Framing::None));
            assert_eq!(response.header("transfer-encoding"), None, "{response:?}");
            assert_eq!(response.header("content-length"), None, "{response:?}");
        }
        let response = client.get(&format!("{kind}?status=205"));
        assert_eq!((response.status, response.body.len()), (205, 0));
        // Surplus bytes would precede this response.
        assert_eq!(client.get("/text").text(), "content");
    }
}

#[test]
fn a_content_of_unknown_length_is_chunked() {
    let server = TestServer::start(readers);
    let mut client = server.client();
    for length in [0, 1, 1000, 65_536, 65_537, 3_000_000] {
        let response = client.get(&format!("/unsized/{length}/end"));
        assert_eq!(response.framing, Framing::Chunked);
        assert_eq!(response.body.len(), length);
        assert!(response.chunks.iter().all(|&size| size <= 64 * 1024), "{:?}", response.chunks);
    }
    client.is_alive();
}

#[test]
fn a_chunk_is_sent_when_the_reader_returns_it() {
    let (next, words) = std::sync::mpsc::channel::<Vec<u8>>();
    struct Words(std::sync::mpsc::Receiver<Vec<u8>>);
    impl Read for Words {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let word = self.0.recv_timeout(Duration::from_secs(10)).unwrap_or_default();
            buffer[..word.len()].copy_from_slice(&word);
            Ok(word.len())
        }
    }
    let words = std::sync::Mutex::new(Some(Words(words)));
    let server = TestServer::start(move |_: Request| {
        let mut response = Response::default();
        response.set_stream(words.lock().unwrap().take().unwrap());
        response
    });
    let mut client = server.client();
    send(&mut client, "GET", "/", "1.1");
    for (index, word) in ["one", "two", "three"].into_iter().enumerate() {
        next.send(word.into()).unwrap();
        if index == 0 {
            assert_eq!(client.read_head_only().unwrap().framing, Framing::Chunked);
        }
        let chunk = format!("{:x}\r\n{word}\r\n", word.len());
        assert_eq!(client.read_exactly(chunk.len()), chunk.as_bytes());
    }
    drop(next);
    assert_eq!(client.read_exactly(5), b"0\r\n\r\n");
}

#[test]
fn http_1_0_gets_no_chunks() {
    let server = TestServer::start(readers);
    for length in [0, 10, 1_000_000] {
        let mut client = server.client();
        let target = format!("/unsized/{length}/end");
        client.send(format!("GET {target} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        let response = client.response();
        assert_eq!(response.header("transfer-encoding"), None);
        assert_eq!((response.framing, response.body.len()), (Framing::UntilEnd, length));
        assert!(response.closes());
    }
}

#[test]
fn http_1_0_connections_are_kept_on_request() {
    let server = TestServer::start(readers);
    let mut client = server.client();
    for _ in 0..5 {
        client.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        let response = client.response();
        assert_eq!(response.text(), "GET /");
        assert_eq!(response.header("connection"), Some("keep-alive"));
    }
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert!(client.response().closes());
    client.is_closed();
}

#[test]
fn a_content_of_known_length_has_this_length() {
    let server = TestServer::start(readers);
    let mut client = server.client();
    for length in [0, 1, 65_536, 65_537, 3_000_000] {
        for given in [length, length + 1, length + 100_000] {
            let response = client.get(&format!("/sized/{length}/{given}/end"));
            assert_eq!((response.framing, response.body.len()), (Framing::Length, length));
        }
    }
    client.is_alive();
}

#[test]
fn a_content_that_ends_early_or_fails_is_not_mistaken_for_complete() {
    let server = TestServer::start(readers);
    for target in [
        "/sized/100/50/end",
        "/sized/100/0/end",
        "/sized/100/50/error",
        "/sized/100/50/panic",
        "/sized/1000000/500000/error",
        "/unsized/50/error",
        "/unsized/0/error",
        "/unsized/50/panic",
        "/unsized/500000/panic",
    ] {
        for _ in 0..3 {
            let mut client = server.client();
            send(&mut client, "GET", target, "1.1");
            send(&mut client, "GET", "/behind", "1.1");
            match client.try_response() {
                Err(Ended::Closed(_) | Ended::Reset(_)) => {}
                Err(other) => panic!("{target}: {other}"),
                Ok(response) => panic!("{target}: {response:?}"),
            }
        }
    }
    server.is_left_by_all();
    server.client().is_alive();
    assert!(server.metrics().panics >= 9, "{:?}", server.metrics());
}

#[test]
fn every_response_has_the_current_date() {
    let server = TestServer::start(site);
    let is_now = |date: &str| {
        let date = httpdate::parse_http_date(date).unwrap();
        assert_eq!(httpdate::fmt_http_date(date).len(), 29, "the fixed form");
        let now = SystemTime::now();
        // The field has whole seconds, and the machine may be busy.
        assert!(date <= now && date + Duration::from_secs(3) > now, "{date:?} at {now:?}");
    };
    let mut client = server.client();
    let first = client.get("/").header("date").unwrap().to_owned();
    is_now(&first);
    eventually_within(Duration::from_secs(5), "the date advances", || {
        let date = client.get("/").header("date").unwrap().to_owned();
        is_now(&date);
        date != first
    });
    client.send("BAD\r\n\r\n");
    is_now(client.response().header("date").expect("a refusal has a date"));
}

#[test]
fn a_date_is_right_after_a_long_silence() {
    let server = TestServer::start(site);
    let mut client = server.client();
    client.is_alive();
    // Nothing wakes the server meanwhile, so a cached date would be too old.
    client.is_silent_for(Duration::from_millis(2100));
    let date = httpdate::parse_http_date(client.get("/").header("date").unwrap()).unwrap();
    assert!(date + Duration::from_secs(2) > SystemTime::now(), "{date:?}");
}

#[test]
fn a_date_of_the_handler_is_the_only_one() {
    let server = TestServer::start(|_: Request| {
        let mut response = Response::default();
        response.add_header("Date", "Thu, 01 Jan 1970 00:00:00 GMT").unwrap();
        response
    });
    assert_eq!(server.client().get("/").header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
}

#[test]
fn line_ends_do_not_get_into_a_head() {
    let server = TestServer::start(|_: Request| {
        let mut response = Response::from("content");
        let rows = [
            ("x", "a\r\nInjected: 1"),
            ("x", "a\nInjected: 1"),
            ("x", "a\rInjected: 1"),
            ("x", "a\0b"),
            ("x", "a\u{7f}"),
            ("x\r\nInjected", "1"),
            ("x\nInjected", "1"),
            ("Injected: 1\r\nx", "y"),
            ("x y", "z"),
            ("x:", "z"),
            ("", "z"),
        ];
        for (name, value) in rows {
            assert!(response.add_header(name, value).is_err(), "{name:?}: {value:?}");
            assert!(response.set_header(name, value).is_err(), "{name:?}: {value:?}");
            assert!(response.headers_mut().append(name, value).is_err(), "{name:?}: {value:?}");
        }
        response.add_header("x-end", "1").unwrap();
        response
    });
    let response = server.client().get("/");
    assert_eq!((response.status, response.text()), (200, "content"));
    assert_eq!(response.header("injected"), None);
    assert_eq!(response.header("x-end"), Some("1"));
}

#[test]
fn the_handler_cannot_set_the_framing() {
    let server = TestServer::start(|request: Request| {
        let mut response = Response::from("content");
        let (name, value) = request.query().unwrap().split_once('=').unwrap();
        response.add_header(name, value).unwrap();
        response
    });
    let mut client = server.client();
    for header in [
        "Content-Length=3",
        "content-length=300",
        "Transfer-Encoding=chunked",
        "Keep-Alive=timeout%3D5",
    ] {
        let response = client.get(&format!("/?{header}"));
        assert_eq!((response.framing, response.text()), (Framing::Length, "content"), "{header}");
        assert_eq!(response.header("keep-alive"), None);
    }
    let response = client.get("/?Connection=close");
    assert!(response.closes());
    client.is_closed();
}

#[test]
fn a_long_content_reaches_a_reader_that_pauses() {
    let server = TestServer::start(|request: Request| {
        if request.path() != "/bytes" {
            return site(request);
        }
        let mut response = Response::default();
        response.set_bytes(vec![b'b'; 20_000_000]);
        response
    });
    for target in ["/bytes", "/large?n=20000000", "/stream?n=20000000"] {
        let mut client = server.client();
        send(&mut client, "GET", target, "1.1");
        // The socket's buffers fill meanwhile, and the server continues to serve.
        for _ in 0..20 {
            server.client().is_alive();
        }
        let response = client.response();
        assert_eq!(response.body.len(), 20_000_000, "{target}");
        client.is_alive();
    }
}

#[test]
fn a_405_lists_the_allowed_methods() {
    let child = Example("bench_engine").start();
    let mut client = child.client();
    for (request, allow) in
        [("POST /json", "GET, HEAD"), ("GET /echo", "POST"), ("DELETE /", "GET, HEAD")]
    {
        let response = client.send(format!("{request} HTTP/1.1\r\nHost: t\r\n\r\n")).response();
        assert_eq!((response.status, response.header("allow")), (405, Some(allow)), "{request}");
    }
    assert_eq!(client.get("/nothing").status, 404);
}

#[test]
fn a_number_that_is_not_a_final_status_is_a_500() {
    let server = TestServer::start(|request: Request| {
        Response::new(request.path().trim_start_matches('/').parse::<u16>().unwrap())
    });
    let mut client = server.client();
    for status in ["0", "99", "1000", "65535", "100", "102", "103"] {
        let response = client.get(&format!("/{status}"));
        assert_eq!(response.status, 500, "instead of {status}: {response:?}");
    }
    for status in [200, 299, 404, 418, 599, 999] {
        assert_eq!(client.get(&format!("/{status}")).status, status);
    }
}

#[test]
fn bytes_after_a_connect_are_not_parsed_as_a_request() {
    let server = TestServer::start(site);
    let mut client = server.client();
    client.send("CONNECT example.org:80 HTTP/1.1\r\nHost: example.org:80\r\n\r\n");
    client.send("GET /tunnelled HTTP/1.1\r\nHost: t\r\n\r\n");
    let response = client.read_head_only().unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(
        (response.header("content-length"), response.header("transfer-encoding")),
        (None, None)
    );
    client.is_closed();
}

#[test]
fn a_response_that_ends_the_connection_is_not_lost_to_later_requests() {
    let server = TestServer::start(|_: Request| {
        let mut response = Response::from("last");
        response.headers_mut().insert("connection", "close").unwrap();
        response
    });
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.response().text(), "last");
    client.is_closed();
    // If the server had closed its socket, the first of these writes would cause a reset, and the
    // next ones would fail.
    for _ in 0..20 {
        client.send("GET /behind HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(server.client().get("/").text(), "last");
    }
}

/// A reader that panics when it is dropped.
struct Falls;

impl Read for Falls {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl Drop for Falls {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_reader_that_panics_when_it_is_dropped_costs_its_connection_and_nothing_else() {
    for dispatched in [false, true] {
        let config = ServerConfig::default().event_loops(1);
        let server = TestServer::with(config, DropsBadly { dispatched });
        for _ in 0..20 {
            let mut client = server.client();
            client.send("HEAD /falls HTTP/1.1\r\nHost: t\r\n\r\n");
            let _ = client.try_response();
            assert_eq!(server.client().get("/plain").status, 200);
        }
    }
}

struct DropsBadly {
    dispatched: bool,
}

impl Service for DropsBadly {
    fn plan(&self, _request: &mut Request) -> Plan {
        if self.dispatched { Plan::new().on_pool() } else { Plan::new() }
    }

    fn call(&self, request: Request) -> Response {
        let mut response = Response::default();
        if request.path() == "/falls" {
            response.set_stream(Falls);
        }
        response
    }
}
