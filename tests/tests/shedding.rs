//! New connections at the maximum: the server closes one that has no request, the longest idle
//! first.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, Response, ServerConfig, tcp};
use filoplume_tests::{Client, Ended, Example, Gate, TestServer, eventually, holds_for, site};

/// How long something quick may take on a busy machine. All deadlines of the engine are longer.
const SOON: Duration = Duration::from_secs(5);

/// Longer than the minimum idle time of a connection that is closed for another one.
const IDLE: Duration = Duration::from_millis(200);

fn full(connections: usize, loops: usize) -> ServerConfig {
    // These timeouts must not end connections here.
    let long = Duration::from_secs(60);
    ServerConfig::default()
        .connections_max(connections)
        .event_loops(loops)
        .head_timeout(long)
        .keep_alive_timeout(long)
}

/// Returns connections that were answered one after the other and are idle.
fn idle(count: usize, connect: impl Fn() -> Client) -> Vec<Client> {
    let answered = |_| {
        let mut client = connect();
        client.is_alive();
        client
    };
    (0..count).map(answered).collect()
}

/// Returns how many of them the server has closed.
fn closed(clients: &[Client]) -> usize {
    let is_closed = |client: &&Client| {
        client.tcp().set_nonblocking(true).unwrap();
        let peeked = client.tcp().peek(&mut [0]);
        client.tcp().set_nonblocking(false).unwrap();
        peeked
            .map_or_else(|error| error.kind() != std::io::ErrorKind::WouldBlock, |bytes| bytes == 0)
    };
    clients.iter().filter(is_closed).count()
}

#[test]
fn the_longest_idle_connection_makes_room_for_a_new_one() {
    let server = TestServer::with(full(8, 1), site);
    let mut clients = idle(8, || server.client());
    clients[1].is_silent_for(IDLE);
    // This connection was idle for the longest time. Now it has been idle for the shortest.
    clients[0].is_alive();
    let started = Instant::now();
    let mut new = server.client();
    new.is_alive();
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    clients[1].is_closed();
    for client in clients.iter_mut().skip(2) {
        client.is_alive();
    }
    clients[0].is_alive();
    let metrics = server.metrics();
    assert_eq!((metrics.connections, metrics.connections_shed, metrics.connections_max), (8, 1, 8));
}

#[test]
fn idle_connections_do_not_keep_new_ones_out() {
    for loops in [1, 2, 4] {
        let server = TestServer::with(full(4, loops), site);
        let first = idle(4, || server.client());
        let started = Instant::now();
        // With several loops, the accepting one often has no idle connection of its own.
        let mut new = idle(20, || server.client());
        assert!(started.elapsed() < SOON * 2, "{loops} loops: {:?}", started.elapsed());
        assert_eq!(closed(&first) + closed(&new), 20);
        assert_eq!(server.metrics().connections_shed, 20);
        new[19].is_alive();
    }
}

#[test]
fn no_connection_is_closed_while_there_is_room() {
    let server = TestServer::with(full(8, 1), site);
    let clients = idle(8, || server.client());
    holds_for(IDLE * 2, "all are kept", || closed(&clients) == 0);
    assert_eq!(server.metrics().connections_shed, 0);
}

#[test]
fn incomplete_heads_make_room_if_no_connection_is_idle() {
    for start in ["GET / HTTP/1.1\r\nHo", ""] {
        for loops in [1, 2] {
            let server = TestServer::with(full(8, loops), site);
            let mut slow: Vec<Client> = (0..8).map(|_| server.client()).collect();
            for client in &mut slow {
                client.send(start);
            }
            eventually("all are accepted", || server.metrics().connections == 8);
            let started = Instant::now();
            let mut new = server.client();
            new.is_alive();
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
            assert_eq!(closed(&slow), 1);
            assert_eq!(server.metrics().connections_shed, 1);
        }
    }
}

/// A raw echo protocol.
struct Echo;

impl tcp::Protocol for Echo {
    fn data(&mut self, bytes: &[u8], io: &mut tcp::Io<'_>) -> usize {
        io.send(bytes);
        bytes.len()
    }
}

#[test]
fn accepted_requests_are_never_closed_for_a_new_connection() {
    let gate = Gate::new();
    let server = TestServer::with(full(4, 2), {
        let gate = gate.clone();
        move |request: Request| {
            if request.path() == "/gate" {
                gate.pass();
            }
            if request.path() == "/raw" {
                let mut response = Response::upgrade_to(Echo);
                response.set_header("upgrade", "raw").unwrap();
                return response;
            }
            site(request)
        }
    });
    let mut handled = server.client();
    handled.send("GET /gate HTTP/1.1\r\nHost: t\r\n\r\n");
    gate.holds(1);
    let mut content = server.client();
    content.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello");
    let mut unread = server.client();
    unread.send("GET /large?n=30000000 HTTP/1.1\r\nHost: t\r\n\r\n");
    let start = unread.read_exactly(1000);
    let mut raw = server.client();
    raw.send("GET /raw HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n");
    assert_eq!(raw.response().status, 101);
    eventually("all are accepted", || server.metrics().connections == 4);
    let mut new = server.client();
    new.send("GET /waited HTTP/1.1\r\nHost: t\r\n\r\n").is_silent_for(Duration::from_millis(1500));
    assert_eq!(server.metrics().connections_shed, 0);
    gate.open();
    assert_eq!(handled.response().text(), "GET /gate");
    assert_eq!(new.response().text(), "GET /waited", "the one that was answered made room");
    assert_eq!(content.send("world").response().text(), "helloworld");
    assert_eq!(raw.send("raw").read_exactly(3), b"raw");
    drop((handled, new, content));
    assert_eq!(start.len() + unread.read_exactly(29_999_000).len(), 30_000_000);
}

#[test]
fn a_busy_client_keeps_its_connection_beside_a_crowd_of_new_ones() {
    let server = TestServer::with(full(4, 1), site);
    let address = server.address();
    let mut busy = server.client();
    busy.is_alive();
    let crowd = thread::spawn(move || {
        // They stay open until all are answered.
        idle(30, || Client::connect(address))
    });
    while !crowd.is_finished() {
        busy.is_alive();
    }
    drop(crowd.join().unwrap());
    busy.is_alive();
}

/// Connects clients, each of which is answered and stays connected.
#[track_caller]
fn all_are_answered(count: usize, connect: impl Fn() -> Client) -> Vec<Client> {
    let ask = |index| {
        let mut client = connect();
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        let response = client.try_response();
        assert!(response.is_ok(), "client {index} of {count}: {}", response.unwrap_err());
        client
    };
    (0..count).map(ask).collect()
}

#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    let script = "ulimit -Sn 64; exec \"$0\" \"$@\"";
    let child = Example("bench_engine").start_by(&["sh", "-c"], script, &[]);
    let mut clients = all_are_answered(300, || child.client());
    assert_eq!(closed(&clients), 0);
    clients[0].get("/plaintext");
    assert!(child.process().descriptors() > 300);
}

#[test]
fn without_descriptors_idle_connections_make_room() {
    // The first limit leaves few descriptors for connections. The second is even below what the
    // engine reserves.
    for descriptors in [80, 26] {
        let child = Example("bench_engine").start_with_descriptors(descriptors);
        let started = Instant::now();
        let mut clients = all_are_answered(150, || child.client());
        assert!(started.elapsed() < SOON * 3, "{:?}", started.elapsed());
        assert!(closed(&clients) >= 150 - descriptors, "{descriptors} descriptors");
        let mut last = clients.pop().unwrap();
        assert_eq!(last.get("/plaintext").status, 200);
        match clients.remove(0).read_until_end() {
            Ended::Closed(rest) => assert!(rest.is_empty()),
            other => panic!("{other}"),
        }
    }
}
