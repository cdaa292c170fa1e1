//! Deadlines of contents and responses: only the peer's progress counts.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{ErrorKind, Read};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{TestServer, eventually_within, site};

const SHORT: Duration = Duration::from_millis(300);

/// How long a timeout may take on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// A pace in bytes per second that is so slow that the bytes which a test sends at once would
/// extend the deadline by minutes.
const PACE: u64 = 1000;

/// Plans contents as streams, and waits before each read.
struct Streamed {
    pause: Duration,
}

impl Service for Streamed {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().streamed()
    }

    fn call(&self, mut request: Request) -> Response {
        if request.path() == "/unread" {
            return Response::from("unread");
        }
        let mut piece = vec![0; 100_000];
        loop {
            thread::sleep(self.pause);
            match request.body_mut().read(&mut piece) {
                Ok(0) => return Response::new(200),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => return Response::new(408),
                Err(_) => return Response::new(400),
            }
        }
    }
}

#[test]
fn a_content_that_stops_after_many_quick_bytes_is_a_408() {
    let config = || ServerConfig::default().content_timeout(SHORT).bytes_per_second_min(PACE);
    let streamed = Streamed { pause: Duration::ZERO };
    for server in [TestServer::with(config(), site), TestServer::with(config(), streamed)] {
        for head in
            ["Content-Length: 1000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nF4240\r\n"]
        {
            let mut client = server.client();
            client
                .send(format!("POST /echo HTTP/1.1\r\nHost: t\r\n{head}"))
                .send(vec![b'x'; 900_000]);
            let silent = Instant::now();
            assert_eq!(client.response().status, 408, "{head:?}");
            assert!(silent.elapsed() < SOON, "{:?}", silent.elapsed());
        }
    }
}

#[test]
fn quick_bytes_do_not_extend_the_deadline_of_a_later_trickle() {
    let config = ServerConfig::default().content_timeout(SHORT).bytes_per_second_min(PACE);
    let server = TestServer::with(config, site);
    let mut client = server.client();
    client
        .send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n")
        .send(vec![b'x'; 900_000]);
    let took = client.drip(&[b'x'; 1000], Duration::from_millis(20));
    assert!(took < SOON, "{took:?}");
    assert_eq!(client.response().status, 408);
}

#[test]
fn an_unread_content_that_stops_after_many_quick_bytes_ends_the_connection() {
    let config = ServerConfig::default().content_timeout(SHORT).bytes_per_second_min(PACE);
    let server = TestServer::with(config, Streamed { pause: Duration::ZERO });
    let mut client = server.client();
    client.send("POST /unread HTTP/1.1\r\nHost: t\r\nContent-Length: 250000\r\n\r\n");
    assert_eq!(client.response().text(), "unread");
    client.send(vec![b'x'; 200_000]);
    eventually_within(SOON, "the connection is cut", || server.metrics().connections == 0);
}

#[test]
fn a_peer_that_stops_reading_after_many_quick_bytes_is_disconnected() {
    let config = || ServerConfig::default().write_timeout(SHORT).bytes_per_second_min(PACE);
    let server = TestServer::with(config(), |request: Request| {
        if request.path() != "/bytes" {
            return site(request);
        }
        let mut response = Response::default();
        response.set_bytes(vec![b'b'; 60_000_000]);
        response
    });
    for target in ["/bytes", "/large?n=60000000"] {
        let timed_out = server.metrics().timed_out;
        let mut client = server.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
        client.read_exactly(20_000_000);
        eventually_within(SOON, "the stalled connection is cut", || {
            server.metrics().timed_out > timed_out
        });
        server.is_left_by_all();
    }
}

#[test]
fn a_handler_that_reads_slowly_does_not_make_its_peer_late() {
    // At this pace the bytes that are sent here do not extend the deadline.
    let config = ServerConfig::default().content_timeout(SHORT).bytes_per_second_min(1_000_000_000);
    let server = TestServer::with(config, Streamed { pause: SHORT * 2 });
    let mut client = server.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10000\r\n\r\n");
    for _ in 0..2 {
        client.send([b'x'; 4000]).is_silent_for(SHORT);
    }
    assert_eq!(client.send([b'x'; 2000]).response().status, 200);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10000\r\n\r\n").send([b'x'; 4000]);
    let silent = Instant::now();
    assert_eq!(client.response().status, 408, "the peer's own silence still counts");
    assert!(silent.elapsed() < SOON, "{:?}", silent.elapsed());
}

#[test]
fn a_handler_that_begins_to_read_late_does_not_make_its_peer_late() {
    let config = ServerConfig::default().content_timeout(SHORT).bytes_per_second_min(1_000_000_000);
    let server = TestServer::with(config, Streamed { pause: SHORT * 2 });
    let mut client = server.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_head_only().unwrap().status, 100);
    assert_eq!(client.send([b'x'; 10]).response().status, 200);
}

#[test]
fn a_body_that_is_produced_slowly_does_not_make_its_peer_late() {
    /// A reader that returns this many bytes, each after a pause.
    struct Slow(usize);
    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Ok(0);
            }
            self.0 -= 1;
            thread::sleep(SHORT * 2);
            buffer[0] = b'x';
            Ok(1)
        }
    }
    let config = ServerConfig::default().write_timeout(SHORT).content_timeout(SHORT);
    let server = TestServer::with(config, |request: Request| {
        if request.path() != "/slow" {
            return site(request);
        }
        let mut response = Response::default();
        response.set_stream(Slow(3));
        response
    });
    let mut client = server.client();
    assert_eq!(client.get("/slow").body, b"xxx");
    client.is_alive();
    assert_eq!(server.metrics().timed_out, 0);
}
