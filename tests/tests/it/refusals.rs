//! Refusals are counted by their reason, and connections per client are limited.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::net::{Ipv6Addr, TcpListener};
use std::thread;
use std::time::Duration;

use filoplume::App;
use filoplume_runtime::{
    Limits, ParseError, Plan, Refusal, Request, Response, Server, ServerConfig, Service,
};
use filoplume_tests::{Client, Ended, Gate, TestServer, eventually, site};

const SHORT: Duration = Duration::from_millis(200);

fn refusals(server: &TestServer) -> HashMap<Refusal, u64> {
    server.metrics().refusals().collect()
}

fn count(server: &TestServer, refusal: Refusal) -> u64 {
    refusals(server).get(&refusal).copied().unwrap_or(0)
}

#[test]
fn each_refusal_is_counted_by_its_reason_and_accepted_requests_are_not() {
    let limits =
        Limits { head_bytes_max: 1000, target_bytes_max: 100, fields_max: 10, ..Limits::default() };
    let config = ServerConfig::default().limits(limits).content_bytes_max(1000).head_timeout(SHORT);
    let server = TestServer::with(config, site);
    let get = |more: &str| format!("GET / HTTP/1.1\r\nHost: t\r\n{more}\r\n");
    let post = |more: &str| format!("POST /echo HTTP/1.1\r\nHost: t\r\n{more}");
    let rows = [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), get(""), ParseError::HostMissing, 400),
        (
            post("Content-Length: 1001\r\n\r\n"),
            post(&format!("Content-Length: 1000\r\n\r\n{}", "x".repeat(1000))),
            ParseError::ContentTooLong,
            413,
        ),
        (
            format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "x".repeat(100)),
            format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "x".repeat(99)),
            ParseError::TargetTooLong,
            414,
        ),
        (
            post("Expect: the-spanish-inquisition\r\nContent-Length: 1\r\n\r\nx"),
            post("Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx"),
            ParseError::ExpectationUnknown,
            417,
        ),
        (get(&"X: y\r\n".repeat(10)), get(&"X: y\r\n".repeat(9)), ParseError::TooManyFields, 431),
        (
            post("Transfer-Encoding: gzip, chunked\r\n\r\n"),
            post("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            ParseError::CodingUnsupported,
            501,
        ),
        (
            "GET / HTTP/2.0\r\nHost: t\r\n\r\n".to_owned(),
            "GET / HTTP/1.0\r\n\r\n".to_owned(),
            ParseError::VersionUnsupported,
            505,
        ),
    ];
    let mut refused = 0;
    for (over, within, error, status) in rows {
        let mut client = server.client();
        client.send(within);
        assert_eq!(client.response().status, 200, "{error:?} within its bound");
        assert_eq!(count(&server, Refusal::Request(error)), 0, "{error:?}");
        let mut client = server.client();
        assert_eq!(client.send(over).response().status, status, "{error:?}");
        refused += 1;
        // Counted when the response is sent, not when the peer disconnects.
        eventually("it is counted", || count(&server, Refusal::Request(error)) == 1);
        assert_eq!(Refusal::Request(error).status(), Some(status));
        assert_eq!(server.metrics().refused, refused);
    }
    let mut late = server.client();
    assert_eq!(late.send("GET / HTTP/1.1\r\n").response().status, 408);
    eventually("it is counted", || count(&server, Refusal::Late) == 1);
    assert_eq!(server.metrics().refused, refused, "a late head is no malformed one");
}

#[test]
fn a_peer_that_does_not_read_and_a_full_queue_are_counted_too() {
    let gate = Gate::new();
    let config = ServerConfig::default()
        .event_loops(1)
        .threads_max(1)
        .queue_capacity(1)
        .write_timeout(SHORT * 2);
    let server = TestServer::with(config, {
        let gate = gate.clone();
        move |request: Request| {
            if request.path() == "/gate" {
                gate.pass();
            }
            site(request)
        }
    });
    let mut stalled = server.client();
    stalled.send("GET /large?n=50000000 HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually("the peer that does not read is disconnected", || {
        count(&server, Refusal::Stalled) == 1
    });
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("GET /gate HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    eventually("some are refused", || count(&server, Refusal::Overloaded) > 0);
    gate.open();
    let mut overloaded = 0;
    for client in &mut clients {
        let response = client.response();
        if response.status == 503 {
            assert_eq!(response.header("retry-after"), Some("1"));
            overloaded += 1;
        } else {
            assert_eq!(response.status, 200);
        }
    }
    assert_eq!(count(&server, Refusal::Overloaded), overloaded);
    assert_eq!(server.metrics().overloaded, overloaded);
}

/// A route on the pool with two paths: `/gate` waits at a gate, and `/upload` has a streamed
/// content.
struct Gated(Gate);

impl Service for Gated {
    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/gate" => Plan::new().on_pool().route(1),
            "/upload" => Plan::new().streamed().route(1),
            _ => Plan::new().on_loop(),
        }
    }

    fn call(&self, request: Request) -> Response {
        if request.path() == "/gate" {
            self.0.pass();
        }
        site(request)
    }
}

#[test]
fn a_streamed_content_that_finds_every_thread_busy_is_refused_and_skipped() {
    let gate = Gate::new();
    let config = ServerConfig::default()
        .event_loops(1)
        .threads_max(4)
        .queue_capacity(2)
        .queue_timeout(Duration::from_secs(60));
    let server = TestServer::with(config, Gated(gate.clone()));
    let mut busy: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut busy {
        client.send("GET /gate HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    eventually("every thread is busy, and the line is full", || {
        let metrics = server.metrics();
        usize::try_from(metrics.overloaded).unwrap() + metrics.waiting + gate.waiting() == 20
    });
    let before = count(&server, Refusal::Overloaded);
    let mut client = server.client();
    for round in 1..=3 {
        client.send("POST /upload HTTP/1.1\r\nHost: t\r\nContent-Length: 50000\r\n\r\n");
        client.send(vec![b'x'; 20_000]);
        let refused = client.response();
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
        assert_eq!(count(&server, Refusal::Overloaded), before + round);
        // The loop does not wait for the rest of this content.
        server.client().is_alive();
        client.send(vec![b'x'; 30_000]);
        client.is_alive();
    }
    gate.open();
    client.send("POST /upload HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 200);
}

fn limited(connections: usize) -> ServerConfig {
    ServerConfig::default().connections_per_client_max(connections)
}

/// Asserts that a connection is closed without a response.
#[track_caller]
fn is_turned_away(client: &mut Client) {
    let _ = client.try_send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let ended = client.read_until_end();
    assert!(
        matches!(&ended, Ended::Closed(said) | Ended::Reset(said) if said.is_empty()),
        "{ended}"
    );
}

#[test]
fn connections_per_client_are_limited() {
    for loops in [1, 2] {
        let server = TestServer::with(limited(5).event_loops(loops), site);
        let mut clients: Vec<Client> = (0..5).map(|_| server.client()).collect();
        clients.iter_mut().for_each(Client::is_alive);
        for n in 1..=3 {
            is_turned_away(&mut server.client());
            assert_eq!(count(&server, Refusal::ClientConnections), n);
        }
        clients.iter_mut().for_each(Client::is_alive);
        assert_eq!(server.metrics().connections, 5);
        // A connection that ends makes room for another one.
        clients.pop();
        eventually("a place is free", || server.metrics().connections == 4);
        let mut another = server.client();
        another.is_alive();
        is_turned_away(&mut server.client());
    }
}

#[test]
fn by_default_a_public_client_has_half_of_the_connections() {
    let server = TestServer::behind_proxy(ServerConfig::default().connections_max(20), site);
    let named = |source: &str| {
        let mut client = server.client();
        let (family, destination) =
            if source.contains(':') { ("TCP6", "2001:db8::9") } else { ("TCP4", "192.0.2.9") };
        client.send(format!("PROXY {family} {source} {destination} 56324 443\r\n"));
        client
    };
    for (first, second, other) in [
        ("203.0.113.7", "203.0.113.7", "203.0.113.8"),
        ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"),
    ] {
        let refused = count(&server, Refusal::ClientConnections);
        let mut clients: Vec<Client> = (0..10).map(|_| named(first)).collect();
        clients.iter_mut().for_each(Client::is_alive);
        is_turned_away(&mut named(second));
        assert_eq!(count(&server, Refusal::ClientConnections), refused + 1);
        named(other).is_alive();
        drop(clients);
        server.is_left_by_all();
    }
    // A proxy on a private network has many clients.
    let mut clients: Vec<Client> = (0..15).map(|_| named("10.0.0.1")).collect();
    clients.iter_mut().for_each(Client::is_alive);
}

#[test]
fn by_default_loopback_clients_are_not_limited() {
    let server = TestServer::with(ServerConfig::default().connections_max(20), site);
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    clients.iter_mut().for_each(Client::is_alive);
    assert_eq!(count(&server, Refusal::ClientConnections), 0);
}

/// An edge of a content delivery network has a public address, and many clients behind it.
#[test]
fn connections_of_trusted_proxies_are_not_counted() {
    let app = || {
        let app = App::new()
            .get("/still-there", || "GET /still-there")
            .trust_proxies(["203.0.113.0/24", "127.0.0.1"]);
        app.build().unwrap()
    };
    let server = TestServer::behind_proxy(ServerConfig::default().connections_max(20), app());
    let named = |source: &str| {
        let mut client = server.client();
        client.send(format!("PROXY TCP4 {source} 192.0.2.9 56324 443\r\n"));
        client
    };
    let mut clients: Vec<Client> = (0..15).map(|_| named("203.0.113.7")).collect();
    clients.iter_mut().for_each(Client::is_alive);
    drop(clients);
    server.is_left_by_all();
    let mut clients: Vec<Client> = (0..10).map(|_| named("198.51.100.7")).collect();
    clients.iter_mut().for_each(Client::is_alive);
    is_turned_away(&mut named("198.51.100.7"));
    // A number that was set applies to private addresses too, and still not to a trusted proxy.
    let config = ServerConfig::default().connections_per_client_max(2);
    let server = TestServer::with(config, app());
    let mut clients: Vec<Client> = (0..5).map(|_| server.client()).collect();
    clients.iter_mut().for_each(Client::is_alive);
}

#[test]
fn every_end_of_a_connection_makes_room_for_another_one() {
    let server = TestServer::with(limited(4), |request: Request| {
        if request.path() == "/sleep" {
            thread::sleep(Duration::from_millis(5));
        }
        site(request)
    });
    let rounds = [
        "",
        "BAD\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
        "GET /sleep HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /large?n=3000000 HTTP/1.1\r\nHost: t\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf",
    ];
    for (request, accepted) in rounds.into_iter().zip((4..).step_by(4)) {
        let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send(request);
        }
        eventually("all are accepted", || server.metrics().accepted == accepted);
        drop(clients);
        server.is_left_by_all();
    }
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    clients.iter_mut().for_each(Client::is_alive);
}

#[test]
fn an_upgraded_connection_counts_for_its_client_until_it_ends() {
    let gate = Gate::new();
    let server = TestServer::with(limited(1), {
        let gate = gate.clone();
        move |request: Request| {
            if request.path() != "/upgrade" {
                return site(request);
            }
            let gate = gate.clone();
            let mut response = Response::upgrade(move |socket| {
                // Another thread still has the connection when the handler has returned.
                thread::spawn(move || {
                    gate.pass();
                    drop(socket);
                });
            });
            response.set_header("upgrade", "nothing").unwrap();
            response
        }
    });
    let mut upgraded = server.client();
    upgraded.send(
        "GET /upgrade HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: nothing\r\n\r\n",
    );
    assert_eq!(upgraded.read_head_only().unwrap().status, 101);
    gate.holds(1);
    server.is_left_by_all();
    is_turned_away(&mut server.client());
    gate.open();
    eventually("its place is free", || {
        let mut client = server.client();
        client.try_send("GET / HTTP/1.1\r\nHost: t\r\n\r\n").is_ok()
            && client.try_response().is_ok()
    });
}

#[test]
fn another_address_is_another_client() {
    let address = (Ipv6Addr::UNSPECIFIED, 0);
    if TcpListener::bind(address).is_err() {
        skip::because("no IPv6 here");
        return;
    }
    let server = Server::builder()
        .bind("127.0.0.1:0")
        .unwrap()
        .bind("[::1]:0")
        .unwrap()
        .config(limited(1))
        .build()
        .unwrap();
    server.spawn(site).unwrap();
    let mut clients: Vec<Client> =
        server.local_addrs().iter().map(|address| Client::connect(*address)).collect();
    clients.iter_mut().for_each(Client::is_alive);
    for address in server.local_addrs() {
        is_turned_away(&mut Client::connect(*address));
    }
    server.shutdown_handle().shutdown();
    server.wait();
}

#[test]
fn behind_a_proxy_the_named_client_counts() {
    let server = TestServer::behind_proxy(limited(2), site);
    let from = |client: u8| format!("PROXY TCP4 192.0.2.{client} 198.51.100.2 56324 443\r\n");
    let connect = |client: u8| {
        let mut connection = server.client();
        connection.send(from(client));
        connection
    };
    let mut first: Vec<Client> = (0..2).map(|_| connect(1)).collect();
    first.iter_mut().for_each(Client::is_alive);
    is_turned_away(&mut connect(1));
    assert_eq!(count(&server, Refusal::ClientConnections), 1);
    for client in 2..20 {
        connect(client).is_alive();
    }
    // Connections of the proxy itself, such as health checks, are not counted.
    let mut checks: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for check in &mut checks {
        check.send("PROXY UNKNOWN\r\n").is_alive();
    }
    first.pop();
    eventually("a place is free", || {
        let mut client = connect(1);
        client.try_send("GET / HTTP/1.1\r\nHost: t\r\n\r\n").is_ok()
            && client.try_response().is_ok()
    });
}
