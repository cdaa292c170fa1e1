//! Small exchanges in which the Nth call of each kind fails, for every N. The server continues
//! after each fault, and peers do not notice the ones that they must not notice.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Call, Fault, Plan};
use crate::{Plan as RequestPlan, Request, Response, Server, ServerConfig, Service, tcp};

/// How long a test waits for an event that is due soon.
const PATIENCE: Duration = Duration::from_secs(20);

/// More calls of a kind than any exchange has.
const CALLS_MAX: u64 = 300;

/// Faults that a peer must not notice.
const INVISIBLE: [Fault; 3] =
    [Fault::Error(Errno::INTR), Fault::Error(Errno::AGAIN), Fault::OneByte];

/// Faults that end a connection.
const FATAL: [Fault; 4] = [
    Fault::Error(Errno::CONNRESET),
    Fault::Error(Errno::PIPE),
    Fault::Error(Errno::NOTCONN),
    Fault::Error(Errno::TIMEDOUT),
];

/// What a client sends, in pieces, and what it does after that.
#[derive(Clone, Copy)]
struct Exchange {
    pieces: &'static [&'static str],
    /// The pieces, followed by more bytes than fit any buffer.
    filling: usize,
    serves: Serves,
}

#[derive(Clone, Copy)]
enum Serves {
    Http,
    /// As [`Http`](Self::Http), but the filling is sent after an interim response.
    HttpWithContinue,
    Echo,
}

/// The kind of socket.
#[derive(Clone, Copy, Debug)]
enum Over {
    Tcp,
    Unix,
}

/// A server and its address.
struct Running {
    server: Server,
    /// The path of its socket, if it is a Unix socket.
    path: Option<PathBuf>,
}

const PLAIN: Exchange = Exchange {
    pieces: &["GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const KEPT: Exchange = Exchange {
    pieces: &[
        "GET /a HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /b HTTP/1.1\r\nHo",
        "st: t\r\nConnection: close\r\n\r\n",
    ],
    filling: 0,
    serves: Serves::Http,
};
const POST: Exchange = Exchange {
    pieces: &[
        "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 11\r\n\r\nhello",
        " world",
    ],
    filling: 0,
    serves: Serves::Http,
};
const CHUNKED: Exchange = Exchange {
    pieces: &[
        "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: \
         chunked\r\n\r\n5\r\nhel",
        "lo\r\n6\r\n world\r\n0\r\n\r\n",
    ],
    filling: 0,
    serves: Serves::Http,
};
const LONG_POST: Exchange = Exchange {
    pieces: &[
        "POST /length HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n",
    ],
    filling: 300_000,
    serves: Serves::Http,
};
const STREAMED_POST: Exchange = Exchange {
    pieces: &[
        "POST /streamed HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\nConnection: close\r\n\r\n",
    ],
    filling: 300_000,
    serves: Serves::Http,
};
const PIPELINED: Exchange = Exchange {
    pieces: &["GET /1 HTTP/1.1\r\nHost: t\r\n\r\nGET /2 HTTP/1.1\r\nHost: t\r\n\r\nPOST /echo \
               HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n\r\nGET /4 HTTP/1.1\r\nHost: \
               t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const DISPATCHED: Exchange = Exchange {
    pieces: &[
        "GET /pool/1 HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /pool/2 HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /pool/3 HTTP/1.1\r\nHost: t\r\n\r\nGET /pool/4 HTTP/1.1\r\nHost: t\r\nConnection: \
         close\r\n\r\n",
    ],
    filling: 0,
    serves: Serves::Http,
};
const STREAMED: Exchange = Exchange {
    pieces: &["GET /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const LARGE: Exchange = Exchange {
    pieces: &["GET /large HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const CONTINUED: Exchange = Exchange {
    pieces: &[
        "POST /streamed HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\
         Connection: close\r\n\r\n",
    ],
    filling: 100_000,
    serves: Serves::HttpWithContinue,
};
const CONTINUED_BEHIND: Exchange = Exchange {
    pieces: &["GET /1 HTTP/1.1\r\nHost: t\r\n\r\nPOST /streamed HTTP/1.1\r\nHost: t\r\nExpect: \
               100-continue\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n"],
    filling: 100_000,
    serves: Serves::HttpWithContinue,
};
const CONTINUED_COLLECTED: Exchange = Exchange {
    pieces: &[
        "POST /length HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\
         Connection: close\r\n\r\n",
    ],
    filling: 100_000,
    serves: Serves::HttpWithContinue,
};
const REFUSED: Exchange = Exchange { pieces: &["BAD\r\n\r\n"], filling: 0, serves: Serves::Http };
const ECHO: Exchange =
    Exchange { pieces: &["hello", " ", "world"], filling: 0, serves: Serves::Echo };
const LONG_ECHO: Exchange = Exchange { pieces: &[], filling: 300_000, serves: Serves::Echo };

const ALL: [(&str, Exchange); 16] = [
    ("plain", PLAIN),
    ("kept", KEPT),
    ("post", POST),
    ("chunked", CHUNKED),
    ("long post", LONG_POST),
    ("streamed post", STREAMED_POST),
    ("pipelined", PIPELINED),
    ("dispatched", DISPATCHED),
    ("streamed", STREAMED),
    ("large", LARGE),
    ("continued", CONTINUED),
    ("continued behind another", CONTINUED_BEHIND),
    ("continued and collected", CONTINUED_COLLECTED),
    ("refused", REFUSED),
    ("echo", ECHO),
    ("long echo", LONG_ECHO),
];

struct Site;

impl Service for Site {
    fn plan(&self, request: &mut Request) -> RequestPlan {
        match request.path() {
            "/streamed" => RequestPlan::new().streamed(),
            path if path.starts_with("/pool") => RequestPlan::new().on_pool(),
            _ => RequestPlan::new(),
        }
    }

    fn call(&self, mut request: Request) -> Response {
        let mut response = Response::default();
        match request.path() {
            "/echo" => {
                let mut content = Vec::new();
                if request.body_mut().read_to_end(&mut content).is_err() {
                    return Response::new(400);
                }
                response.set_bytes(content);
            }
            "/length" | "/streamed" => match io::copy(request.body_mut(), &mut io::sink()) {
                Ok(length) => _ = response.set_text(length.to_string()),
                Err(_) => return Response::new(400),
            },
            "/stream" => {
                response.set_stream(io::repeat(b's').take(200_000));
            }
            path if path.starts_with("/breaks/") => {
                let reads = path["/breaks/".len()..].parse().unwrap();
                response.set_stream(Breaks(reads));
            }
            "/large" => {
                response.set_bytes(vec![b'l'; 500_000]);
            }
            path => {
                let text = path.to_owned();
                response.set_text(text);
            }
        }
        response
    }
}

/// A connected socket.
trait Peer: Read + Write + Send {
    fn other_handle(&self) -> Box<dyn Peer>;
    fn end(&self, directions: Shutdown);
}

macro_rules! peer {
    ($socket:ty) => {
        impl Peer for $socket {
            fn other_handle(&self) -> Box<dyn Peer> {
                self.set_read_timeout(Some(PATIENCE)).unwrap();
                self.set_write_timeout(Some(PATIENCE)).unwrap();
                Box::new(self.try_clone().unwrap())
            }

            fn end(&self, directions: Shutdown) {
                let _ = self.shutdown(directions);
            }
        }
    };
}

peer!(TcpStream);
peer!(UnixStream);

impl Running {
    fn connect(&self) -> Box<dyn Peer> {
        if let Some(path) = &self.path {
            return Box::new(UnixStream::connect(path).unwrap());
        }
        let socket = TcpStream::connect(self.server.local_addr().unwrap()).unwrap();
        socket.set_nodelay(true).unwrap();
        Box::new(socket)
    }

    fn end(&self) {
        self.server.shutdown_handle().shutdown_within(Duration::ZERO);
        self.server.wait();
    }
}

impl Exchange {
    fn server(self, plan: &Arc<Plan>, over: Over) -> Running {
        let mut config = ServerConfig::default().event_loops(1);
        config.faults = Some(Arc::clone(plan));
        let (builder, path) = match over {
            Over::Tcp => (Server::builder().bind("127.0.0.1:0").unwrap(), None),
            Over::Unix => {
                static NUMBER: AtomicU64 = AtomicU64::new(0);
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let name = format!("filoplume-faults-{}-{number}", std::process::id());
                let path = std::env::temp_dir().join(name);
                (Server::builder().bind_unix(&path).unwrap(), Some(path))
            }
        };
        let server = builder.config(config).build().unwrap();
        match self.serves {
            Serves::Http | Serves::HttpWithContinue => server.spawn(Site).unwrap(),
            Serves::Echo => server.spawn_tcp(tcp::bytes(|bytes| bytes.into())).unwrap(),
        }
        Running { server, path }
    }

    /// Sends everything. Returns the bytes received until the connection ended, and how it ended.
    fn run(self, running: &Running) -> (String, io::Result<()>) {
        let mut socket = running.connect();
        let mut writer = socket.other_handle();
        let (tells, is_told) = mpsc::channel();
        let sends = thread::spawn(move || {
            let sent = (|| {
                for piece in self.pieces {
                    writer.write_all(piece.as_bytes())?;
                    // Usually makes the pieces arrive one by one. The test does not depend on it.
                    thread::yield_now();
                }
                if matches!(self.serves, Serves::HttpWithContinue) && is_told.recv().is_err() {
                    return Ok(());
                }
                writer.write_all(&vec![b'f'; self.filling])
            })();
            if sent.is_ok() && matches!(self.serves, Serves::Echo) {
                writer.end(Shutdown::Write);
            }
        });
        let mut tells = Some(tells);
        let mut received = Vec::new();
        let mut piece = [0; 16 * 1024];
        let ended = loop {
            match socket.read(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(read) => received.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
            if tells.is_some() && received.windows(CONTINUE.len()).any(|bytes| bytes == CONTINUE) {
                // The connection may have ended with an error.
                let _ = tells.take().map(|tells| tells.send(()));
            }
        };
        drop(tells);
        socket.end(Shutdown::Both);
        sends.join().unwrap();
        (without_dates(&String::from_utf8(received).unwrap()), ended)
    }
}

/// The interim response to `Expect: 100-continue`.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn without_dates(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Returns the responses of the exchange without a fault.
fn expected(exchange: Exchange) -> String {
    let plan = Arc::new(Plan::new(Call::Accept, u64::MAX, 0, Fault::OneByte));
    let running = exchange.server(&plan, Over::Tcp);
    let (text, ended) = exchange.run(&running);
    ended.unwrap();
    assert!(!text.is_empty());
    running.end();
    text
}

/// Checks the exchange with a fault at the Nth call, for every N up to the number of calls.
fn check_each(name: &str, exchange: Exchange, over: Over, call: Call, fault: Fault) {
    check_rows(name, exchange, over, call, fault, 1);
}

/// Checks the exchange with `times` faults in a row from the Nth call, for every N.
fn check_rows(name: &str, exchange: Exchange, over: Over, call: Call, fault: Fault, times: u64) {
    let is_invisible = INVISIBLE.contains(&fault);
    let expected = expected(exchange);
    let mut first = 1;
    loop {
        assert!(first < CALLS_MAX, "{name} has no end");
        let plan = Arc::new(Plan::new(call, first, times, fault));
        let running = exchange.server(&plan, over);
        let what =
            format!("{name} over {over:?}, {call:?} number {first}, {times} times: {fault:?}");
        let (text, ended) = exchange.run(&running);
        if plan.struck() == 0 {
            // No call has failed, so nothing may be missing, and there are no further calls to
            // fail.
            assert_eq!(
                (text.len(), ended.is_ok()),
                (expected.len(), true),
                "{what}, which did not strike"
            );
            running.end();
            break;
        }
        if is_invisible {
            assert!(ended.is_ok(), "{what}: {ended:?}");
            assert!(
                text == expected,
                "{what}: {} bytes of {}: {text:.300}",
                text.len(),
                expected.len()
            );
        } else {
            let timed_out =
                ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            assert!(!timed_out, "{what}: the connection stays open");
            // The end may be missing, but the rest is correct. A handler that reads its content
            // reports the error.
            let is_read_by_handler =
                exchange.pieces.iter().any(|piece| piece.contains("POST /streamed"));
            let told = text.split_once("HTTP/1.1 400 ").filter(|_| is_read_by_handler);
            let right = told.map_or(&*text, |(before, _)| before);
            assert!(expected.starts_with(right), "{what}: {text:.300}");
        }
        // The next client is served in any case.
        let (text, ended) = exchange.run(&running);
        assert!(
            ended.is_ok() && text == expected,
            "{what}: the next client has {} bytes, {ended:?}",
            text.len()
        );
        let server = &running.server;
        eventually(&format!("{what}: no connection is left"), || {
            server.metrics().is_some_and(|metrics| metrics.connections == 0)
        });
        let metrics = server.metrics().unwrap();
        assert_eq!((metrics.panics, metrics.leased, metrics.pool.panics), (0, 0, 0), "{what}");
        running.end();
        first += 1;
    }
    assert!(first > 1, "{name} has no {call:?}");
}

/// Checks each exchange with each of these faults.
fn check_all(over: Over, call: Call, faults: &[Fault]) {
    for (name, exchange) in ALL {
        for fault in faults {
            check_each(name, exchange, over, call, *fault);
        }
    }
}

#[test]
fn an_interrupted_read_is_not_noticed() {
    check_all(Over::Tcp, Call::Read, &INVISIBLE);
}

#[test]
fn an_interrupted_write_is_not_noticed() {
    check_all(Over::Tcp, Call::Write, &INVISIBLE);
}

#[test]
fn a_read_that_fails_ends_its_connection_and_nothing_else() {
    check_all(Over::Tcp, Call::Read, &FATAL);
}

#[test]
fn a_write_that_fails_ends_its_connection_and_nothing_else() {
    check_all(Over::Tcp, Call::Write, &FATAL);
}

#[test]
fn an_interrupted_read_of_a_unix_socket_is_not_noticed() {
    check_all(Over::Unix, Call::Read, &INVISIBLE);
}

#[test]
fn an_interrupted_write_to_a_unix_socket_is_not_noticed() {
    check_all(Over::Unix, Call::Write, &INVISIBLE);
}

#[test]
fn a_read_of_a_unix_socket_that_fails_ends_its_connection_and_nothing_else() {
    check_all(Over::Unix, Call::Read, &FATAL);
}

#[test]
fn a_write_to_a_unix_socket_that_fails_ends_its_connection_and_nothing_else() {
    check_all(Over::Unix, Call::Write, &FATAL);
}

#[test]
fn an_interim_response_is_complete_and_in_order_however_often_its_write_fails() {
    let exchanges = [("continued", CONTINUED), ("continued behind another", CONTINUED_BEHIND)];
    for (name, exchange) in exchanges {
        for fault in INVISIBLE {
            for times in 2..10 {
                check_rows(name, exchange, Over::Tcp, Call::Write, fault, times);
            }
        }
    }
}

#[test]
fn a_failed_shutdown_of_a_direction_is_harmless() {
    for fault in FATAL {
        for over in [Over::Tcp, Over::Unix] {
            check_each("refused", REFUSED, over, Call::Shutdown, fault);
        }
    }
}

#[test]
fn one_byte_at_a_time_gives_the_same_responses() {
    for (name, exchange) in ALL {
        let expected = expected(exchange);
        // Long exchanges would take too long.
        if exchange.filling + expected.len() > 10_000 {
            continue;
        }
        let both = [
            (Over::Tcp, Call::Read),
            (Over::Tcp, Call::Write),
            (Over::Unix, Call::Read),
            (Over::Unix, Call::Write),
        ];
        for (over, call) in both {
            let plan = Arc::new(Plan::new(call, 1, u64::MAX, Fault::OneByte));
            let running = exchange.server(&plan, over);
            let (text, ended) = exchange.run(&running);
            assert!(
                ended.is_ok() && text == expected,
                "{name}, {over:?}, {call:?}: {text:?}, {ended:?}"
            );
            assert!(plan.struck() > 1, "{name}, {over:?}, {call:?}");
            running.end();
        }
    }
}

#[test]
fn a_connection_that_is_aborted_before_accept_delays_no_other() {
    let expected = expected(PLAIN);
    for error in
        [Errno::CONNABORTED, Errno::INTR, Errno::CONNRESET, Errno::PERM, Errno::HOSTUNREACH]
    {
        for over in [Over::Tcp, Over::Unix] {
            // Ten in a row: the next one is accepted at once, without a pause.
            let plan = Arc::new(Plan::new(Call::Accept, 1, 10, Fault::Error(error)));
            let running = PLAIN.server(&plan, over);
            assert_eq!(PLAIN.run(&running).0, expected, "{error:?}");
            assert_eq!(plan.struck(), 10, "{error:?}");
            assert_eq!(running.server.metrics().unwrap().accept_errors, 0, "{error:?}");
            running.end();
        }
    }
}

#[test]
fn without_descriptors_an_idle_connection_makes_room() {
    let expected = expected(PLAIN);
    for error in [Errno::MFILE, Errno::NFILE] {
        let plan = Arc::new(Plan::new(Call::Accept, 2, 4, Fault::Error(error)));
        let running = PLAIN.server(&plan, Over::Tcp);
        let server = &running.server;
        let mut idle = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        idle.set_read_timeout(Some(PATIENCE)).unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
        let mut answer = [0; 1024];
        assert!(idle.read(&mut answer).unwrap() > 0, "{error:?}");
        assert_eq!(PLAIN.run(&running).0, expected, "{error:?}: accepted in the end");
        assert_eq!(plan.struck(), 4, "{error:?}");
        assert_eq!(idle.read(&mut answer).unwrap(), 0, "{error:?}: it is closed");
        let metrics = server.metrics().unwrap();
        assert_eq!((metrics.connections_shed, metrics.accept_errors), (1, 4), "{error:?}");
        running.end();
    }
}

#[test]
fn without_memory_accepting_pauses_and_continues() {
    let expected = expected(PLAIN);
    for error in [Errno::NOMEM, Errno::NOBUFS] {
        // The second and third attempt fail. Connected clients are served meanwhile.
        let plan = Arc::new(Plan::new(Call::Accept, 2, 4, Fault::Error(error)));
        let running = PLAIN.server(&plan, Over::Tcp);
        let server = &running.server;
        let mut kept = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        kept.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 1024];
        let mut ask = || {
            kept.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
            assert!(kept.read(&mut answer).unwrap() > 0, "{error:?}");
        };
        ask();
        thread::scope(|scope| {
            let waits = scope.spawn(|| PLAIN.run(&running));
            eventually("it has failed once", || plan.struck() >= 1);
            ask();
            let started = Instant::now();
            eventually("it has failed three times", || plan.struck() >= 3);
            ask();
            // Each attempt is followed by a pause of 100 ms, so the loop does not spin.
            assert!(
                started.elapsed() >= Duration::from_millis(50),
                "{error:?}: {:?}",
                started.elapsed()
            );
            assert_eq!(waits.join().unwrap().0, expected, "{error:?}: accepted in the end");
        });
        assert_eq!(plan.struck(), 4, "{error:?}");
        assert!(plan.calls() < 12, "{error:?}: {} attempts", plan.calls());
        assert_eq!(server.metrics().unwrap().accept_errors, 4, "{error:?}");
        running.end();
    }
}

/// A reader that fails in the middle of a content.
struct Breaks(usize);

impl Read for Breaks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::Other)?;
        let length = buffer.len().min(1000);
        buffer[..length].fill(b's');
        Ok(length)
    }
}

#[test]
fn an_incomplete_body_that_is_delimited_by_the_end_of_the_connection_ends_in_a_reset() {
    let plan = Arc::new(Plan::new(Call::Accept, u64::MAX, 0, Fault::OneByte));
    for reads in 0..5 {
        for version in ["1.0", "1.1"] {
            let running = PLAIN.server(&plan, Over::Tcp);
            let mut socket = running.connect();
            let _other = socket.other_handle();
            write!(
                socket,
                "GET /breaks/{reads} HTTP/{version}\r\nHost: t\r\nConnection: close\r\n\r\n"
            )
            .unwrap();
            let mut received = Vec::new();
            let ended = socket.read_to_end(&mut received);
            let is_reset = ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
            // In a chunked body the missing last chunk is visible.
            assert_eq!(is_reset, version == "1.0", "{reads} reads, {version}: {received:?}");
            assert!(is_reset || !received.ends_with(b"0\r\n\r\n"));
            running.end();
        }
    }
}

#[test]
fn a_plan_fails_exactly_the_given_calls() {
    let plan = Plan::new(Call::Read, 2, 2, Fault::OneByte);
    let moved: Vec<usize> = (0..5).map(|_| plan.before(Call::Read, 9).unwrap()).collect();
    assert_eq!(moved, [9, 1, 1, 9, 9]);
    assert_eq!(plan.before(Call::Write, 9).unwrap(), 9);
    assert_eq!((plan.struck(), plan.calls()), (2, 5));
}
