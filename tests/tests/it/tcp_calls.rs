//! Protocols with several calls at once: their connection stays on its loop, and the answers come
//! as they are ready.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{self, Http, Io, Protocol};
use filoplume_runtime::{
    Peer, Permits, Plan, Request, Response, ResponseBody, ServerConfig, Service,
};
use filoplume_tests::{DEADLINE, Gate, TestServer, eventually};

/// Each line of the client is a number and a path. Each answer is a line with the number, the
/// status and the body.
struct Paths {
    site: Http,
    has_ended: bool,
    /// Sends `bye` when the server shuts down.
    says_bye: bool,
    /// Opened by the line `open`, after which the protocol waits for a moment.
    gate: Gate,
}

impl Protocol for Paths {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        let mut used = 0;
        while let Some(length) = bytes[used..].iter().position(|&byte| byte == b'\n') {
            let line = std::str::from_utf8(&bytes[used..used + length]).unwrap();
            used += length + 1;
            match line.split_once(' ') {
                Some((number, path)) => {
                    let request = http::Request::builder().uri(path).body(Vec::new()).unwrap();
                    let request = Request::try_from(request).unwrap();
                    io.call(number.parse().unwrap(), request, &self.site);
                }
                None if line == "close" => io.close(),
                None if line == "open" => {
                    self.gate.open();
                    // The answer arrives before this call of `data` ends. The rest of the input
                    // comes in the next one.
                    thread::sleep(Duration::from_millis(100));
                    io.resume();
                    break;
                }
                None => io.send(format!("open {}\n", io.open_calls()).as_bytes()),
            }
        }
        used
    }

    fn answered(&mut self, number: u64, response: Response, io: &mut Io<'_>) {
        let status = response.status().as_u16();
        let body = match response.body() {
            ResponseBody::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        io.send(format!("{number} {status} {body}\n").as_bytes());
        if self.has_ended && io.open_calls() == 0 {
            io.close();
        }
    }

    fn end(&mut self, _: &[u8], io: &mut Io<'_>) {
        self.has_ended = true;
        if io.open_calls() == 0 {
            io.close();
        }
    }

    fn shutdown(&mut self, io: &mut Io<'_>) {
        if self.says_bye {
            io.send(b"bye\n");
        }
        io.close();
    }
}

fn paths(config: ServerConfig, service: impl Service) -> TestServer {
    paths_behind(&Gate::new(), config, service)
}

fn paths_behind(gate: &Gate, config: ServerConfig, service: impl Service) -> TestServer {
    let (gate, site) = (gate.clone(), tcp::http(service));
    TestServer::raw(config, move |_: Peer| Paths {
        site: site.clone(),
        has_ended: false,
        says_bye: true,
        gate: gate.clone(),
    })
}

fn lines(stream: &TcpStream) -> impl Iterator<Item = String> + use<> {
    BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap)
}

/// `/gate` waits for the gate, and `/panic` panics. Other paths are answered with their path.
fn behind(gate: Gate) -> impl Fn(Request) -> Response + Send + Sync + 'static {
    move |request| {
        match request.path() {
            "/gate" => gate.pass(),
            "/panic" => panic!("a test's own"),
            _ => {}
        }
        Response::from(request.path().to_owned())
    }
}

#[test]
fn answers_come_as_they_are_ready_and_the_connection_goes_on() {
    let gate = Gate::new();
    let server = paths(ServerConfig::default(), behind(gate.clone()));
    let mut stream = server.stream();
    let mut answers = lines(&stream);
    // The first call blocks a loop, because the engine does not know the route.
    stream.write_all(b"1 /gate\n2 /gate\n3 /now\n").unwrap();
    assert_eq!(answers.next().unwrap(), "3 200 /now");
    gate.holds(2);
    stream.write_all(b"?\n4 /now\n?\n").unwrap();
    assert_eq!(answers.next().unwrap(), "open 2");
    assert_eq!(answers.next().unwrap(), "open 3");
    assert_eq!(answers.next().unwrap(), "4 200 /now");
    gate.open();
    let last: BTreeSet<String> = answers.take(2).collect();
    assert_eq!(last, ["1 200 /gate", "2 200 /gate"].map(str::to_owned).into());
    eventually("all are counted", || server.metrics().requests == 4);
    drop(stream);
    server.is_left_by_all();
}

#[test]
fn each_of_many_calls_is_answered_once() {
    // Some block, some compute, and some do nothing.
    let server = paths(ServerConfig::default(), |request: Request| {
        match request.path() {
            "/0" => thread::sleep(Duration::from_micros(300)),
            "/1" => {
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(50) {}
            }
            _ => {}
        }
        Response::from(request.path().to_owned())
    });
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = server.stream();
            thread::spawn(move || {
                let mut answers = lines(&stream);
                for round in 0..20 {
                    let calls = round * 100..(round + 1) * 100;
                    let sent: String =
                        calls.clone().map(|call| format!("{call} /{}\n", call % 3)).collect();
                    stream.write_all(sent.as_bytes()).unwrap();
                    let answered: BTreeSet<String> = answers.by_ref().take(100).collect();
                    let expected = calls.map(|call| format!("{call} 200 /{}", call % 3)).collect();
                    assert_eq!(answered, expected);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    eventually("all are counted", || server.metrics().requests == 8 * 20 * 100);
    server.is_left_by_all();
}

#[test]
fn a_protocol_that_closes_waits_for_no_answer() {
    let gate = Gate::new();
    let config = ServerConfig::default().linger_timeout(Duration::from_millis(100));
    let server = paths(config, behind(gate.clone()));
    let mut stream = server.stream();
    stream.write_all(b"1 /gate\n").unwrap();
    gate.holds(1);
    stream.write_all(b"close\n").unwrap();
    // The client keeps its side open.
    server.is_left_by_all();
    assert!(server.metrics().timed_out <= 1, "{}", server.metrics().timed_out);
    gate.open();
    assert_eq!(lines(&stream).next(), None);
}

#[test]
fn input_that_was_not_shown_when_an_answer_came_is_not_too_long() {
    let gate = Gate::new();
    let server = paths_behind(&gate, ServerConfig::default(), behind(gate.clone()));
    let mut stream = server.stream();
    let mut answers = lines(&stream);
    stream.write_all(b"1 /gate\n").unwrap();
    gate.holds(1);
    // More than a protocol may leave unused, in one read.
    let path = "x".repeat(100);
    let calls: String = (2..1000).map(|call| format!("{call} /{path}\n")).collect();
    stream.write_all(format!("open\n{calls}").as_bytes()).unwrap();
    assert_eq!(answers.next().unwrap(), "1 200 /gate");
    assert_eq!(answers.take(998).count(), 998);
}

#[test]
fn a_panic_is_a_500_of_its_call_only() {
    let server = paths(ServerConfig::default(), behind(Gate::new()));
    let mut stream = server.stream();
    stream.write_all(b"1 /panic\n2 /now\n").unwrap();
    let answers: BTreeSet<String> = lines(&stream).take(2).collect();
    assert_eq!(answers, ["1 500 ", "2 200 /now"].map(str::to_owned).into());
    assert_eq!(server.metrics().panics, 1);
}

#[test]
fn what_needs_a_connection_of_its_own_is_a_500() {
    let server = paths(ServerConfig::default(), |request: Request| match request.path() {
        "/upgrade" => Response::upgrade(drop),
        _ => {
            let (_sender, body) = filoplume_runtime::pushed::channel();
            let mut response = Response::new(200);
            response.set_pushed(body);
            response
        }
    });
    let mut stream = server.stream();
    let mut answers = lines(&stream);
    stream.write_all(b"1 /upgrade\n").unwrap();
    assert_eq!(answers.next().unwrap(), "1 500 ");
    stream.write_all(b"2 /pushed\n").unwrap();
    assert_eq!(answers.next().unwrap(), "2 500 ");
}

/// A service that plans its requests.
struct Planned {
    gate: Gate,
    permits: Permits,
    most: AtomicUsize,
    running: AtomicUsize,
}

impl Service for &'static Planned {
    fn call(&self, request: Request) -> Response {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        if request.path() == "/gate" {
            self.gate.pass();
        } else {
            thread::sleep(Duration::from_millis(2));
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        Response::from(format!("{:?}", request.route()))
    }

    fn plans(&self) -> bool {
        true
    }

    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/refused" => Plan::refuse(Response::new(403)),
            "/permit" => Plan::new().route(3).uses(&self.permits),
            _ => Plan::new().route(4).on_pool(),
        }
    }
}

fn planned(permits: usize) -> &'static Planned {
    Box::leak(Box::new(Planned {
        gate: Gate::new(),
        permits: Permits::new("database", permits),
        most: AtomicUsize::new(0),
        running: AtomicUsize::new(0),
    }))
}

#[test]
fn plans_and_permits_apply_to_calls() {
    let service = planned(2);
    let server = paths(ServerConfig::default(), service);
    let mut stream = server.stream();
    let mut answers = lines(&stream);
    stream.write_all(b"1 /refused\n").unwrap();
    assert_eq!(answers.next().unwrap(), "1 403 ");
    let sent: String = (0..40).map(|call| format!("{call} /permit\n")).collect();
    stream.write_all(sent.as_bytes()).unwrap();
    for answer in answers.take(40) {
        assert!(answer.ends_with("200 Some(3)"), "{answer}");
    }
    assert_eq!(service.most.load(Ordering::SeqCst), 2);
}

#[test]
fn calls_that_find_no_thread_are_answered_with_503() {
    let service = planned(1);
    let config = ServerConfig::default()
        .threads_max(1)
        .queue_capacity(1)
        .queue_timeout(Duration::from_millis(200));
    let server = paths(config, service);
    let mut stream = server.stream();
    let mut answers = lines(&stream);
    // One runs, one waits until it is too late, and one finds the queue full.
    stream.write_all(b"1 /gate\n").unwrap();
    service.gate.holds(1);
    stream.write_all(b"2 /gate\n3 /gate\n").unwrap();
    assert_eq!(answers.next().unwrap(), "3 503 ");
    assert_eq!(answers.next().unwrap(), "2 503 ");
    service.gate.open();
    assert_eq!(answers.next().unwrap(), "1 200 Some(4)");
    assert_eq!(server.metrics().panics, 0);
}

#[test]
fn a_silent_peer_may_wait_for_its_answers() {
    let gate = Gate::new();
    let config = ServerConfig::default().keep_alive_timeout(Duration::from_millis(50));
    let server = paths(config, behind(gate.clone()));
    let mut stream = server.stream();
    stream.write_all(b"1 /gate\n").unwrap();
    gate.holds(1);
    filoplume_tests::holds_for(Duration::from_millis(300), "the connection is kept", || {
        server.metrics().connections == 1
    });
    gate.open();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert_eq!(all, "1 200 /gate\n", "after that, silence ends it");
}

#[test]
fn a_peer_that_closes_its_direction_gets_its_answers() {
    let gate = Gate::new();
    let server = paths(ServerConfig::default(), behind(gate.clone()));
    let mut stream = server.stream();
    stream.write_all(b"1 /gate\n").unwrap();
    gate.holds(1);
    stream.shutdown(Shutdown::Write).unwrap();
    thread::scope(|scope| {
        let all = scope.spawn(|| io::read_to_string(&stream).unwrap());
        gate.open();
        assert_eq!(all.join().unwrap(), "1 200 /gate\n");
    });
}

#[test]
fn answers_for_a_peer_that_has_gone_do_no_harm() {
    let gate = Gate::new();
    let server = paths(ServerConfig::default(), behind(gate.clone()));
    for _ in 0..4 {
        let mut stream = server.stream();
        stream.write_all(b"1 /gate\n2 /gate\n").unwrap();
    }
    gate.holds(8);
    // A connection is closed when its protocol has nothing to wait for.
    assert_eq!(server.metrics().connections, 4);
    gate.open();
    server.is_left_by_all();
    let mut stream = server.stream();
    stream.write_all(b"5 /now\n").unwrap();
    assert_eq!(lines(&stream).next().unwrap(), "5 200 /now");
}

#[test]
fn a_shutdown_waits_for_the_answers() {
    let gate = Gate::new();
    let server = paths(ServerConfig::default(), behind(gate.clone()));
    let mut stream = server.stream();
    stream.write_all(b"1 /gate\n").unwrap();
    gate.holds(1);
    let stopping = server.server().shutdown_handle();
    thread::scope(|scope| {
        let ended = scope.spawn(move || stopping.shutdown_within(DEADLINE));
        eventually("the server stops", || TcpStream::connect(server.address()).is_err());
        gate.open();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert_eq!(all, "1 200 /gate\nbye\n");
        ended.join().unwrap();
    });
}
