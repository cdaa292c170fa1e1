//! Plain requests do not allocate, neither in the engine nor in the framework: they reuse the
//! memory of earlier requests. A broadcast does not allocate for each member. Connections that stay
//! open and are silent hold little.
//!
//! These tests have a program of their own and run one at a time, because the counter counts the
//! whole process.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use filoplume::prelude::*;
use filoplume::sse::{Hub, LastEventId};
use filoplume::websocket::{Broadcast, Room, Socket, WebSocketUpgrade};
use filoplume::{RunningApp, Server, StaticField};
use filoplume_runtime::{Service, tcp};
use filoplume_tests::{DEADLINE, eventually};
use serde::Deserialize;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
const CONNECTIONS: usize = 8;
const ROUNDS: usize = 500;

/// Sends a request on each connection in turn, and reads up to `end`. Allocates nothing itself.
fn ask_all(clients: &mut [TcpStream], request: &[u8], end: &[u8], rounds: usize) {
    let mut buffer = [0; 1024];
    for _ in 0..rounds {
        for client in clients.iter_mut() {
            client.write_all(request).unwrap();
            let mut read = 0;
            while !buffer[..read].ends_with(end) {
                let more = client.read(&mut buffer[read..]).unwrap();
                assert_ne!(more, 0, "the server keeps the connection");
                read += more;
            }
        }
    }
}

/// Lets the tests run one at a time: also what a test prepares, such as its app, would be counted
/// by another one.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of allocations and the number of requests.
fn count(service: impl Service) -> (u64, u64) {
    count_asking(REQUEST, service)
}

/// Sends this request, to which the service answers `Hello, World!`.
fn count_asking(request: &[u8], service: impl Service) -> (u64, u64) {
    count_with(request, b"Hello, World!", |server| server.spawn(service).unwrap())
}

fn count_with(request: &[u8], end: &[u8], spawn: impl FnOnce(&Server)) -> (u64, u64) {
    let _profiler = dhat::Profiler::builder().testing().build();
    let server = Server::bind("127.0.0.1:0").unwrap();
    spawn(&server);
    let address = server.local_addr().unwrap();
    let mut clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            client
        })
        .collect();
    // Warm-up: buffers and caches fill, and the watchdog's first checks pass.
    ask_all(&mut clients, request, end, ROUNDS);
    let before = dhat::HeapStats::get().total_blocks;
    ask_all(&mut clients, request, end, ROUNDS);
    let allocated = dhat::HeapStats::get().total_blocks - before;
    server.shutdown_handle().shutdown();
    server.wait();
    (allocated, (CONNECTIONS * ROUNDS) as u64)
}

/// Asserts that requests do not allocate. A hand-over to another thread allocates, and a busy
/// machine may cause a handful in thousands of requests. So less than one allocation in two hundred
/// requests is tolerated. One request in sixteen is measured, so a measurement that allocates would
/// exceed that. On a very busy machine a quick handler looks like one that blocks, and each of its
/// requests is handed over. The test is repeated then.
#[track_caller]
fn assert_none(mut count: impl FnMut() -> (u64, u64)) {
    let mut told = Vec::new();
    for _ in 0..10 {
        let (allocated, requests) = count();
        if allocated < requests / 200 {
            return;
        }
        told.push(format!("{allocated} allocations in {requests} requests"));
    }
    panic!("{told:?}");
}

#[test]
fn a_plain_request_on_a_kept_connection_allocates_nothing() {
    let _alone = alone();
    let hello = |_request: Request| {
        let mut response = Response::default();
        response.set_text("Hello, World!");
        response
    };
    assert_none(|| count(hello));
}

#[test]
fn an_echo_allocates_nothing() {
    let _alone = alone();
    let echo = |server: &Server| server.spawn_tcp(tcp::bytes(|bytes| bytes.into())).unwrap();
    assert_none(|| count_with(REQUEST, REQUEST, echo));
    let lines = |server: &Server| server.spawn_tcp(tcp::lines(|line| line.into())).unwrap();
    // A request ends with an empty line.
    assert_none(|| count_with(REQUEST, b"\n\n", lines));
}

#[test]
fn a_plain_text_with_200_routes_and_two_middlewares_allocates_nothing() {
    let _alone = alone();
    static NOSNIFF: StaticField = StaticField::new("x-content-type-options: nosniff\r\n");

    let app = || {
        let mut app = App::new();
        for number in 0..100 {
            app = app
                .get(&format!("/shop/section{number}/items"), || "a list")
                .get(&format!("/shop/section{number}/items/{{id}}"), |Path(id): Path<u64>| {
                    id.to_string()
                });
        }
        app.get("/plaintext", || "Hello, World!")
            .with(|request: Request, next: Next<'_>| next.run(request))
            .with(|request: Request, next: Next<'_>| {
                let mut response = next.run(request);
                response.headers_mut().insert_static(&NOSNIFF);
                response
            })
    };
    assert_none(|| count(app().build().unwrap()));
}

#[test]
fn a_query_of_numbers_allocates_nothing() {
    let _alone = alone();
    #[derive(Deserialize)]
    struct Page {
        number: u32,
        size: Option<u8>,
    }
    let app = || {
        App::new().get("/list", |Query(page): Query<Page>| {
            assert_eq!((page.number, page.size), (17, Some(20)));
            "Hello, World!"
        })
    };
    let request = b"GET /list?number=17&size=20 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_none(|| count_asking(request, app().build().unwrap()));
}

/// Regression: the path to each value was kept for errors, which took eight allocations more.
#[test]
fn json_of_numbers_allocates_for_its_content_only() {
    let _alone = alone();
    #[derive(Deserialize)]
    struct Point {
        x: i32,
        y: i32,
    }
    let app = App::new().post("/points", |Json(points): Json<[Point; 2]>| {
        assert_eq!(points.map(|point| point.x * point.y), [2, -12]);
        "Hello, World!"
    });
    let request = b"POST /points HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\
        Content-Type: application/json\r\n\r\n[{\"x\":1,\"y\":2},{\"x\":3,\"y\":-4}]";
    let (allocated, requests) = count_asking(request, app.build().unwrap());
    assert!(allocated < 5 * requests, "{allocated} allocations in {requests} requests");
}

/// Regression: the memory of each head went from the leader, which parsed it, to the pool thread,
/// which kept it, so that each request allocated five blocks.
#[test]
fn a_dispatched_request_allocates_its_task_and_little_else() {
    let _alone = alone();
    let app = || App::new().route("/plaintext", get(|| "Hello, World!").on_pool());
    let (allocated, requests) = count(app().build().unwrap());
    assert!(allocated < 2 * requests, "{allocated} allocations in {requests} requests");
}

/// A path without a route is looked up before the call, where nothing can move the work to another
/// thread. Regression: each segment cost several allocations, so that 200 clients with long paths
/// stalled the loops.
#[test]
fn a_long_path_without_a_route_allocates_no_more_than_a_short_one() {
    let _alone = alone();
    let mut app = App::new().get("/items/{id}", || "an item");
    for number in 0..32 {
        let inner = Router::new()
            .get("/", || "a page")
            .with(|request: Request, next: Next<'_>| next.run(request));
        app = app.nest(&format!("/area{number}"), inner);
    }
    let client = app.test();
    let count = |path: String| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let _profiler = dhat::Profiler::builder().testing().build();
        assert!(client.raw(&request).starts_with(b"HTTP/1.1 404 "));
        let before = dhat::HeapStats::get().total_blocks;
        client.raw(&request);
        dhat::HeapStats::get().total_blocks - before
    };
    for segment in ["%41/", "a/", "%2e%2ex/", "A/", "..%2f/"] {
        let (short, long) =
            (count(format!("/x/{segment}")), count(format!("/x/{}", segment.repeat(900))));
        // The buffers of a longer request grow more often.
        assert!(long < short + 60, "{segment}: {short} and {long} allocations");
    }
}

const MEMBERS: usize = 64;
const BROADCASTS: usize = 50;
const MESSAGE_BYTES: usize = 1024;
/// The head of a frame of this length has four bytes.
const FRAME_BYTES: usize = MESSAGE_BYTES + 4;

const HANDSHAKE: &str = "GET /ws HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\n\
    Connection: upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Opens a WebSocket.
fn member(address: SocketAddr) -> TcpStream {
    open(address, HANDSHAKE, b"\r\n\r\n")
}

/// Sends a request, and reads up to `end`.
fn open(address: SocketAddr, request: &str, end: &[u8]) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut read = Vec::new();
    while !read.ends_with(end) {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        read.extend(byte);
    }
    client
}

/// Sends messages to a room whose members read them. Returns the number of allocations and of
/// messages that arrived.
fn count_broadcasts() -> (u64, u64) {
    let _profiler = dhat::Profiler::builder().testing().build();
    let room = Room::new();
    let joined = room.clone();
    let app = App::new()
        .websocket("/ws", move |upgrade: WebSocketUpgrade| {
            let room = joined.clone();
            upgrade
                .on_open(move |socket: &Socket| room.join(socket))
                .on_message(|_: &Socket, _: String| {})
        })
        .start("127.0.0.1:0")
        .unwrap();
    let mut members: Vec<_> = (0..MEMBERS).map(|_| member(app.local_addr())).collect();
    eventually("all have joined", || room.len() == MEMBERS);
    let text = "x".repeat(MESSAGE_BYTES);
    let mut frame = [0; FRAME_BYTES];
    let mut broadcast_all = |times: usize| {
        for _ in 0..times {
            assert_eq!(room.broadcast(text.as_str()), Broadcast { sent: MEMBERS, slow: 0 });
            for member in &mut members {
                member.read_exact(&mut frame).unwrap();
            }
        }
    };
    broadcast_all(BROADCASTS);
    let before = dhat::HeapStats::get().total_blocks;
    broadcast_all(BROADCASTS);
    let allocated = dhat::HeapStats::get().total_blocks - before;
    drop(members);
    app.shutdown();
    (allocated, (MEMBERS * BROADCASTS) as u64)
}

/// The frame is one allocation, and the channels to the loops allocate one block for 31 messages.
#[test]
fn a_broadcast_allocates_nothing_for_a_member() {
    let _alone = alone();
    let mut told = Vec::new();
    for _ in 0..10 {
        let (allocated, messages) = count_broadcasts();
        if allocated < messages / 8 {
            return;
        }
        told.push(format!("{allocated} allocations for {messages} messages"));
    }
    panic!("{told:?}");
}

const SILENT: usize = 500;
/// What a silent WebSocket or event stream may hold in addition to an idle connection, in bytes.
const SOCKET_BYTES_MAX: usize = 1000;
const STREAM_BYTES_MAX: usize = 500;

/// Returns the memory of one connection that has sent this request, was answered up to `end`, and
/// is silent.
fn held(app: &RunningApp, request: &str, end: &[u8]) -> usize {
    let open_some = |count| (0..count).map(|_| open(app.local_addr(), request, end));
    let is_empty = || app.server().metrics().unwrap().connections == 0;
    // The buffers and caches of the threads fill.
    drop(open_some(64).collect::<Vec<_>>());
    eventually("the first connections are closed", is_empty);
    let mut clients = Vec::with_capacity(SILENT);
    let before = dhat::HeapStats::get();
    clients.extend(open_some(SILENT));
    let is_silent = || app.server().metrics().unwrap().parked == SILENT as u64;
    eventually("the engine keeps all of them without a thread", is_silent);
    let after = dhat::HeapStats::get();
    drop(clients);
    eventually("all connections are closed", is_empty);
    // A block needs some bytes more than was asked for, and its size is rounded up.
    let bytes = |stats: dhat::HeapStats| stats.curr_bytes + stats.curr_blocks * 16;
    bytes(after).saturating_sub(bytes(before)) / SILENT
}

/// On a busy machine, threads that start meanwhile allocate their buffers. The test is repeated
/// then.
#[test]
fn silent_sockets_and_streams_hold_little_more_than_an_idle_connection() {
    let _alone = alone();
    let _profiler = dhat::Profiler::builder().testing().build();
    let hub = Hub::new();
    let app = App::new()
        .get("/", || "Hello, World!")
        .websocket("/ws", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
        })
        .get("/events", move |last: LastEventId| hub.subscribe(&last))
        .start("127.0.0.1:0")
        .unwrap();
    let mut told = Vec::new();
    for _ in 0..10 {
        let plain = held(&app, "GET / HTTP/1.1\r\nHost: t\r\n\r\n", b"Hello, World!");
        let socket = held(&app, HANDSHAKE, b"\r\n\r\n");
        let stream = held(&app, "GET /events HTTP/1.1\r\nHost: t\r\n\r\n", b"\r\n\r\n");
        if socket <= plain + SOCKET_BYTES_MAX && stream <= plain + STREAM_BYTES_MAX {
            return;
        }
        told.push(format!("idle {plain}, WebSocket {socket}, event stream {stream} bytes"));
    }
    panic!("{told:?}");
}
