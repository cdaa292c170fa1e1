//! Which call is recorded as blocking when a loop is taken. The test takes it instead of the
//! watchdog.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

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

#[test]
fn the_observed_call_is_recorded_as_blocking_and_not_a_later_one() {
    // How many turns later the running call began than the observed call.
    for (later, is_caught) in [(0, true), (2, false)] {
        let server = Server::builder()
            .bind("127.0.0.1:0")
            .unwrap()
            .config(ServerConfig::default().event_loops(1))
            .build()
            .unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        server.spawn(Held { begun: Mutex::new(begun), ends: Mutex::new(ends) }).unwrap();
        let engine = server.engine().unwrap();
        // From now on only the test hands the loop over.
        engine.watchdog.stop();
        let handle = engine.loops().pop().unwrap();
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
