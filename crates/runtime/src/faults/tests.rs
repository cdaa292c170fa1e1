//! Small exchanges, with the Nth call of each kind failing, for every N: the server goes on whatever fails, and what a
//! peer must not notice it does not notice.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Call, Fault, Plan};
use crate::{Plan as RequestPlan, Request, Response, Server, ServerConfig, Service, tcp};

/// How long anything may take that should come soon.
const PATIENCE: Duration = Duration::from_secs(20);

/// No exchange has so many calls of a kind.
const CALLS_MAX: u64 = 300;

/// Faults that a peer must not notice.
const INVISIBLE: [Fault; 3] = [Fault::Error(Errno::INTR), Fault::Error(Errno::AGAIN), Fault::OneByte];

/// Faults that end a connection.
const FATAL: [Fault; 4] = [
    Fault::Error(Errno::CONNRESET),
    Fault::Error(Errno::PIPE),
    Fault::Error(Errno::NOTCONN),
    Fault::Error(Errno::TIMEDOUT),
];

/// What a client sends, in pieces, and what it does when all is sent.
#[derive(Clone, Copy)]
struct Exchange {
    pieces: &'static [&'static str],
    /// More than fits any buffer, behind the pieces.
    filling: usize,
    serves: Serves,
}

#[derive(Clone, Copy)]
enum Serves {
    Http,
    Echo,
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
        "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "lo\r\n6\r\n world\r\n0\r\n\r\n",
    ],
    filling: 0,
    serves: Serves::Http,
};
const LONG_POST: Exchange = Exchange {
    pieces: &["POST /length HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n"],
    filling: 300_000,
    serves: Serves::Http,
};
const STREAMED_POST: Exchange = Exchange {
    pieces: &["POST /streamed HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\nConnection: close\r\n\r\n"],
    filling: 300_000,
    serves: Serves::Http,
};
const PIPELINED: Exchange = Exchange {
    pieces: &["GET /1 HTTP/1.1\r\nHost: t\r\n\r\nGET /2 HTTP/1.1\r\nHost: t\r\n\r\n\
         POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n\r\nGET /4 HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"],
    filling: 0,
    serves: Serves::Http,
};
const DISPATCHED: Exchange = Exchange {
    pieces: &[
        "GET /pool/1 HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /pool/2 HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /pool/3 HTTP/1.1\r\nHost: t\r\n\r\nGET /pool/4 HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
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
const REFUSED: Exchange = Exchange { pieces: &["BAD\r\n\r\n"], filling: 0, serves: Serves::Http };
const ECHO: Exchange = Exchange { pieces: &["hello", " ", "world"], filling: 0, serves: Serves::Echo };
const LONG_ECHO: Exchange = Exchange { pieces: &[], filling: 300_000, serves: Serves::Echo };

const ALL: [(&str, Exchange); 13] = [
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
    ("refused", REFUSED),
    ("echo", ECHO),
    ("long echo", LONG_ECHO),
];

struct Site;

impl Service for Site {
    fn plan(&self, request: &mut Request) -> RequestPlan {
        match request.path() {
            "/streamed" => RequestPlan::new().streamed(),
            path if path.starts_with("/pool") => RequestPlan::new().dispatched(),
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
                response.send_bytes(content);
            }
            "/length" | "/streamed" => match io::copy(request.body_mut(), &mut io::sink()) {
                Ok(length) => _ = response.send_text(length.to_string()),
                Err(_) => return Response::new(400),
            },
            "/stream" => {
                response.send_stream(io::repeat(b's').take(200_000));
            }
            "/large" => {
                response.send_bytes(vec![b'l'; 500_000]);
            }
            path => {
                let text = path.to_owned();
                response.send_text(text);
            }
        }
        response
    }
}

impl Exchange {
    fn server(self, plan: &Arc<Plan>) -> Server {
        let mut config = ServerConfig::default().event_loops(1);
        config.faults = Some(Arc::clone(plan));
        let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
        match self.serves {
            Serves::Http => server.spawn(Site).unwrap(),
            Serves::Echo => server.spawn_tcp(tcp::bytes(|bytes| bytes.into())).unwrap(),
        }
        server
    }

    /// Sends everything and returns what came until the connection ended, and how it ended.
    fn run(self, address: SocketAddr) -> (String, io::Result<()>) {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut writer = socket.try_clone().unwrap();
        let sends = thread::spawn(move || {
            let sent = (|| {
                for piece in self.pieces {
                    writer.write_all(piece.as_bytes())?;
                    // So that the pieces arrive one by one as a rule; nothing depends on it.
                    thread::yield_now();
                }
                writer.write_all(&vec![b'f'; self.filling])
            })();
            if sent.is_ok() && matches!(self.serves, Serves::Echo) {
                let _ = writer.shutdown(Shutdown::Write);
            }
        });
        let mut received = Vec::new();
        let ended = socket.read_to_end(&mut received).map(drop);
        let _ = socket.shutdown(Shutdown::Both);
        sends.join().unwrap();
        (without_dates(&String::from_utf8(received).unwrap()), ended)
    }
}

fn without_dates(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.to_ascii_lowercase().starts_with("date:")).collect()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "in vain: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// The exchange as it is without a fault.
fn expected(exchange: Exchange) -> String {
    let plan = Arc::new(Plan::new(Call::Accept, u64::MAX, 0, Fault::OneByte));
    let server = exchange.server(&plan);
    let (text, ended) = exchange.run(server.local_addr().unwrap());
    ended.unwrap();
    assert!(!text.is_empty());
    end(&server);
    text
}

fn end(server: &Server) {
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
}

/// The exchange with a fault at the Nth call, for every N until there are no more calls.
fn check_each(name: &str, exchange: Exchange, call: Call, fault: Fault) {
    let is_invisible = INVISIBLE.contains(&fault);
    let expected = expected(exchange);
    let mut first = 1;
    loop {
        assert!(first < CALLS_MAX, "{name} has no end");
        let plan = Arc::new(Plan::new(call, first, 1, fault));
        let server = exchange.server(&plan);
        let address = server.local_addr().unwrap();
        let what = format!("{name}, {call:?} number {first}: {fault:?}");
        let (text, ended) = exchange.run(address);
        if plan.struck() == 0 {
            // Nothing went wrong, so nothing may be missing; and there is no call left that could fail.
            assert_eq!((text.len(), ended.is_ok()), (expected.len(), true), "{what}, which did not strike");
            end(&server);
            break;
        }
        if is_invisible {
            assert!(ended.is_ok(), "{what}: {ended:?}");
            assert!(text == expected, "{what}: {} bytes of {}", text.len(), expected.len());
        } else {
            let timed_out = ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            assert!(!timed_out, "{what}: the connection stays open");
            // Something may be missing at the end, but nothing is wrong. A handler that reads its content says what it met.
            let is_told = text.starts_with("HTTP/1.1 400") && name == "streamed post";
            assert!(expected.starts_with(&text) || is_told, "{what}: {text:.200}");
        }
        // Whatever happened to the first client, the next one is served.
        let (text, ended) = exchange.run(address);
        assert!(
            ended.is_ok() && text == expected,
            "{what}: the next client has {} bytes, {ended:?}",
            text.len()
        );
        eventually(&format!("{what}: no connection is left"), || {
            server.metrics().is_some_and(|metrics| metrics.connections == 0)
        });
        let metrics = server.metrics().unwrap();
        assert_eq!((metrics.panics, metrics.leased, metrics.pool.panics), (0, 0, 0), "{what}");
        end(&server);
        first += 1;
    }
    assert!(first > 1, "{name} has no {call:?}");
}

#[test]
fn what_interrupts_a_read_is_not_noticed() {
    for (name, exchange) in ALL {
        for fault in INVISIBLE {
            check_each(name, exchange, Call::Read, fault);
        }
    }
}

#[test]
fn what_interrupts_a_write_is_not_noticed() {
    for (name, exchange) in ALL {
        for fault in INVISIBLE {
            check_each(name, exchange, Call::Write, fault);
        }
    }
}

#[test]
fn a_read_that_fails_ends_its_connection_and_nothing_else() {
    for (name, exchange) in ALL {
        for fault in FATAL {
            check_each(name, exchange, Call::Read, fault);
        }
    }
}

#[test]
fn a_write_that_fails_ends_its_connection_and_nothing_else() {
    for (name, exchange) in ALL {
        for fault in FATAL {
            check_each(name, exchange, Call::Write, fault);
        }
    }
}

#[test]
fn a_direction_that_cannot_be_ended_harms_nobody() {
    for fault in FATAL {
        check_each("refused", REFUSED, Call::Shutdown, fault);
    }
}

#[test]
fn one_byte_at_a_time_says_the_same() {
    for (name, exchange) in ALL {
        let expected = expected(exchange);
        // Those that are long would take long.
        if exchange.filling + expected.len() > 10_000 {
            continue;
        }
        for call in [Call::Read, Call::Write] {
            let plan = Arc::new(Plan::new(call, 1, u64::MAX, Fault::OneByte));
            let server = exchange.server(&plan);
            let (text, ended) = exchange.run(server.local_addr().unwrap());
            assert!(ended.is_ok() && text == expected, "{name}, {call:?}: {text:?}, {ended:?}");
            assert!(plan.struck() > 1, "{name}, {call:?}");
            end(&server);
        }
    }
}

#[test]
fn a_connection_that_is_gone_before_it_is_accepted_holds_up_nobody() {
    let expected = expected(PLAIN);
    for error in [Errno::CONNABORTED, Errno::INTR, Errno::CONNRESET, Errno::PERM, Errno::HOSTUNREACH] {
        // Ten in a row: the next one is accepted at once, without a rest.
        let plan = Arc::new(Plan::new(Call::Accept, 1, 10, Fault::Error(error)));
        let server = PLAIN.server(&plan);
        assert_eq!(PLAIN.run(server.local_addr().unwrap()).0, expected, "{error:?}");
        assert_eq!(plan.struck(), 10, "{error:?}");
        assert_eq!(server.metrics().unwrap().accept_errors, 0, "{error:?}");
        end(&server);
    }
}

#[test]
fn without_descriptors_or_memory_accepting_rests_and_goes_on() {
    let expected = expected(PLAIN);
    for error in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
        // The second and third attempt fail: who is connected already is served meanwhile.
        let plan = Arc::new(Plan::new(Call::Accept, 2, 4, Fault::Error(error)));
        let server = PLAIN.server(&plan);
        let address = server.local_addr().unwrap();
        let mut kept = TcpStream::connect(address).unwrap();
        kept.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 1024];
        let mut ask = || {
            kept.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
            assert!(kept.read(&mut answer).unwrap() > 0, "{error:?}");
        };
        ask();
        let waits = thread::spawn(move || PLAIN.run(address));
        eventually("it has failed once", || plan.struck() >= 1);
        ask();
        let started = Instant::now();
        eventually("it has failed three times", || plan.struck() >= 3);
        ask();
        // Each attempt is followed by a rest of 100 ms: no spinning.
        assert!(started.elapsed() >= Duration::from_millis(50), "{error:?}: {:?}", started.elapsed());
        assert_eq!(waits.join().unwrap().0, expected, "{error:?}: accepted in the end");
        assert_eq!(plan.struck(), 4, "{error:?}");
        assert!(plan.calls() < 12, "{error:?}: {} attempts", plan.calls());
        assert_eq!(server.metrics().unwrap().accept_errors, 4, "{error:?}");
        end(&server);
    }
}

#[test]
fn a_plan_strikes_where_it_says() {
    let plan = Plan::new(Call::Read, 2, 2, Fault::OneByte);
    let moved: Vec<usize> = (0..5).map(|_| plan.before(Call::Read, 9).unwrap()).collect();
    assert_eq!(moved, [9, 1, 1, 9, 9]);
    assert_eq!(plan.before(Call::Write, 9).unwrap(), 9);
    assert_eq!((plan.struck(), plan.calls()), (2, 5));
}
