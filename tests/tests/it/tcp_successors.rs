//! Connections that switch to another protocol, including HTTP.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{self, Closed, Http, Io, Protocol, SendError, Sender};
use filoplume_runtime::{BlockingStream, Peer, Request, Response, ServerConfig};
use filoplume_tests::{DEADLINE, Ended, TestServer, eventually};

/// The usual handlers of tests, and two more: `/sleep` blocks, and `/panic` panics.
fn site(request: Request) -> Response {
    match request.path() {
        "/sleep" => thread::sleep(Duration::from_millis(100)),
        "/panic" => panic!("a test's own"),
        _ => {}
    }
    filoplume_tests::site(request)
}

const GET: &str = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";

/// Sends `+` for each `-`. Any other byte is the start of the next protocol.
struct Door<N> {
    next: Option<N>,
    closed: mpsc::Sender<Closed>,
}

impl<N: Protocol> Protocol for Door<N> {
    fn open(&mut self, io: &mut Io<'_>) {
        io.set_timeout(Duration::from_secs(3600));
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let mine = bytes.iter().take_while(|&&byte| byte == b'-').count();
        io.send(&vec![b'+'; mine]);
        if mine < bytes.len() {
            io.continue_as(self.next.take().unwrap());
        }
        mine
    }

    fn close(&mut self, reason: Closed) {
        let _ = self.closed.send(reason);
    }
}

/// Returns a server whose connections begin as a `Door` to `next`, and the reasons for which the
/// doors end.
fn doors<N: Protocol>(
    config: ServerConfig,
    next: impl Fn() -> N + Send + Sync + 'static,
) -> (TestServer, Receiver<Closed>) {
    let (closed, told) = mpsc::channel();
    let door = move |_: Peer| Door { next: Some(next()), closed: closed.clone() };
    (TestServer::raw(config, door), told)
}

fn doors_to_site(config: ServerConfig) -> (TestServer, Receiver<Closed>) {
    let http: Http = tcp::http(site);
    doors(config, move || http.clone())
}

#[test]
fn http_serves_a_raw_server_as_it_serves_its_own() {
    let server = TestServer::raw(ServerConfig::default(), tcp::http(site));
    let mut client = server.client();
    client.is_alive();
    client.send(GET.repeat(3));
    for _ in 0..3 {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(client.post("/echo", "some bytes").text(), "some bytes");
    assert_eq!(client.post("/echo", vec![b'x'; 300_000]).body.len(), 300_000);
    assert_eq!(client.get("/stream?n=100000").body.len(), 100_000);
    assert_eq!(client.get("/panic").status, 500);
    client.is_alive();
    client.send("GET / HTTP/1.1\r\n\r\n");
    let refused = client.response();
    assert_eq!((refused.status, refused.closes()), (400, true));
    client.is_closed();
}

#[test]
fn unused_input_is_the_start_of_http() {
    let (server, told) = doors_to_site(ServerConfig::default());
    let mut client = server.client();
    client.send(format!("---{GET}{GET}"));
    assert_eq!(client.read_exactly(3), b"+++");
    assert_eq!(client.response().status, 200);
    assert_eq!(client.response().status, 200);
    client.is_alive();
    assert_eq!(told.recv_timeout(DEADLINE), Ok(Closed::Succeeded));
    client.finish();
    client.is_closed();
    assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it is told once");
}

#[test]
fn a_request_may_arrive_byte_by_byte_after_another_protocol() {
    let (server, _told) = doors_to_site(ServerConfig::default());
    let mut client = server.client();
    for byte in format!("-{GET}").bytes() {
        client.send([byte]);
        thread::sleep(Duration::from_micros(300));
    }
    assert_eq!(client.read_exactly(1), b"+");
    assert_eq!(client.response().status, 200);
}

#[test]
fn requests_before_a_half_close_are_answered_after_another_protocol() {
    let (server, _told) = doors_to_site(ServerConfig::default());
    let mut client = server.client();
    client.send(format!("-{GET}")).finish();
    assert_eq!(client.read_exactly(1), b"+");
    assert_eq!(client.response().status, 200);
    client.is_closed();
}

#[test]
fn handlers_that_block_after_another_protocol_delay_no_other() {
    let (server, _told) = doors_to_site(ServerConfig::default());
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = server.client();
                client.send("-");
                assert_eq!(client.read_exactly(1), b"+");
                for _ in 0..5 {
                    assert_eq!(client.get("/sleep").status, 200);
                }
            });
        }
        eventually("they are known to block", || server.metrics().dispatched > 0);
        let mut client = server.client();
        let started = Instant::now();
        client.send(format!("-{GET}"));
        assert_eq!(client.read_exactly(1), b"+");
        client.response();
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "20 sleepers take 10 s one after the other"
        );
    });
}

#[test]
fn the_deadline_for_a_head_begins_with_http() {
    let config = ServerConfig::default().head_timeout(Duration::from_millis(200));
    let (server, _told) = doors_to_site(config);
    let mut client = server.client();
    client.send("-");
    assert_eq!(client.read_exactly(1), b"+");
    // The first protocol has a timeout of an hour.
    client.is_silent_for(Duration::from_millis(400));
    client.send("GET / HT");
    let late = client.response();
    assert_eq!((late.status, late.closes()), (408, true));
    client.is_closed();
}

#[test]
fn shutdown_after_another_protocol_waits_for_responses_and_not_for_idle_connections() {
    let (server, _told) = doors_to_site(ServerConfig::default());
    let (mut idle, mut busy) = (server.client(), server.client());
    idle.send(format!("-{GET}"));
    assert_eq!(idle.read_exactly(1), b"+");
    idle.response();
    busy.send("-GET /sleep HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(busy.read_exactly(1), b"+");
    eventually("the handler runs", || server.metrics().requests == 2);
    let started = Instant::now();
    server.server().shutdown_handle().shutdown_within(DEADLINE);
    let response = busy.response();
    assert_eq!((response.status, response.closes()), (200, true));
    idle.is_closed();
    assert!(started.elapsed() < DEADLINE / 2);
}

#[test]
fn http_after_another_protocol_may_switch_to_a_third_one() {
    let http = tcp::http(|_request: Request| {
        let mut response = Response::upgrade(|mut socket: BlockingStream| {
            let mut five = [0; 5];
            socket.read_exact(&mut five).unwrap();
            socket.write_all(&five).unwrap();
        });
        response.add_header("upgrade", "echo").unwrap();
        response
    });
    let (server, _told) = doors(ServerConfig::default(), move || http.clone());
    let mut client = server.client();
    client.send("--GET / HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello");
    assert_eq!(client.read_exactly(2), b"++");
    assert_eq!(client.response().status, 101);
    assert_eq!(client.read_exactly(5), b"hello");
    client.is_closed();
}

/// A protocol that reports all its events.
struct Tells(mpsc::Sender<String>);

impl Protocol for Tells {
    fn open(&mut self, io: &mut Io<'_>) {
        self.0.send("open".into()).unwrap();
        io.send(b"tell me");
    }

    fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
        self.0.send(format!("data {}", bytes.escape_ascii())).unwrap();
        bytes.len()
    }

    fn end(&mut self, rest: &[u8], io: &mut Io<'_>) {
        self.0.send(format!("end {}", rest.escape_ascii())).unwrap();
        io.close();
    }

    fn close(&mut self, reason: Closed) {
        self.0.send(format!("close {reason:?}")).unwrap();
    }
}

#[track_caller]
fn is_told(told: &Receiver<String>, expected: &[&str]) {
    for expected in expected {
        assert_eq!(told.recv_timeout(DEADLINE).unwrap(), *expected);
    }
}

#[test]
fn a_successor_gets_all_unused_input() {
    let (tell, told) = mpsc::channel();
    let (server, closed) = doors(ServerConfig::default(), move || Tells(tell.clone()));
    let mut client = server.client();
    client.send("--abc");
    assert_eq!(client.read_exactly(9), b"++tell me");
    is_told(&told, &["open", "data abc"]);
    assert_eq!(closed.recv_timeout(DEADLINE), Ok(Closed::Succeeded));
    client.send("-de").finish();
    client.is_closed();
    is_told(&told, &["data -de", "end ", "close ByPeer"]);
}

/// Is replaced at the end of its input, of which it has used nothing.
struct UntilTheEnd(Option<Tells>);

impl Protocol for UntilTheEnd {
    fn data(&mut self, _bytes: &[u8], _io: &mut Io<'_>) -> usize {
        0
    }

    fn end(&mut self, _rest: &[u8], io: &mut Io<'_>) {
        io.continue_as(self.0.take().unwrap());
    }
}

#[test]
fn a_successor_at_the_end_of_input_gets_the_end_too() {
    let (tell, told) = mpsc::channel();
    let server = TestServer::raw(ServerConfig::default(), move |_: Peer| {
        UntilTheEnd(Some(Tells(tell.clone())))
    });
    let mut client = server.client();
    client.send("abc").finish();
    assert_eq!(client.read_to_end(), b"tell me");
    is_told(&told, &["open", "data abc", "end ", "close ByPeer"]);
}

/// Is replaced several times before its first data.
struct Layers(u32, mpsc::Sender<Closed>);

impl Protocol for Layers {
    fn open(&mut self, io: &mut Io<'_>) {
        io.send(self.0.to_string().as_bytes());
        if self.0 > 0 {
            io.continue_as(Self(self.0 - 1, self.1.clone()));
        }
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        io.send(bytes);
        bytes.len()
    }

    fn close(&mut self, reason: Closed) {
        self.1.send(reason).unwrap();
    }
}

#[test]
fn a_protocol_may_be_replaced_before_its_first_data() {
    let (closed, told) = mpsc::channel();
    let server = TestServer::raw(ServerConfig::default(), move |_: Peer| Layers(3, closed.clone()));
    let mut client = server.client();
    assert_eq!(client.read_exactly(4), b"3210");
    client.send("abc");
    assert_eq!(client.read_exactly(3), b"abc");
    drop(client);
    let reasons: Vec<_> = (0..4).map(|_| told.recv_timeout(DEADLINE).unwrap()).collect();
    assert_eq!(reasons, [Closed::Succeeded, Closed::Succeeded, Closed::Succeeded, Closed::ByPeer]);
}

/// Panics in `close`.
struct Sore;

impl Protocol for Sore {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        io.continue_as(tcp::http(site));
        bytes.len()
    }

    fn close(&mut self, _reason: Closed) {
        panic!("a test's own");
    }
}

#[test]
fn a_protocol_that_panics_when_it_is_replaced_costs_only_its_connection() {
    let server = TestServer::raw(ServerConfig::default(), |_: Peer| Sore);
    let mut client = server.client();
    client.send("-");
    assert!(matches!(client.read_until_end(), Ended::Closed(_) | Ended::Reset(_)));
    assert_eq!(server.metrics().panics, 1);
    server.client().send("-");
    eventually("the next one is served as well", || server.metrics().panics == 2);
}

/// Gives its sender to the test, and switches to HTTP on request.
struct Lends(mpsc::Sender<Sender>);

impl Protocol for Lends {
    fn open(&mut self, io: &mut Io<'_>) {
        self.0.send(io.sender()).unwrap();
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        assert_eq!(bytes, b"-");
        io.continue_as(tcp::http(site));
        bytes.len()
    }
}

#[test]
fn bytes_from_senders_are_sent_before_http_begins_and_none_after() {
    let (lend, lent) = mpsc::channel();
    let server = TestServer::raw(ServerConfig::default(), move |_: Peer| Lends(lend.clone()));
    let mut client = server.client();
    let sender = lent.recv_timeout(DEADLINE).unwrap();
    for _ in 0..100 {
        sender.send("noise").unwrap();
    }
    client.send("-");
    client.read_exactly(500);
    eventually("the connection is HTTP's", || sender.send("") == Err(SendError::Closed));
    assert!(!sender.is_open());
    client.is_alive();
}

/// Replaces itself again and again while the flag is set.
struct Restless(Arc<AtomicBool>);

impl Protocol for Restless {
    fn open(&mut self, io: &mut Io<'_>) {
        if self.0.load(Ordering::SeqCst) {
            io.close();
        } else {
            io.continue_as(Self(Arc::clone(&self.0)));
        }
    }

    fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
        bytes.len()
    }
}

/// `Restless` for some connections, HTTP for the others.
struct Either(Option<Restless>);

impl Protocol for Either {
    fn open(&mut self, io: &mut Io<'_>) {
        match self.0.take() {
            Some(restless) => io.continue_as(restless),
            None => io.continue_as(tcp::http(site)),
        }
    }

    fn data(&mut self, _bytes: &[u8], _io: &mut Io<'_>) -> usize {
        0
    }
}

#[test]
fn protocols_that_replace_themselves_endlessly_do_not_starve_others() {
    let is_over = Arc::new(AtomicBool::new(false));
    let (is_first, flag) = (AtomicBool::new(true), Arc::clone(&is_over));
    let either = move |_: Peer| {
        Either(is_first.swap(false, Ordering::SeqCst).then(|| Restless(Arc::clone(&flag))))
    };
    let server = TestServer::raw(ServerConfig::default().event_loops(1), either);
    let mut restless = server.client();
    eventually("the restless one is served first", || server.metrics().connections == 1);
    let mut other = server.client();
    other.is_alive();
    is_over.store(true, Ordering::SeqCst);
    restless.is_closed();
}
