//! Tests of a call of a raw protocol: what becomes of its output and of the input.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read;
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;

use super::*;
use crate::config::ServerConfig;
use crate::engine::Backend;
use crate::engine::event_loop::EventLoop;
use crate::engine::tests::{accepted, connection, event_loops};
use crate::execution::probe::Clocks;
use crate::service::stopping::Stopping;
use crate::service::tcp::{Io, Protocol};
use crate::transport::Peer;

/// A protocol that does as the bytes say, and says why it has ended.
struct Obeys(Arc<Mutex<Vec<Closed>>>);

impl Protocol for Obeys {
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        match bytes {
            b"panic" => {
                io.send(b"half of a message");
                panic!("a test")
            }
            b"back and more" => {
                io.send(&bytes[..4]);
                "back and".len()
            }
            b"turn" => {
                io.send(format!("{:?}", io.turn()).as_bytes());
                4
            }
            b"one by one" => {
                io.resume();
                3
            }
            _ => bytes.len(),
        }
    }

    fn notified_may_block(&self) -> bool {
        false
    }

    fn close(&mut self, reason: Closed) {
        self.0.lock().push(reason);
    }
}

/// A worker with a connection that has received this, and the ends of its protocol.
struct Run {
    event_loop: Option<Box<EventLoop>>,
    connection: Option<Box<Connection>>,
    client: UnixStream,
    ends: Arc<Mutex<Vec<Closed>>>,
}

impl Run {
    fn new() -> Self {
        let ends = Arc::new(Mutex::new(Vec::new()));
        let of_service = Arc::clone(&ends);
        let service = move |_: Peer| Obeys(Arc::clone(&of_service));
        let backend = Backend::Tcp(Arc::new(service));
        let engine = crate::engine::Engine::new(ServerConfig::default(), backend, Stopping::new());
        let [event_loop] = event_loops(&engine);
        let (connection, client) = connection(&event_loop);
        client.set_nonblocking(true).unwrap();
        let event_loop = Some(Box::new(event_loop));
        Self { event_loop, connection: Some(connection), client, ends }
    }

    /// Calls the protocol with this input, on its loop or on another thread.
    fn call<T>(
        &mut self,
        event: Event,
        input: &[u8],
        leads: bool,
        look: impl FnOnce(&mut Worker<'_>, Flow) -> T,
    ) -> T {
        let mut buffers = crate::buffers::Buffers::take();
        buffers.input.clear();
        buffers.input.spare()[..input.len()].copy_from_slice(input);
        buffers.input.filled(input.len());
        let connection = self.connection.take().unwrap();
        let lead = if leads { self.event_loop.take() } else { None };
        let mut worker = Worker {
            engine: Arc::clone(&connection.loop_handle.engine),
            buffers: &mut buffers,
            lead,
            seat: None,
            permit: None,
            clocks: Clocks::default(),
            measured_call: Default::default(),
            has_measured: false,
            error: None,
        };
        let flow = worker.call_raw(connection, event);
        let result = look(&mut worker, flow);
        self.event_loop = worker.lead.take().or(self.event_loop.take());
        drop(worker);
        buffers.output.clear();
        buffers.give_back();
        result
    }
}

fn received(client: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes);
    bytes
}

#[test]
fn a_protocol_that_panics_sends_nothing_and_is_told_why_it_ends() {
    let mut run = Run::new();
    run.call(Event::Data, b"panic", true, |worker, flow| {
        let Continue(mut connection) = flow else { panic!("{flow:?}") };
        assert_eq!(worker.buffers.output, b"");
        worker.end_raw(&mut connection);
    });
    assert_eq!(*run.ends.lock(), [Closed::Panicked]);
}

#[test]
fn bytes_that_are_sent_back_are_consumed_once() {
    let mut run = Run::new();
    run.call(Event::Data, b"back and more", true, |worker, flow| {
        assert!(matches!(flow, Continue(_)), "{flow:?}");
        assert_eq!(worker.buffers.input.unread(), b" more");
    });
    assert_eq!(received(&mut run.client), b"back");
}

#[test]
fn only_a_leader_gives_way_to_its_other_connections() {
    for leads in [false, true] {
        let mut run = Run::new();
        run.call(Event::Data, b"one by one", leads, |worker, flow| match flow {
            Continue(_) if !leads => assert_eq!(worker.buffers.input.unread(), b" by one"),
            Break(Outcome::Yielded(connection)) if leads => {
                assert_eq!(connection.leftover.as_slice(), b" by one");
            }
            flow => panic!("{flow:?}"),
        });
    }
}

/// A client may send hours of work and go. Other systems do not report the reset of a Unix socket.
#[test]
#[cfg(target_os = "linux")]
fn the_pool_drops_the_messages_of_a_connection_that_was_reset() {
    let mut run = Run::new();
    let connection = run.call(Event::Data, b"back and more", true, |_, flow| flow.continue_value());
    run.connection = connection;
    // It leaves without having read what was sent back.
    run.client = UnixStream::pair().unwrap().0;
    run.call(Event::Data, b"one by one", false, |worker, flow| {
        let Break(Outcome::Closed(mut connection)) = flow else { panic!("{flow:?}") };
        worker.end_raw(&mut connection);
    });
    assert_eq!(*run.ends.lock(), [Closed::Broken]);
}

#[test]
fn a_call_that_does_not_block_stays_on_its_loop_although_others_of_its_route_block() {
    let mut run = Run::new();
    let connection = run.call(Event::Data, b"x", true, |_, flow| flow.continue_value());
    let connection = connection.unwrap();
    let engine = Arc::clone(&connection.loop_handle.engine);
    let route = match &connection.guest {
        Guest::Raw(raw) => raw.route(),
        other => panic!("{other:?}"),
    };
    run.connection = Some(connection);
    let event_loop = run.event_loop.as_mut().unwrap();
    let held = std::time::Duration::from_secs(1);
    assert!(engine.routes.caught(route.key, event_loop.route_mut(route.key), held).is_some());
    run.call(Event::Notified, b"", true, |worker, flow| {
        assert!(!worker.runs_here(route, None));
        assert!(matches!(flow, Continue(_)), "{flow:?}");
    });
}

/// Eight that have much to do share four milliseconds. A thread has one connection only.
#[test]
fn a_call_has_less_time_if_many_connections_want_to_be_served() {
    for (others, leads, turn) in [(0, true, "1ms"), (8, true, "500µs"), (8, false, "1ms")] {
        let mut run = Run::new();
        let event_loop = run.event_loop.as_mut().unwrap();
        let clients: Vec<_> = (0..others)
            .map(|_| {
                let now = std::time::Instant::now();
                let (accepted, client) = accepted(Peer::Unix);
                let other = event_loop.adopt(accepted, now);
                event_loop.requeue(other, now);
                client
            })
            .collect();
        run.call(Event::Data, b"turn", leads, |_, flow| assert!(flow.is_continue()));
        assert_eq!(String::from_utf8(received(&mut run.client)).unwrap(), turn, "{others} others");
        drop(clients);
    }
}
