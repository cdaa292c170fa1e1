//! Connections whose leader is late, and connections that are not on their loop while their peer
//! sends data.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, Server, ServerConfig, Service};

/// Lets one handler pass each time it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            is_open = self.changed.wait(is_open).unwrap();
        }
        *is_open = false;
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// `/late` waits at the gate. `/open` opens it and runs until the client has the answer to the late
/// call, which has certainly returned by then.
struct Late {
    gate: Arc<Gate>,
    /// How many answers to late calls have arrived. `/open` runs until there is one more.
    arrived: Arc<AtomicUsize>,
    is_dispatched: bool,
}

impl Service for Late {
    fn plan(&self, _request: &mut Request) -> Plan {
        if self.is_dispatched { Plan::new().on_pool() } else { Plan::new().on_loop() }
    }

    fn call(&self, request: Request) -> Response {
        match request.path() {
            "/late" => self.gate.pass(),
            "/open" => {
                let before = self.arrived.load(Ordering::SeqCst);
                self.gate.open();
                let ends = Instant::now() + DEADLINE;
                while self.arrived.load(Ordering::SeqCst) == before {
                    if Instant::now() > ends {
                        return Response::from("the late call has not been answered meanwhile");
                    }
                    thread::yield_now();
                }
            }
            _ => {}
        }
        Response::from("ok")
    }
}

/// Generous, for a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

struct Running {
    server: Server,
    gate: Arc<Gate>,
    arrived: Arc<AtomicUsize>,
    address: SocketAddr,
}

fn start(is_dispatched: bool) -> Running {
    let config = ServerConfig::default().event_loops(1);
    let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
    let gate = Arc::new(Gate::default());
    let arrived = Arc::<AtomicUsize>::default();
    let late = Late { gate: Arc::clone(&gate), arrived: Arc::clone(&arrived), is_dispatched };
    server.spawn(late).unwrap();
    let address = server.local_addr().unwrap();
    Running { server, gate, arrived, address }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE * 2)).unwrap();
        stream
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.shutdown_handle().shutdown();
        self.server.wait();
    }
}

fn ask(stream: &mut TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
}

#[track_caller]
fn expect_answer(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\nok") {
        assert_eq!(
            stream.read(&mut byte).expect("an answer in time"),
            1,
            "an answer and not the end"
        );
        bytes.push(byte[0]);
    }
}

/// Waits until a call is at the gate and another leader of its loop answers.
fn ask_another_leader(running: &Running) -> TcpStream {
    let mut other = running.connect();
    ask(&mut other, "/plain");
    expect_answer(&mut other);
    other
}

#[test]
fn a_request_that_arrives_while_its_leader_is_late_is_answered_although_another_handler_runs() {
    let running = start(false);
    for _ in 0..20 {
        let mut late = running.connect();
        ask(&mut late, "/late");
        let mut other = ask_another_leader(&running);
        ask(&mut late, "/quick");
        ask(&mut other, "/open");
        expect_answer(&mut late);
        running.arrived.fetch_add(1, Ordering::SeqCst);
        expect_answer(&mut other);
        expect_answer(&mut late);
    }
}

#[test]
fn a_request_that_arrives_while_its_leader_is_late_is_answered() {
    let running = start(false);
    for _ in 0..20 {
        let mut late = running.connect();
        ask(&mut late, "/late");
        let _other = ask_another_leader(&running);
        ask(&mut late, "/quick");
        running.gate.open();
        expect_answer(&mut late);
        expect_answer(&mut late);
    }
}

#[test]
fn an_end_that_came_while_the_connection_was_away_closes_it() {
    for is_dispatched in [true, false] {
        let running = start(is_dispatched);
        let mut client = running.connect();
        ask(&mut client, "/late");
        let _other = ask_another_leader(&running);
        ask(&mut client, "/quick");
        // Two events: the request, and then the end.
        let _another = ask_another_leader(&running);
        client.shutdown(Shutdown::Write).unwrap();
        let _third = ask_another_leader(&running);
        running.gate.open();
        expect_answer(&mut client);
        expect_answer(&mut client);
        let end = client.read(&mut [0; 16]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    }
}
