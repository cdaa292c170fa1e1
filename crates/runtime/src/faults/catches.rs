//! A loop is taken from a call by the test, and not by the watchdog: which call is to blame for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::execution::watchdog::Watched;
use crate::{Plan, Request, Response, Server, ServerConfig, Service};

const PATIENCE: Duration = Duration::from_secs(30);

/// What the watchdog would say of a call that has not returned.
const HELD: Duration = Duration::from_secs(1);

/// Says that it has begun, and waits until it is let go.
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
fn the_call_that_was_seen_is_to_blame_and_not_one_that_has_begun_since() {
    // The turn of the call, later by so much than that of the call that was seen.
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
        // From now on nobody looks but the test.
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
