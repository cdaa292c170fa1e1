//! New connections at the maximum: the server closes one that has no running request, the longest
//! idle first.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, Response, ServerConfig, pushed, tcp};
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
        .content_timeout(long)
        .write_timeout(long)
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

/// Returns how many of these clients the server has closed.
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

/// Answers `/gate` behind a gate, `/raw` with an echo, `/pushed` with a stream that stays silent,
/// and all else as [`site`] does.
#[derive(Clone, Default)]
struct Streams {
    gate: Gate,
    senders: Arc<Mutex<Vec<pushed::Sender>>>,
}

impl Streams {
    fn answer(&self, request: Request) -> Response {
        let mut response = Response::default();
        match request.path() {
            "/gate" => self.gate.pass(),
            "/pushed" => {
                let (sender, body) = pushed::channel();
                response.set_pushed(body);
                self.senders.lock().unwrap().push(sender);
                return response;
            }
            "/raw" => {
                response = Response::upgrade_to(Echo);
                response.set_header("upgrade", "raw").unwrap();
                return response;
            }
            _ => {}
        }
        site(request)
    }
}

/// A request for each kind of stream, and the status of its response.
const STREAMS: [(&str, u16); 2] = [
    ("GET /pushed HTTP/1.1\r\nHost: t\r\n\r\n", 200),
    ("GET /raw HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n", 101),
];

/// Opens a stream on a connection.
#[track_caller]
fn open_stream(client: &mut Client, (request, status): (&str, u16)) {
    client.send(request);
    assert_eq!(client.read_head_only().unwrap().status, status);
}

#[test]
fn requests_in_their_handlers_and_streams_are_never_closed_for_a_new_connection() {
    let streams = Streams::default();
    let answer = streams.clone();
    let server = TestServer::with(full(4, 2), move |request: Request| answer.answer(request));
    let mut handled: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut handled {
        client.send("GET /gate HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    streams.gate.holds(2);
    let (mut pushed, mut raw) = (server.client(), server.client());
    // A client that is not counted cannot exceed its share.
    open_stream(&mut pushed, STREAMS[0]);
    open_stream(&mut raw, STREAMS[1]);
    eventually("all are accepted", || server.metrics().connections == 4);
    let mut new = server.client();
    new.send("GET /waited HTTP/1.1\r\nHost: t\r\n\r\n").is_silent_for(Duration::from_millis(2500));
    assert_eq!(server.metrics().connections_shed, 0);
    streams.gate.open();
    for client in &mut handled {
        assert_eq!(client.response().text(), "GET /gate");
    }
    assert_eq!(new.response().text(), "GET /waited", "the one that was answered made room");
    assert_eq!(raw.send("raw").read_exactly(3), b"raw");
    streams.senders.lock().unwrap().pop().unwrap().send("pushed").unwrap();
    assert_eq!(pushed.read_exactly(6 + 5), b"6\r\npushed\r\n");
}

/// How many new connections come to a full server.
const NEW: usize = 3;

/// Fills a server with connections that have sent `bytes`. For each new one, the server closes one.
/// Returns what was sent on those that have ended, and how many were closed.
#[track_caller]
fn slow_ones_make_room(config: ServerConfig, count: usize, bytes: &str) -> (Vec<Vec<u8>>, usize) {
    let server = TestServer::with(config, site);
    let mut slow: Vec<Client> = (0..count).map(|_| server.client()).collect();
    for client in &mut slow {
        client.send(bytes);
    }
    eventually("all are accepted", || server.metrics().connections == count as u64);
    let started = Instant::now();
    let mut new: Vec<Client> = (0..NEW).map(|_| server.client()).collect();
    for client in &mut new {
        // Without its content: an idle connection would make room for the next one.
        client.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 500000\r\n\r\n");
    }
    eventually("all are accepted", || server.metrics().connections_shed >= NEW as u64);
    for client in &mut new {
        let content = "x".repeat(500_000);
        assert_eq!(client.send(&content).response().text().len(), content.len());
    }
    assert!(started.elapsed() < SOON * 2, "{:?}", started.elapsed());
    // Two loops may each close one for the same newcomer.
    let closed = usize::try_from(server.metrics().connections_shed).unwrap();
    assert!(closed <= NEW * 2, "{closed}");
    let told = |client: &mut Client| {
        client.tcp().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut bytes = Vec::new();
        client.tcp().read_to_end(&mut bytes).is_ok().then_some(bytes)
    };
    (slow.iter_mut().filter_map(told).collect(), closed)
}

#[test]
fn unfinished_contents_make_room() {
    let json = "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 1900000\r\n\r\n{";
    let chunked = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n";
    for (bytes, loops) in [(json, 1), (json, 2), (chunked, 1)] {
        let config = full(50, loops).buffered_content_bytes_max(2_000_000);
        let (ended, closed) = slow_ones_make_room(config, 50, bytes);
        assert_eq!(ended.len(), closed);
        for told in ended {
            let told = String::from_utf8(told).unwrap();
            assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
        }
    }
}

#[test]
fn contents_that_nobody_wants_make_room() {
    // Requests are answered when the start of their content has arrived. The rest is skipped.
    let head = "POST /unread HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n";
    let bytes = format!("{head}{}", "x".repeat(2000));
    let config = full(50, 2).buffered_content_bytes_max(1000);
    let (ended, closed) = slow_ones_make_room(config, 50, &bytes);
    assert_eq!(ended.len(), closed);
    assert!(ended.iter().all(|told| told.ends_with(b"unread")));
}

#[test]
fn unread_responses_make_room() {
    for loops in [1, 2] {
        let bytes = "GET /large?n=30000000 HTTP/1.1\r\nHost: t\r\n\r\n";
        let (ended, closed) = slow_ones_make_room(full(12, loops), 12, bytes);
        assert_eq!(ended.len(), closed);
        for told in ended {
            assert!(told.starts_with(b"HTTP/1.1 200 ") && told.len() < 30_000_000);
        }
    }
}

#[test]
fn connections_that_the_server_has_ended_make_room() {
    for loops in [1, 2] {
        let config = full(50, loops).linger_timeout(Duration::from_secs(60));
        let (ended, _) = slow_ones_make_room(config, 50, "GET HTTP\r\n\r\n");
        assert_eq!(ended.len(), 50, "the server has sent its end on all of them");
        assert!(ended.iter().all(|told| told.starts_with(b"HTTP/1.1 400 ")));
    }
}

/// Returns a client with a public address.
fn client_of(server: &TestServer, number: usize) -> Client {
    let mut client = server.client();
    client.send(format!("PROXY TCP4 192.0.2.{number} 198.51.100.2 56324 443\r\n"));
    client
}

#[test]
fn silent_streams_of_the_client_with_most_connections_make_room() {
    for stream in STREAMS {
        for loops in [1, 2] {
            let streams = Streams::default();
            let config = full(48, loops).connections_per_client_max(100);
            let server =
                TestServer::behind_proxy(config, move |request: Request| streams.answer(request));
            // One client has its share, one has more, and one has most.
            let mut clients: Vec<(usize, Client)> = [(1, 8), (2, 9), (3, 31)]
                .into_iter()
                .flat_map(|(number, count)| (0..count).map(move |_| number))
                .map(|number| (number, client_of(&server, number)))
                .collect();
            for (_, client) in &mut clients {
                open_stream(client, stream);
            }
            for _ in 0..8 {
                let mut new = client_of(&server, 4);
                new.send("GET /pushed HTTP/1.1\r\nHost: t\r\n\r\n");
                assert_eq!(new.read_head_only().unwrap().status, 200);
                clients.push((4, new));
            }
            let closed = |client: usize| {
                let of_it = clients.iter_mut().filter(|(number, _)| *number == client);
                let is_closed = |client: &Client| closed(std::slice::from_ref(client));
                of_it.map(|(_, client)| is_closed(client)).sum::<usize>()
            };
            let [small, more, most, new] = [1, 2, 3, 4].map(closed);
            assert_eq!([small, more, new], [0; 3], "{stream:?}, {loops} loops");
            // Two loops may each close one for the same newcomer.
            assert!((8..=10).contains(&most), "{most}: {stream:?}, {loops} loops");
        }
    }
}

/// Each client has much less than a quarter of all connections.
#[test]
fn silent_streams_of_several_clients_keep_nobody_out() {
    let streams = Streams::default();
    let config = full(60, 1).connections_per_client_max(100);
    let server = TestServer::behind_proxy(config, move |request: Request| streams.answer(request));
    let numbers = (0..60).map(|number| number % 6 + 1);
    let mut clients: Vec<Client> = numbers.map(|number| client_of(&server, number)).collect();
    for client in &mut clients {
        open_stream(client, STREAMS[1]);
    }
    for _ in 0..10 {
        let mut new = client_of(&server, 7);
        new.send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        assert_eq!(new.response().status, 200);
    }
    assert!(server.metrics().connections_shed > 0);
}

/// Asks its service for `/gate` when it is opened, and sends the answer.
struct Asks(tcp::Http);

impl tcp::Protocol for Asks {
    fn open(&mut self, io: &mut tcp::Io<'_>) {
        let request = http::Request::builder().uri("/gate").body(Vec::new()).unwrap();
        io.call(1, Request::try_from(request).unwrap(), &self.0);
    }

    fn data(&mut self, bytes: &[u8], _: &mut tcp::Io<'_>) -> usize {
        bytes.len()
    }

    fn answered(&mut self, _: u64, response: Response, io: &mut tcp::Io<'_>) {
        io.send(response.status().as_str().as_bytes());
    }
}

#[test]
fn streams_that_wait_for_answers_keep_new_connections_out() {
    let streams = Streams::default();
    let gate = streams.gate.clone();
    let site = tcp::http(move |request: Request| streams.answer(request));
    let config = full(4, 1).connections_per_client_max(100);
    let server = TestServer::raw(config, move |_| Asks(site.clone()));
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    gate.holds(4);
    let mut new = server.client();
    new.is_silent_for(Duration::from_millis(1500));
    gate.open();
    for client in &mut clients {
        assert_eq!(client.read_exactly(3), b"200");
    }
    // One client has all connections, and their streams wait for it now.
    assert_eq!(new.read_exactly(3), b"200");
    assert_eq!(server.metrics().connections_shed, 1);
}

#[test]
fn silent_streams_of_clients_with_their_share_keep_new_connections_out() {
    let streams = Streams::default();
    let config = full(4, 1).connections_per_client_max(100);
    let server = TestServer::behind_proxy(config, move |request: Request| streams.answer(request));
    let mut clients: Vec<Client> = (1..=4).map(|number| client_of(&server, number)).collect();
    for client in &mut clients {
        open_stream(client, STREAMS[1]);
    }
    let mut new = client_of(&server, 5);
    new.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n").is_silent_for(Duration::from_millis(1500));
    assert_eq!(server.metrics().connections_shed, 0);
    drop(clients.pop());
    assert_eq!(new.response().status, 200);
}

/// A content and a response that make progress are not slow, even if new connections wait.
#[test]
fn transfers_at_a_decent_pace_are_never_closed_for_a_new_connection() {
    const PIECE: usize = 64 * 1024;
    const PIECES: usize = 100;
    let config = full(2, 1).buffered_content_bytes_max((PIECE * PIECES) as u64);
    // On a machine that is too busy, the clients cannot keep their pace.
    for attempt in 0.. {
        let server = TestServer::with(config.clone(), site);
        let (mut upload, mut download) = (server.client(), server.client());
        let length = PIECE * PIECES;
        upload.send(format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n"));
        download.send(format!("GET /stream?n={} HTTP/1.0\r\n\r\n", length * 5));
        eventually("both are accepted", || server.metrics().connections == 2);
        let mut new = server.client();
        new.send("GET /waited HTTP/1.1\r\nHost: t\r\n\r\n");
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        let mut received = 0;
        for _ in 0..PIECES {
            let is_sent = upload.try_send([b'x'; PIECE]).is_ok();
            // The system reports room for more only when a third of its buffer is free.
            let read = download.read_some(PIECE / 4);
            received += *read.as_ref().unwrap_or(&0);
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if !(is_sent && read.is_ok_and(|read| read > 0)) {
                break;
            }
            thread::sleep(Duration::from_millis(25));
        }
        if longest > Duration::from_millis(500) && attempt < 10 {
            continue;
        }
        assert_eq!(server.metrics().connections_shed, 0);
        assert_eq!(upload.response().body.len(), length);
        received += download.read_to_end().len();
        assert!(received > length * 5);
        assert_eq!(new.response().text(), "GET /waited");
        return;
    }
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
