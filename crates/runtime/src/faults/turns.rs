//! Fairness of a busy loop: a new request waits for a bounded number of others, however many there
//! are.
//!
//! A plan blocks the loop until everything is prepared. The watchdog does not take a loop from a
//! plan.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::SockRef;

use crate::tcp::{Io, Protocol};
use crate::{Plan, Request, Response, Server, ServerConfig, Service};

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a request of `/compute` takes: too short for the watchdog.
const COMPUTING: Duration = Duration::from_micros(200);

/// Records the requested paths, and blocks its event loop while it plans `/hold`.
struct Site {
    asked: Arc<Mutex<Vec<String>>>,
    holds: Mutex<mpsc::Sender<()>>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Service for Site {
    fn plan(&self, request: &mut Request) -> Plan {
        self.asked.lock().push(request.path().to_owned());
        if request.path() == "/hold" {
            self.holds.lock().send(()).unwrap();
            self.goes_on.lock().recv_timeout(PATIENCE).unwrap();
        }
        if request.path() == "/compute" {
            let started = Instant::now();
            while started.elapsed() < COMPUTING {
                std::hint::spin_loop();
            }
        }
        Plan::new().on_loop()
    }

    fn call(&self, request: Request) -> Response {
        if request.path() == "/bytewise" {
            let mut response = Response::upgrade_to(Bytewise(Arc::clone(&self.asked)));
            response.set_header("upgrade", "bytewise").unwrap();
            return response;
        }
        Response::from("0")
    }
}

/// A server with one event loop that the test can block.
struct Held {
    server: Server,
    asked: Arc<Mutex<Vec<String>>>,
    is_held: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl Held {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Connections inherit this size, so a sender can be far ahead of the loop. The system may
        // grant less, and then the test checks less.
        SockRef::from(&listener).set_recv_buffer_size(4 << 20).unwrap();
        let config = ServerConfig::default().event_loops(1);
        let server = Server::builder().listener(listener).unwrap().config(config).build().unwrap();
        let asked = Arc::new(Mutex::default());
        let (holds, is_held) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let (holds, goes_on) = (Mutex::new(holds), Mutex::new(goes_on));
        server.spawn(Site { asked: Arc::clone(&asked), holds, goes_on }).unwrap();
        Self { server, asked, is_held, go_on }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.server.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    fn is_held(&self) {
        self.is_held.recv_timeout(PATIENCE).unwrap();
    }

    fn go_on(&self) {
        self.go_on.send(()).unwrap();
    }

    /// Returns the number of requests between the last `/hold` and `/other`.
    fn before_other(&self) -> usize {
        let asked = self.asked.lock();
        let held = asked.iter().rposition(|asked| asked == "/hold").unwrap();
        asked[held + 1..].iter().position(|asked| asked == "/other").unwrap()
    }

    fn end(self) {
        self.server.shutdown_handle().shutdown_within(Duration::ZERO);
        self.server.wait();
    }
}

fn ask(socket: &mut TcpStream, path: &str) {
    write!(socket, "GET {path} HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
}

fn is_answered(socket: &mut TcpStream) {
    let mut received = Vec::new();
    let mut byte = [0];
    while !received.ends_with(b"\r\n\r\n0") {
        assert_eq!(socket.read(&mut byte).unwrap(), 1, "{:?}", String::from_utf8_lossy(&received));
        received.push(byte[0]);
    }
}

#[test]
fn a_burst_of_connections_does_not_starve_existing_ones() {
    const BURST: usize = 400;

    let held = Held::start();
    let mut other = held.connect();
    ask(&mut other, "/first");
    is_answered(&mut other);
    let mut holder = held.connect();
    ask(&mut holder, "/hold");
    held.is_held();
    // The first connection of the burst blocks the loop again when it is accepted.
    let mut burst: Vec<TcpStream> = (0..BURST).map(|_| held.connect()).collect();
    ask(&mut burst[0], "/hold");
    for socket in &mut burst[1..] {
        ask(socket, "/burst");
    }
    held.go_on();
    held.is_held();
    ask(&mut other, "/other");
    held.go_on();
    is_answered(&mut other);
    // At most 64 connections are accepted in a row.
    let before = held.before_other();
    assert!(before <= 64, "{before} others came first");
    for socket in &mut burst {
        is_answered(socket);
    }
    held.end();
}

#[test]
fn a_sender_that_is_always_ahead_does_not_starve_others() {
    /// Long requests with short responses, so that all responses fit the system's buffers.
    const FLOOD: usize = 10 << 20;

    let held = Held::start();
    let mut other = held.connect();
    ask(&mut other, "/first");
    is_answered(&mut other);
    let mut sender = held.connect();
    let request = format!("GET /flood HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "x".repeat(8000));
    let requests = FLOOD / request.len();
    // The loop is blocked until the flood has arrived, and again in the middle of its sender's
    // turn.
    let mut holder = held.connect();
    ask(&mut holder, "/hold");
    held.is_held();
    sender.write_all(request.as_bytes()).unwrap();
    ask(&mut sender, "/hold");
    let mut answers = sender.try_clone().unwrap();
    let (tell, is_ahead) = mpsc::channel();
    let writing = thread::spawn(move || {
        // The loop continues after the system has taken as much as it can.
        sender.set_nonblocking(true).unwrap();
        let flood = request.repeat(requests).into_bytes();
        let mut written = 0;
        while let Ok(more @ 1..) = sender.write(&flood[written..]) {
            written += more;
        }
        sender.set_nonblocking(false).unwrap();
        tell.send(written).unwrap();
        sender.write_all(&flood[written..]).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let ahead = is_ahead.recv_timeout(PATIENCE).unwrap();
    // The two handles share their mode, so reading begins when both block again.
    let reading = thread::spawn(move || io::copy(&mut answers, &mut io::sink()));
    held.go_on();
    held.is_held();
    ask(&mut other, "/other");
    held.go_on();
    is_answered(&mut other);
    // A turn is four reads of 128 KiB. The sender finishes its current turn, gets one for an event,
    // which the poller may report first, and up to four more after it has yielded.
    let before = held.before_other();
    assert!(before * 8000 <= 25 * 128 * 1024, "{before} requests came first, of {ahead} bytes");
    writing.join().unwrap();
    reading.join().unwrap().unwrap();
    assert_eq!(held.asked.lock().iter().filter(|asked| *asked == "/flood").count(), requests + 1);
    held.end();
}

#[test]
fn a_pipeline_that_computes_does_not_starve_others() {
    const PIPELINE: usize = 1000;

    let held = Held::start();
    let mut other = held.connect();
    ask(&mut other, "/first");
    is_answered(&mut other);
    let mut sender = held.connect();
    let mut holder = held.connect();
    ask(&mut holder, "/hold");
    held.is_held();
    // One read takes all of it.
    let pipeline = "GET /compute HTTP/1.1\r\nHost: t\r\n\r\n".repeat(PIPELINE);
    sender.write_all(pipeline.as_bytes()).unwrap();
    ask(&mut other, "/other");
    held.go_on();
    is_answered(&mut other);
    // A turn is sixteen requests: the clock is read after every eighth one. The sender may have one
    // turn before the other client, and another one for an event.
    let before = held.before_other();
    assert!(before <= 64, "{before} requests came first");
    for _ in 0..PIPELINE {
        is_answered(&mut sender);
    }
    held.end();
}

#[test]
fn a_crowd_of_pipelines_shares_the_time_of_a_few() {
    const CROWD: usize = 40;
    /// Each takes four times the longest turn of a pipeline.
    const PIPELINE: usize = 20;

    let held = Held::start();
    let mut other = held.connect();
    ask(&mut other, "/first");
    is_answered(&mut other);
    let mut crowd: Vec<TcpStream> = (0..CROWD).map(|_| held.connect()).collect();
    for sender in &mut crowd {
        ask(sender, "/first");
        is_answered(sender);
    }
    let mut holder = held.connect();
    ask(&mut holder, "/hold");
    held.is_held();
    let pipeline = "GET /compute HTTP/1.1\r\nHost: t\r\n\r\n".repeat(PIPELINE);
    for sender in &mut crowd {
        sender.write_all(pipeline.as_bytes()).unwrap();
    }
    ask(&mut other, "/other");
    held.go_on();
    is_answered(&mut other);
    // In a crowd of sixteen, which is a batch of events in tests, a turn is at most four requests.
    // Some senders have a second turn between two batches. Alone, a sender would have up to sixteen
    // requests in a turn.
    let before = held.before_other();
    assert!(before <= 6 * CROWD, "{before} requests came first");
    for sender in &mut crowd {
        (0..PIPELINE).for_each(|_| is_answered(sender));
    }
    held.end();
}

/// A protocol that gives way after each byte.
struct Bytewise(Arc<Mutex<Vec<String>>>);

impl Protocol for Bytewise {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        self.0.lock().push("a byte".to_owned());
        io.send(&bytes[..1]);
        io.resume();
        1
    }
}

/// Regression: the next call with the rest came in the same turn, so 128 KiB of short messages to a
/// room kept a loop for a fifth of a second.
#[test]
fn a_protocol_that_stops_within_its_input_gives_way_to_others() {
    const BYTES: usize = 10_000;

    let held = Held::start();
    let mut other = held.connect();
    ask(&mut other, "/first");
    is_answered(&mut other);
    let mut sender = held.connect();
    let upgrade = "Host: t\r\nConnection: upgrade\r\nUpgrade: bytewise\r\n\r\n";
    write!(sender, "GET /bytewise HTTP/1.1\r\n{upgrade}").unwrap();
    let mut byte = [0];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        sender.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let mut holder = held.connect();
    ask(&mut holder, "/hold");
    held.is_held();
    sender.write_all(&[b'x'; BYTES]).unwrap();
    ask(&mut other, "/other");
    held.go_on();
    is_answered(&mut other);
    // One for the event, and a few more between two polls.
    let before = held.before_other();
    assert!(before <= 16, "{before} bytes came first");
    for _ in 0..BYTES {
        sender.read_exact(&mut byte).unwrap();
    }
    held.end();
}

/// Counts the threads that compute at the same time.
#[derive(Clone, Default)]
struct Parser {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Service for Parser {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().on_pool().holds_memory()
    }

    fn call(&self, request: Request) -> Response {
        request.compute_in_turn(|| {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            thread::sleep(COMPUTING * 10);
            self.now.fetch_sub(1, Ordering::SeqCst);
        });
        Response::from("0")
    }
}

#[test]
fn contents_are_computed_on_by_a_thread_per_processor() {
    let processors = thread::available_parallelism().unwrap().get();
    let parser = Parser::default();
    let server = Server::bind("127.0.0.1:0").unwrap();
    server.spawn(parser.clone()).unwrap();
    let mut clients: Vec<_> = (0..processors * 4 + 16)
        .map(|_| {
            let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let head = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n";
            write!(client, "{head}x").unwrap();
            client
        })
        .collect();
    clients.iter_mut().for_each(is_answered);
    // A client that waits for long has one more turn, which happens on a machine that stands still.
    let most = parser.most.load(Ordering::SeqCst);
    assert!(most <= processors + 4, "{most} threads");
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
}
