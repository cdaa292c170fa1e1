//! Interim responses: `100 Continue` for peers that wait for it, and early hints.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::mpsc;
use std::time::Duration;

use filoplume_runtime::{EarlyHints, Plan, Request, Response, Service};
use filoplume_tests::{Buffered, DEADLINE, Streamed, TestServer, site};

const EXPECTS: &str =
    "POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

#[test]
fn a_peer_that_expects_100_continue_gets_it_when_its_content_is_read() {
    for server in
        [TestServer::start(site), TestServer::start(Streamed), TestServer::start(Buffered)]
    {
        let mut client = server.client();
        for _ in 0..3 {
            client.send(EXPECTS);
            let interim = client.response();
            assert_eq!((interim.status, interim.lines.len()), (100, 1), "{interim:?}");
            assert_eq!(client.send("hello").response().text(), "hello");
        }
        client.send(
            "POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-Continue\r\nTransfer-Encoding: \
             chunked\r\n\r\n",
        );
        assert_eq!(client.response().status, 100);
        assert_eq!(client.send("5\r\nhello\r\n0\r\n\r\n").response().text(), "hello");
    }
}

#[test]
fn a_peer_that_does_not_wait_for_100_continue_gets_one_response() {
    for server in [TestServer::start(site), TestServer::start(Streamed)] {
        let mut client = server.client();
        client.send(format!("{EXPECTS}hello"));
        let mut response = client.response();
        if response.status == 100 {
            response = client.response();
        }
        assert_eq!(response.text(), "hello");
        client.is_alive();
    }
}

#[test]
fn a_peer_whose_content_is_not_read_gets_no_100_continue() {
    struct Refuses;
    impl Service for Refuses {
        fn plan(&self, request: &mut Request) -> Plan {
            match request.path() {
                "/refused" => Plan::refuse(Response::new(404)),
                "/too-long" => Plan::new().content_bytes_max(4),
                _ => Plan::new().streamed(),
            }
        }
        fn call(&self, request: Request) -> Response {
            site(request)
        }
    }
    let server = TestServer::start(Refuses);
    for (path, status) in [("/refused", 404), ("/too-long", 413), ("/unread", 200)] {
        let mut client = server.client();
        client.send(EXPECTS.replace("/echo", path));
        let response = client.response();
        assert_eq!(response.status, status, "{path}");
        assert!(response.closes(), "it is not known whether the content arrives: {response:?}");
        client.is_closed();
    }
}

#[test]
fn http_1_0_gets_no_interim_response() {
    let server = TestServer::start(site);
    let mut client = server.client();
    client.send(EXPECTS.replace("HTTP/1.1", "HTTP/1.0")).is_silent_for(Duration::from_millis(50));
    assert_eq!(client.send("hello").response().text(), "hello");
}

/// A service that sends hints in the handler, and lets the test send more when it is too late.
struct Hints(mpsc::Sender<EarlyHints>);

impl Service for Hints {
    fn plan(&self, request: &mut Request) -> Plan {
        if request.path() == "/none" { Plan::new() } else { Plan::new().early_hints() }
    }

    fn call(&self, request: Request) -> Response {
        let hints = request.early_hints();
        assert!(hints.send(&["a\r\nset-cookie: b"]).is_err());
        let sent = hints.send(&["</a.css>; rel=preload", "</b.js>; rel=preload"]).unwrap();
        self.0.send(hints).unwrap();
        Response::from(format!("hints: {sent}"))
    }
}

#[test]
fn hints_are_sent_before_the_response_and_never_after_it() {
    let (sender, late) = mpsc::channel();
    let server = TestServer::start(Hints(sender));
    let links = "link: </a.css>; rel=preload\r\nlink: </b.js>; rel=preload\r\n";
    let hints = format!("HTTP/1.1 103 Early Hints\r\n{links}\r\n");
    let hints = hints.as_str();
    let get = |path: &str, version: &str| {
        format!("GET {path} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n")
    };
    let first = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned();
    for (request, expected, content) in [
        (get("/", "1.1"), 1, "hints: true"),
        (get("/", "1.0"), 0, "hints: false"),
        (get("/none", "1.1"), 0, "hints: false"),
        // Pipelined: the hints for the second request come after the response to the first.
        (first + &get("/", "1.1"), 2, "hints: true"),
    ] {
        let mut client = server.client();
        client.send(&request);
        let answer = String::from_utf8(client.read_to_end()).unwrap();
        assert_eq!(answer.matches(hints).count(), expected, "{answer}");
        assert_eq!(answer.starts_with(hints), expected > 0, "{answer}");
        assert!(answer.ends_with(content), "{answer}");
        if expected == 2 {
            let between = format!("hints: true{hints}HTTP/1.1 200 OK");
            assert!(answer.contains(&between), "in order: {answer}");
        }
        let late = late.recv_timeout(DEADLINE).unwrap();
        assert_eq!(late.send(&["</late>"]), Ok(false));
    }
}
