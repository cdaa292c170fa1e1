//! Clocks that jump forward and back: nothing panics, no deadline is lost, and pending requests are
//! answered.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;

use super::Jumps;
use crate::{Plan, Request, Response, Server, ServerConfig, Service};

const PATIENCE: Duration = Duration::from_secs(20);

const HOUR: i64 = 3600;

/// More than a loop takes from its poller at once in tests.
const CROWD: usize = 100;

/// Blocks its event loop while it plans `/hold`.
struct Site {
    holds: Mutex<mpsc::Sender<()>>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Service for Site {
    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/hold" => {
                self.holds.lock().send(()).unwrap();
                self.goes_on.lock().recv_timeout(PATIENCE).unwrap();
                Plan::new()
            }
            "/streamed" => Plan::new().streamed(),
            _ => Plan::new(),
        }
    }

    fn call(&self, mut request: Request) -> Response {
        match io::copy(request.body_mut(), &mut io::sink()) {
            Ok(length) => Response::from(length.to_string()),
            Err(_) => Response::new(400),
        }
    }
}

/// A server whose clocks jump, with one event loop that the test can block.
struct Jumping {
    server: Server,
    jumps: Arc<Jumps>,
    is_held: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl Jumping {
    fn start(config: ServerConfig) -> Self {
        let jumps = Arc::new(Jumps::default());
        let mut config = config.event_loops(1);
        config.jumps = Some(Arc::clone(&jumps));
        let (holds, is_held) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
        server.spawn(Site { holds: Mutex::new(holds), goes_on: Mutex::new(goes_on) }).unwrap();
        Self { server, jumps, is_held, go_on }
    }

    fn client(&self) -> Client {
        let socket = TcpStream::connect(self.server.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(socket)
    }

    /// Sets how far the server's monotonic clock is ahead of the real one.
    fn set_monotonic(&self, seconds: i64) {
        self.jumps.monotonic.store(seconds, Ordering::SeqCst);
    }

    fn end(&self) {
        let metrics = self.server.metrics().unwrap();
        assert_eq!((metrics.panics, metrics.pool.panics), (0, 0));
        self.server.shutdown_handle().shutdown_within(Duration::ZERO);
        self.server.wait();
    }
}

struct Client(TcpStream);

impl Client {
    fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).unwrap();
    }

    fn ask(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
    }

    /// Returns the next response, or the part of it that arrived before the end.
    fn answer(&mut self) -> String {
        let mut received = Vec::new();
        let mut byte = [0];
        // A response that is not the last one has one byte of content.
        while !received.ends_with(b"\r\n\r\n0") {
            match self.0.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => received.push(byte[0]),
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&received)),
            }
        }
        String::from_utf8(received).unwrap()
    }

    fn is_answered(&mut self) {
        let answer = self.answer();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n0"), "{answer:?}");
    }

    fn is_closed(&mut self) {
        assert_eq!(self.answer(), "");
    }
}

#[test]
fn pending_requests_are_answered_although_every_deadline_has_passed() {
    let jumping = Jumping::start(ServerConfig::default());
    let mut crowd: Vec<Client> = (0..CROWD).map(|_| jumping.client()).collect();
    for client in &mut crowd {
        client.ask("/");
        client.is_answered();
    }
    let mut silent = jumping.client();
    silent.ask("/");
    silent.is_answered();
    let mut half = jumping.client();
    half.send("GET / HTTP/1.1\r\nHo");
    let mut holder = jumping.client();
    holder.ask("/hold");
    jumping.is_held.recv_timeout(PATIENCE).unwrap();
    // The process sleeps for an hour, and these requests arrive meanwhile.
    for client in &mut crowd {
        client.ask("/");
    }
    jumping.set_monotonic(HOUR);
    jumping.go_on.send(()).unwrap();
    for client in &mut crowd {
        client.is_answered();
    }
    holder.is_answered();
    silent.is_closed();
    let refused = half.answer();
    assert!(refused.starts_with("HTTP/1.1 408 "), "{refused:?}");
    // The connections of the crowd are kept.
    for client in &mut crowd {
        client.ask("/");
        client.is_answered();
    }
    jumping.end();
}

#[test]
fn a_clock_that_goes_back_does_not_disturb_connections() {
    let jumping = Jumping::start(ServerConfig::default());
    let mut kept = jumping.client();
    for seconds in [HOUR, 0, HOUR / 2, -60, -30, -120, -60] {
        // Times that were taken before the clock went back are in its future.
        jumping.set_monotonic(seconds);
        let mut other = jumping.client();
        for path in ["/", "/streamed"] {
            other.send(&format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n"));
            other.is_answered();
        }
        kept = if seconds >= HOUR / 2 { jumping.client() } else { kept };
        kept.ask("/");
        kept.is_answered();
    }
    jumping.end();
}

#[test]
fn the_date_follows_a_wall_clock_that_jumps_and_deadlines_do_not() {
    let jumping = Jumping::start(ServerConfig::default());
    let mut kept = jumping.client();
    let days = [0, 400, -400, 0, 365 * 5000, -365 * 56, 0];
    for (round, day) in (0..).zip(days) {
        jumping.jumps.wall.store(day * 24 * HOUR, Ordering::SeqCst);
        // The cached date is valid for one second.
        jumping.set_monotonic(round * 2);
        kept.ask("/");
        let answer = kept.answer();
        let date = answer.lines().find_map(|line| line.strip_prefix("date: ")).unwrap();
        let told = httpdate(date);
        let meant =
            jumping.jumps.wall().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        assert!(told.abs_diff(meant) <= PATIENCE.as_secs(), "{date} {told} {meant}");
    }
    jumping.end();
}

/// Converts a date to seconds since 1970, by counting days.
fn httpdate(date: &str) -> u64 {
    let fields: Vec<&str> = date.split([' ', ':']).collect();
    let number = |index: usize| fields[index].parse::<u64>().unwrap();
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let is_leap = |year: u64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let lengths =
        |year| [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (year, month) = (number(3), months.iter().position(|month| *month == fields[2]).unwrap());
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let days = years + lengths(year)[..month].iter().sum::<u64>() + number(1) - 1;
    ((days * 24 + number(4)) * 60 + number(5)) * 60 + number(6)
}

#[test]
fn a_timeout_beyond_the_range_of_clocks_is_a_century() {
    let for_ever = Duration::MAX;
    let config = ServerConfig::default()
        .thread_idle_timeout(for_ever)
        .head_timeout(for_ever)
        .keep_alive_timeout(for_ever)
        .content_timeout(for_ever)
        .write_timeout(for_ever)
        .linger_timeout(for_ever)
        .drain_timeout(for_ever);
    let jumping = Jumping::start(config);
    let mut client = jumping.client();
    client.ask("/");
    client.is_answered();
    for path in ["/", "/streamed"] {
        client.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
        ));
        client.send("0\r\n\r\n");
        client.is_answered();
    }
    let mut refused = jumping.client();
    refused.send("BAD\r\n\r\n");
    assert!(refused.answer().starts_with("HTTP/1.1 400 "));
    drop(refused);
    jumping.server.shutdown_handle().shutdown_within(for_ever);
    client.is_closed();
    jumping.server.wait();
    assert_eq!(jumping.server.metrics().map(|metrics| metrics.panics), Some(0));
}
