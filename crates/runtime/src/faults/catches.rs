//! Tests of which call is recorded as blocking when its loop is handed to another thread. The test
//! hands it over, not the watchdog.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::execution::watchdog::Watched;
use crate::{Plan, Request, Response, Server, ServerConfig, Service};

const PATIENCE: Duration = Duration::from_secs(30);

/// How long the call has run, as the watchdog would report it.
const HELD: Duration = Duration::from_secs(1);

/// Reports that a call has begun, and waits for the test.
struct Held {
    begun: Mutex<mpsc::Sender<()>>,
    ends: Mutex<mpsc::Receiver<()>>,
}

impl Service for Held {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().route(1)
    }

    fn call(&self, _: Request) -> Response {
        self.begun.lock().send(()).unwrap();
        self.ends.lock().recv_timeout(PATIENCE).unwrap();
        Response::from("0")
    }
}

fn server_with_one_loop() -> Server {
    Server::builder()
        .bind("127.0.0.1:0")
        .unwrap()
        .config(ServerConfig::default().event_loops(1))
        .build()
        .unwrap()
}

#[test]
fn the_observed_call_is_recorded_as_blocking_and_not_a_later_one() {
    // How many turns later the running call began than the observed call.
    for (later, is_caught) in [(0, true), (2, false)] {
        let server = server_with_one_loop();
        let (begun, has_begun) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        server.spawn(Held { begun: Mutex::new(begun), ends: Mutex::new(ends) }).unwrap();
        let engine = server.engine().unwrap();
        // From now on only the test hands the loop over.
        engine.watchdog.stop();
        let handle = engine.loop_handles().last().unwrap();
        let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(client, "GET / HTTP/1.0\r\n\r\n").unwrap();
        has_begun.recv_timeout(PATIENCE).unwrap();
        let turn = handle.turn();
        assert_eq!(turn % 2, 1, "a call is going on");
        assert_eq!(handle.hand_over(turn.wrapping_sub(later), HELD), is_caught);
        let metrics = server.metrics().unwrap();
        assert_eq!((metrics.hand_overs, metrics.routes_learned), (1, u64::from(is_caught)));
        // The loop has another leader, and cannot be taken from the same call again.
        assert!(!handle.hand_over(turn, HELD));
        end.send(()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        drop((handle, engine));
        server.shutdown_handle().shutdown_within(Duration::ZERO);
        server.wait();
    }
}

/// Each call waits, or computes, until the test ends it.
struct Until {
    waits: bool,
    begun: Arc<AtomicUsize>,
    ends: Vec<Mutex<mpsc::Receiver<()>>>,
}

impl Service for Until {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().route(1)
    }

    fn call(&self, _: Request) -> Response {
        let end = self.ends[self.begun.fetch_add(1, Ordering::SeqCst)].lock();
        if self.waits {
            end.recv_timeout(PATIENCE).unwrap();
        } else {
            while end.try_recv().is_err() {}
        }
        Response::from("0")
    }
}

fn wait_for(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Three calls of one route begin one after the other, and each of the first two ends when the next
/// one has begun. The thread of the ended call, the late leader, then takes the loop from the next
/// call, which waits or computes.
#[test]
#[cfg(target_os = "linux")]
fn a_late_leader_that_takes_the_loop_from_a_call_that_waits_says_so() {
    for (waits, learned) in [(true, 1), (false, 0)] {
        let server = server_with_one_loop();
        let begun = Arc::new(AtomicUsize::new(0));
        let (end, ends): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel()).unzip();
        let ends = ends.into_iter().map(Mutex::new).collect();
        let until = Until { waits, begun: Arc::clone(&begun), ends };
        server.spawn(until).unwrap();
        let engine = server.engine().unwrap();
        engine.watchdog.stop();
        let handle = engine.loop_handles().last().unwrap();
        let mut clients = Vec::new();
        for number in 1..=3 {
            let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            write!(client, "GET / HTTP/1.0\r\n\r\n").unwrap();
            clients.push(client);
            wait_for(|| begun.load(Ordering::SeqCst) == number);
            let turn = handle.turn();
            if number == 1 {
                // As if another call had been observed, so no route is blamed.
                assert!(!handle.hand_over(turn.wrapping_sub(2), HELD));
            } else {
                // The call needs time to begin its wait.
                std::thread::sleep(Duration::from_millis(5));
                end[number - 2].send(()).unwrap();
                // The late leader leads again, and takes the next connection.
                wait_for(|| handle.turn() != turn);
            }
        }
        end[2].send(()).unwrap();
        for mut client in clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        let metrics = server.metrics().unwrap();
        assert_eq!((metrics.hand_overs, metrics.routes_learned), (1, learned), "waits: {waits}");
        drop((handle, engine));
        server.shutdown_handle().shutdown_within(Duration::ZERO);
        server.wait();
    }
}
