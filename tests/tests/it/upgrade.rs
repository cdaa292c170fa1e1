//! Connections after a `101` that a thread takes over.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use filoplume_runtime::{BlockingStream, Exchange, Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Gate, TestServer, eventually, site};

const UPGRADE: &str =
    "GET /echo HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

fn echo(mut socket: BlockingStream) {
    let mut buffer = [0; 1000];
    while let Ok(read @ 1..) = socket.read(&mut buffer) {
        if socket.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
}

fn upgrades(request: Request) -> Response {
    if request.wants_upgrade() != Some("echo") {
        return site(request);
    }
    let mut response = Response::upgrade(echo);
    response.add_header("upgrade", "echo").unwrap();
    response
}

#[track_caller]
fn is_upgraded(client: &mut Client) {
    let response = client.response();
    assert_eq!(response.status, 101);
    assert_eq!(response.header("upgrade"), Some("echo"));
    assert_eq!(response.header("connection"), Some("upgrade"));
    assert_eq!(
        (response.header("content-length"), response.header("transfer-encoding")),
        (None, None)
    );
}

#[test]
fn after_a_101_the_socket_belongs_to_the_handler() {
    let server = TestServer::start(upgrades);
    let mut client = server.client();
    client.is_alive();
    client.send(UPGRADE);
    is_upgraded(&mut client);
    for message in ["hello", "GET / HTTP/1.1\r\n\r\n", "\0\u{1}\u{2}"] {
        client.send(message);
        assert_eq!(client.read_exactly(message.len()), message.as_bytes());
    }
    let long = vec![b'l'; 300_000];
    client.send(&long);
    assert_eq!(client.read_exactly(long.len()), long);
    client.finish();
    client.is_closed();
    assert_eq!(server.metrics().upgraded, 1);
}

#[test]
fn bytes_after_the_request_belong_to_the_new_protocol() {
    let server = TestServer::start(upgrades);
    for behind in [1, 10, 5000, 100_000] {
        let behind = vec![b'b'; behind];
        let mut client = server.client();
        client.send([UPGRADE.as_bytes(), &behind].concat());
        is_upgraded(&mut client);
        assert_eq!(client.read_exactly(behind.len()), behind);
        client.send("more");
        assert_eq!(client.read_exactly(4), b"more");
    }
}

#[test]
fn a_pipelined_request_may_upgrade() {
    let server = TestServer::start(upgrades);
    let mut client = server.client();
    client.send(format!("GET /before HTTP/1.1\r\nHost: t\r\n\r\n{UPGRADE}behind"));
    assert_eq!(client.response().text(), "GET /before");
    is_upgraded(&mut client);
    assert_eq!(client.read_exactly(6), b"behind");
}

#[test]
fn a_handler_that_decides_slowly_may_upgrade_too() {
    let server = TestServer::start(|request: Request| {
        std::thread::sleep(Duration::from_millis(10));
        upgrades(request)
    });
    // The handler runs inline the first time, and later on the pool and on a lease.
    for _ in 0..5 {
        let mut client = server.client();
        for _ in 0..3 {
            client.is_alive();
        }
        client.send(format!("{UPGRADE}behind"));
        is_upgraded(&mut client);
        assert_eq!(client.read_exactly(6), b"behind");
        // Longer than any timeout of the engine.
        client.is_silent_for(Duration::from_millis(400));
        client.send("later");
        assert_eq!(client.read_exactly(5), b"later");
    }
}

/// Returns this many upgraded connections.
fn upgraded(server: &TestServer, count: usize) -> Vec<Client> {
    let upgrade = |_| {
        let mut client = server.client();
        client.send(UPGRADE);
        is_upgraded(&mut client);
        client
    };
    (0..count).map(upgrade).collect()
}

#[test]
fn upgraded_connections_hold_half_of_the_threads_at_most() {
    for (measures, runs_on_pool) in [(false, false), (false, true), (true, false), (true, true)] {
        half_of_the_threads(measures, runs_on_pool);
    }
}

/// Upgrades that wait at a gate.
struct Gated {
    gate: Gate,
    measures: bool,
    runs_on_pool: bool,
    statuses: Arc<Mutex<Vec<u16>>>,
}

impl Service for Gated {
    fn plan(&self, request: &mut Request) -> Plan {
        let has_upgrade = request.wants_upgrade().is_some();
        let plan =
            if self.runs_on_pool && has_upgrade { Plan::new().on_pool() } else { Plan::new() };
        if self.measures { plan.timed() } else { plan }
    }

    fn call(&self, request: Request) -> Response {
        if request.wants_upgrade().is_none() {
            return site(request);
        }
        let gate = self.gate.clone();
        let mut response = Response::upgrade(move |_| gate.pass());
        for (name, value) in
            [("upgrade", "echo"), ("sec-websocket-accept", "x"), ("x-request-id", "17")]
        {
            response.add_header(name, value).unwrap();
        }
        response
    }

    fn measures(&self) -> bool {
        self.measures
    }

    fn answered(&self, response: &mut Response, _: &mut Exchange) {
        self.statuses.lock().unwrap().push(response.status().as_u16());
    }
}

fn half_of_the_threads(measures: bool, runs_on_pool: bool) {
    let (gate, statuses) = (Gate::new(), Arc::new(Mutex::new(Vec::new())));
    let service =
        Gated { gate: gate.clone(), measures, runs_on_pool, statuses: Arc::clone(&statuses) };
    let server = TestServer::with(ServerConfig::default().threads_max(8), service);
    let _held = upgraded(&server, 4);
    gate.holds(4);
    // The client learns of the refusal before the other protocol begins, and may ask again.
    let mut refused = server.client();
    for _ in 0..2 {
        refused.send(UPGRADE);
        let response = refused.response();
        assert_eq!(response.status, 503);
        assert_eq!(response.header("retry-after"), Some("1"));
        assert_eq!(response.header("x-request-id"), Some("17"), "it is the same request");
        for name in ["upgrade", "sec-websocket-accept"] {
            assert_eq!(response.header(name), None, "{name}");
        }
    }
    refused.is_alive();
    let expected = if measures { vec![101, 101, 101, 101, 503, 503] } else { vec![] };
    let mut seen = statuses.lock().unwrap().clone();
    seen.retain(|status| *status != 200);
    assert_eq!(seen, expected, "the service is told what the client gets");
    assert_eq!(server.metrics().upgraded, 4);
    server.client().is_alive();
    gate.open();
    eventually("all threads are free", || server.metrics().held_streams == 0);
    gate.close();
    let _held = upgraded(&server, 4);
    gate.holds(4);
    gate.open();
}

#[test]
fn silent_peers_lose_their_threads_when_no_more_are_left_for_upgrades() {
    let config = ServerConfig::default().threads_max(8).blocking_stream_timeout(None);
    let server = TestServer::with(config, upgrades);
    let mut clients = upgraded(&server, 3);
    clients[0].is_silent_for(Duration::from_millis(3500));
    clients.extend(upgraded(&server, 1));
    // It is enough if one of them loses its thread.
    let started = Instant::now();
    eventually("a thread is free", || server.metrics().held_streams < 4);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn an_upgraded_connection_has_no_http_timeouts() {
    let short = Duration::from_millis(100);
    let config =
        ServerConfig::default().head_timeout(short).keep_alive_timeout(short).write_timeout(short);
    let server = TestServer::with(config, upgrades);
    let mut client = server.client();
    client.send(UPGRADE);
    is_upgraded(&mut client);
    client.is_silent_for(short * 5);
    client.send("late");
    assert_eq!(client.read_exactly(4), b"late");
}

/// The error of a read or write that times out.
const TIMED_OUT: ErrorKind =
    if cfg!(windows) { ErrorKind::TimedOut } else { ErrorKind::WouldBlock };

#[test]
fn a_silent_peer_does_not_hold_a_thread_forever() {
    let (tells, told) = mpsc::channel();
    let config =
        ServerConfig::default().event_loops(1).blocking_stream_timeout(Duration::from_millis(300));
    let server = TestServer::with(config, move |request: Request| {
        let tells = tells.clone();
        let writes = request.path() == "/writes";
        Response::upgrade(move |mut socket: BlockingStream| {
            let error = if writes {
                let many = vec![b'w'; 1_000_000];
                loop {
                    if let Err(error) = socket.write_all(&many) {
                        break error;
                    }
                }
            } else {
                socket.read(&mut [0]).unwrap_err()
            };
            tells.send(error.kind()).unwrap();
        })
    });
    for path in ["/reads", "/writes"] {
        let mut client = server.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(TIMED_OUT), "{path}");
        client.read_until_end();
    }
    eventually("only the event loop has a thread", || {
        let pool = server.metrics().pool;
        pool.threads - pool.idle == 1
    });
}

#[test]
fn a_handler_may_set_longer_timeouts_than_the_configuration() {
    let short = Duration::from_millis(100);
    let config = ServerConfig::default().blocking_stream_timeout(short);
    let server = TestServer::with(config, |_: Request| {
        Response::upgrade(|socket: BlockingStream| {
            socket.set_read_timeout(None).unwrap();
            echo(socket);
        })
    });
    let mut client = server.client();
    client.send(UPGRADE);
    assert_eq!(client.response().status, 101);
    client.is_silent_for(short * 5);
    assert_eq!(client.send("late").read_exactly(4), b"late");
}

/// The content must not be taken for the first bytes of the new protocol.
#[test]
fn a_request_with_unread_content_is_not_upgraded() {
    struct Streams;
    impl Service for Streams {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().streamed()
        }
        fn call(&self, request: Request) -> Response {
            upgrades(request)
        }
    }
    let server = TestServer::start(Streams);
    for (fields, content) in [
        ("Content-Length: 6\r\n", "sec"),
        ("Content-Length: 6\r\nExpect: 100-continue\r\n", ""),
        ("Content-Length: 9000000\r\n", "begin"),
        ("Transfer-Encoding: chunked\r\n", "6\r\nsecret\r\n"),
    ] {
        let mut client = server.client();
        let head = UPGRADE.replace("Host: t\r\n", &format!("Host: t\r\n{fields}"));
        client.send(head);
        // Part of it comes later.
        client.send(content);
        let response = client.response();
        assert_eq!((response.status, response.header("upgrade")), (400, None), "{fields}");
    }
    let mut client = server.client();
    client.send(UPGRADE);
    is_upgraded(&mut client);
}

#[test]
fn a_101_without_an_upgrade_handler_is_a_500() {
    let server = TestServer::start(|request: Request| {
        if request.path() == "/101" { Response::new(101) } else { site(request) }
    });
    let mut client = server.client();
    let response = client.get("/101");
    assert_eq!(response.status, 500);
    client.is_alive();
    client.send("GET /101 HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.response().status, 500);
    client.is_alive();
}

#[test]
fn a_second_handle_writes_while_the_first_reads() {
    let server = TestServer::start(|_: Request| {
        Response::upgrade(|mut socket: BlockingStream| {
            let mut writer = socket.try_clone().unwrap();
            let writes = std::thread::spawn(move || writer.write_all(b"from the other thread"));
            let mut read = String::new();
            socket.read_to_string(&mut read).unwrap();
            writes.join().unwrap().unwrap();
            socket.write_all(read.as_bytes()).unwrap();
            socket.shutdown_write().unwrap();
        })
    });
    let mut client = server.client();
    client.send(format!("{UPGRADE}ahead "));
    assert_eq!(client.response().status, 101);
    client.send("and later").finish();
    assert_eq!(client.read_to_end(), b"from the other threadahead and later");
}

#[test]
fn a_panic_after_a_101_ends_only_its_connection() {
    let server = TestServer::start(|request: Request| {
        if request.path() != "/panic" {
            return site(request);
        }
        Response::upgrade(|_| std::panic::resume_unwind(Box::new("asked to")))
    });
    for _ in 0..10 {
        let mut client = server.client();
        client.send("GET /panic HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.response().status, 101);
        client.read_until_end();
    }
    server.is_left_by_all();
    eventually("each panic is counted", || server.metrics().panics == 10);
    server.client().is_alive();
}

#[test]
fn an_upgrade_that_finds_no_thread_does_not_hang() {
    let gate = Gate::new();
    let config = ServerConfig::default().event_loops(1).threads_max(3).queue_capacity(1);
    let server = TestServer::with(config, {
        let gate = gate.clone();
        move |request: Request| {
            let gate = gate.clone();
            if request.path() == "/" {
                return Response::upgrade(move |_| gate.pass());
            }
            site(request)
        }
    });
    let mut clients: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    eventually("some are refused for want of a thread", || server.metrics().overloaded >= 1);
    server.client().is_alive();
    gate.open();
    let refused = clients
        .iter_mut()
        .filter_map(|client| match client.response().status {
            101 => {
                client.read_until_end();
                None
            }
            status => Some(status),
        })
        .collect::<Vec<u16>>();
    assert!(!refused.is_empty() && refused.iter().all(|status| *status == 503), "{refused:?}");
    server.client().is_alive();
}
