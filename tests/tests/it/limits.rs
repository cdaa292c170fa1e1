//! Every limit of the configuration, and the effect of exceeding it.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::ErrorKind;
use std::io::Read;
use std::time::{Duration, Instant};

use filoplume_runtime::{Limits, Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Ended, Gate, TestServer, ask, eventually, site};

const SHORT: Duration = Duration::from_millis(300);

/// How long a timeout may take on a busy machine.
const SOON: Duration = Duration::from_secs(4);

#[test]
fn a_head_has_one_deadline_however_its_bytes_drip() {
    let server = TestServer::with(ServerConfig::default().head_timeout(SHORT), site);
    let endless = format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}", "x".repeat(1000));
    let mut fresh = server.client();
    let took = fresh.drip(endless.as_bytes(), Duration::from_millis(20));
    assert!(took >= SHORT - Duration::from_millis(50) && took < SOON, "{took:?}");
    let response = fresh.response();
    assert_eq!(response.status, 408);
    assert!(response.closes());
    fresh.is_closed();
    // The same on a kept connection.
    let mut kept = server.client();
    kept.is_alive();
    let took = kept.drip(endless.as_bytes(), Duration::from_millis(20));
    assert!(took >= SHORT - Duration::from_millis(50) && took < SOON, "{took:?}");
    assert_eq!(kept.response().status, 408);
    kept.is_closed();
    assert_eq!(server.metrics().timed_out, 2);
}

#[test]
fn a_connection_without_a_request_is_closed_without_a_response() {
    let server = TestServer::with(ServerConfig::default().head_timeout(SHORT), site);
    let mut client = server.client();
    let started = Instant::now();
    client.is_closed();
    assert!(started.elapsed() < SOON);
    server.is_left_by_all();
}

#[test]
fn an_idle_connection_is_closed_without_a_response() {
    let server = TestServer::with(ServerConfig::default().keep_alive_timeout(SHORT), site);
    let mut client = server.client();
    client.is_alive();
    // Each request restarts the timeout.
    for _ in 0..6 {
        client.is_silent_for(SHORT / 3);
        client.is_alive();
    }
    let started = Instant::now();
    client.is_closed();
    let took = started.elapsed();
    assert!(took >= SHORT / 2 && took < SOON, "{took:?}");
    server.is_left_by_all();
}

#[test]
fn an_idle_connection_is_closed_after_its_handler_blocked_too() {
    let config = ServerConfig::default().keep_alive_timeout(SHORT);
    let server = TestServer::with(config, |request: Request| {
        std::thread::sleep(Duration::from_millis(10));
        site(request)
    });
    let mut client = server.client();
    for _ in 0..5 {
        client.is_alive();
    }
    let started = Instant::now();
    client.is_closed();
    assert!(started.elapsed() < SOON);
    server.is_left_by_all();
}

#[test]
fn a_handler_may_take_longer_than_any_timeout_of_the_peer() {
    let config = ServerConfig::default()
        .head_timeout(Duration::from_millis(50))
        .keep_alive_timeout(Duration::from_millis(50))
        .content_timeout(Duration::from_millis(50))
        .write_timeout(Duration::from_millis(50));
    let server = TestServer::with(config, |request: Request| {
        std::thread::sleep(Duration::from_millis(200));
        site(request)
    });
    for _ in 0..3 {
        assert_eq!(server.client().post("/echo", "content").text(), "content");
    }
    assert_eq!(server.metrics().overloaded, 0);
}

/// Reads contents as streams and reports the result.
struct Streamed;

impl Service for Streamed {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().streamed()
    }

    fn call(&self, mut request: Request) -> Response {
        match request.body_mut().read_to_end(&mut Vec::new()) {
            Ok(_) => Response::new(200),
            Err(error) if error.kind() == ErrorKind::TimedOut => Response::new(408),
            Err(_) => Response::new(400),
        }
    }
}

#[test]
fn a_content_that_stops_or_drips_is_a_408() {
    let config = || ServerConfig::default().content_timeout(SHORT);
    for server in [TestServer::with(config(), site), TestServer::with(config(), Streamed)] {
        for head in ["Content-Length: 10000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1000\r\n"]
        {
            for drips in [false, true] {
                let mut client = server.client();
                let started = Instant::now();
                client.send(format!("POST /echo HTTP/1.1\r\nHost: t\r\n{head}some"));
                if drips {
                    client.drip(&[b'x'; 1000], Duration::from_millis(20));
                }
                let response = client.response();
                assert_eq!(response.status, 408, "{head:?}, {drips}");
                assert!(response.closes(), "{response:?}");
                assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
            }
        }
    }
}

#[test]
fn a_content_that_keeps_the_pace_may_take_longer() {
    // Each pause is a fifth of the timeout, so that a busy machine may delay one, and all pauses
    // together are longer than the timeout.
    const TIMEOUT: Duration = Duration::from_secs(2);
    let config = || ServerConfig::default().content_timeout(TIMEOUT).bytes_per_second_min(500);
    for server in [TestServer::with(config(), site), TestServer::with(config(), Streamed)] {
        let mut client = server.client();
        client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 7000\r\n\r\n");
        for _ in 0..6 {
            client.send([b'x'; 1000]).is_silent_for(TIMEOUT / 5);
        }
        assert_eq!(client.send([b'x'; 1000]).response().status, 200);
    }
}

#[test]
fn an_unread_content_that_drips_ends_the_connection() {
    let config = ServerConfig::default().content_timeout(SHORT);
    struct Unread;
    impl Service for Unread {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, _: Request) -> Response {
            Response::from("unread")
        }
    }
    let server = TestServer::with(config, Unread);
    let mut client = server.client();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5000\r\n\r\n");
    assert_eq!(client.response().text(), "unread");
    let took = client.drip(&[b'x'; 1000], Duration::from_millis(20));
    assert!(took < SOON, "{took:?}");
    server.is_left_by_all();
}

#[test]
fn a_reader_that_stops_is_disconnected() {
    let config = || ServerConfig::default().write_timeout(SHORT);
    let server = TestServer::with(config(), |request: Request| {
        if request.path() != "/bytes" {
            return site(request);
        }
        let mut response = Response::default();
        response.set_bytes(vec![b'b'; 30_000_000]);
        response
    });
    for target in ["/bytes", "/large?n=30000000", "/stream?n=30000000"] {
        let timed_out = server.metrics().timed_out;
        let mut client = server.client();
        ask(&mut client, target);
        eventually("the stalled connection is cut", || server.metrics().timed_out > timed_out);
        server.is_left_by_all();
        match client.try_response() {
            Err(Ended::Closed(_) | Ended::Reset(_)) => {}
            Err(other) => panic!("{target}: {other}"),
            Ok(response) => panic!("{target} was complete: {response:?}"),
        }
    }
}

#[test]
fn a_reader_that_drips_is_disconnected() {
    let server = TestServer::with(ServerConfig::default().write_timeout(SHORT), site);
    let mut client = server.client();
    ask(&mut client, "/large?n=30000000");
    let started = Instant::now();
    eventually("the dripping connection is cut", || {
        let _ = client.read_some(100);
        server.metrics().timed_out == 1
    });
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn a_peer_of_an_echo_that_does_not_read_is_disconnected() {
    struct Mirrors;
    impl Service for Mirrors {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, request: Request) -> Response {
            let mut response = Response::default();
            response.set_stream(request.into_body());
            response
        }
    }
    let config = ServerConfig::default().write_timeout(SHORT).content_timeout(SHORT);
    let server = TestServer::with(config, Mirrors);
    let client = server.client();
    let mut sender = client.tcp().try_clone().unwrap();
    let sends = std::thread::spawn(move || {
        let head = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 60000000\r\n\r\n";
        let _ = std::io::Write::write_all(&mut sender, head);
        let _ = std::io::Write::write_all(&mut sender, &vec![b'x'; 60_000_000]);
    });
    eventually("the connection is cut", || {
        let metrics = server.metrics();
        metrics.accepted == 1 && metrics.connections == 0
    });
    sends.join().unwrap();
}

#[test]
fn a_refused_peer_that_keeps_sending_is_disconnected() {
    let server = TestServer::with(ServerConfig::default().linger_timeout(SHORT), site);
    let mut client = server.client();
    client.send("BAD\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let started = Instant::now();
    while client.try_send([b'x'; 1000]).is_ok() {
        assert!(started.elapsed() < SOON, "it could keep sending forever");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.is_left_by_all();
}

#[test]
fn a_head_over_a_bound_is_refused_with_its_status() {
    let limits =
        Limits { head_bytes_max: 1000, target_bytes_max: 100, fields_max: 10, ..Limits::default() };
    let server = TestServer::with(ServerConfig::default().limits(limits), site);
    let long_header = format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "x".repeat(1000));
    let endless_header = format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}", "x".repeat(1000));
    let many_headers = format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "X: y\r\n".repeat(10));
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "x".repeat(100));
    for (request, status) in
        [(&long_header, 431), (&endless_header, 431), (&many_headers, 431), (&long_target, 414)]
    {
        let mut client = server.client();
        client.send(request);
        assert_eq!(client.response().status, status, "{}...", &request[..60]);
        client.is_closed();
    }
    let allowed =
        format!("GET /{} HTTP/1.1\r\nHost: t\r\n{}\r\n", "x".repeat(99), "X: y\r\n".repeat(9));
    assert_eq!(server.client().send(allowed).response().status, 200);
}

#[test]
fn the_default_bounds_of_a_head_hold() {
    let server = TestServer::start(site);
    let rows = [
        (format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "x".repeat(8191)), 200),
        (format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "x".repeat(8192)), 414),
        (format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "X: y\r\n".repeat(99)), 200),
        (format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "X: y\r\n".repeat(100)), 431),
        (format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "x".repeat(16_000)), 200),
        (format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "x".repeat(17_000)), 431),
    ];
    for (request, status) in rows {
        assert_eq!(
            server.client().send(&request).response().status,
            status,
            "{}...",
            &request[..60]
        );
    }
}

#[test]
fn connections_over_the_bound_wait_and_are_not_dropped() {
    for loops in [1, 2] {
        let config = ServerConfig::default().connections_max(4).event_loops(loops);
        let gate = Gate::new();
        let server = TestServer::with(config, {
            let gate = gate.clone();
            move |request: Request| {
                if request.path() == "/gate" {
                    gate.pass();
                }
                site(request)
            }
        });
        let mut first: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for client in &mut first {
            ask(client, "/gate");
        }
        gate.holds(4);
        let mut waiting: Vec<Client> = (0..3).map(|_| server.client()).collect();
        for client in &mut waiting {
            ask(client, "/waited");
        }
        for client in &mut waiting {
            client.is_silent_for(Duration::from_millis(50));
        }
        assert!(server.metrics().connections <= 4, "{:?}", server.metrics());
        gate.open();
        for client in &mut first {
            assert_eq!(client.response().text(), "GET /gate");
        }
        drop(first);
        for client in &mut waiting {
            assert_eq!(client.response().text(), "GET /waited");
            client.is_alive();
        }
    }
}
