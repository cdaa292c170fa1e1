//! What the log says of connections that end because of the server.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span;

use super::*;
use crate::Server;
use crate::config::ServerConfig;
use crate::engine::tests::{connection, event_loops, serving};
use crate::execution::probe::Clocks;
use crate::service::Service;
use crate::service::plan::Plan;
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::tcp::{Io, Protocol};

/// The reason and the status of a refusal in the log.
type Line = (String, Option<u64>);

/// Collects the refusals in the log.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<Line>>>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(reason) = fields.reason {
            self.0.lock().push((reason, fields.status));
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Fields {
    reason: Option<String>,
    status: Option<u64>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "status" {
            self.status = Some(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "reason" {
            self.reason = Some(format!("{value:?}"));
        }
    }
}

/// Returns a worker, which leads this loop if there is one.
pub(super) fn worker(
    engine: Arc<Engine>,
    buffers: &mut Buffers,
    lead: Option<Box<EventLoop>>,
) -> Worker<'_> {
    Worker {
        engine,
        buffers,
        lead,
        seat: None,
        permit: None,
        clocks: Clocks::default(),
        measured_call: Default::default(),
        has_measured: false,
        error: None,
    }
}

/// Returns what is logged while a worker without a loop ends a connection.
fn logged(end: impl FnOnce(&mut Worker<'_>, Box<Connection>) -> Outcome) -> Vec<Line> {
    let engine = serving(Default::default(), |_: Request| Response::new(204));
    let [event_loop] = event_loops(&engine);
    let (connection, _client) = connection(&event_loop);
    let mut buffers = Buffers::take();
    let mut worker = worker(engine, &mut buffers, None);
    let logged = Logged::default();
    let outcome =
        tracing::subscriber::with_default(logged.clone(), || end(&mut worker, connection));
    assert!(matches!(outcome, Outcome::Closed(_)), "{outcome:?}");
    drop(worker);
    buffers.give_back();
    std::mem::take(&mut *logged.0.lock())
}

#[test]
fn a_connection_that_is_closed_for_lack_of_memory_got_no_status() {
    let of_memory =
        logged(|worker, connection| worker.give_up(connection, io::ErrorKind::OutOfMemory.into()));
    assert_eq!(of_memory, [(Refusal::Memory.to_string(), None)]);
    assert_eq!(
        logged(|worker, connection| worker.give_up(connection, io::ErrorKind::BrokenPipe.into())),
        []
    );
}

#[test]
fn a_response_that_is_broken_off_for_lack_of_a_thread_has_its_status_already() {
    let of_threads = logged(|worker, connection| worker.break_off(connection));
    assert_eq!(of_threads, [(Refusal::Overloaded.to_string(), None)]);
}

#[test]
fn a_request_that_is_refused_is_logged_with_its_status() {
    let refused = logged(|worker, connection| {
        worker.engine.refusals.note(Refusal::Memory, connection.peer);
        Outcome::Closed(connection)
    });
    assert_eq!(refused, [(Refusal::Memory.to_string(), Some(503))]);
}

#[test]
fn what_is_sent_last_has_the_time_for_a_write() {
    let config = ServerConfig::default();
    let config = config.write_timeout(Duration::from_secs(7)).content_timeout(Duration::MAX);
    let engine = serving(config, |_: Request| Response::new(204));
    let [event_loop] = event_loops(&engine);
    let (mut connection, _client) = connection(&event_loop);
    let buffers = Buffers::take();
    let http = connection.guest.as_http_mut().unwrap();
    http.expire(true, &buffers);
    let deadline = http.deadline(&buffers.clock, false, &engine.config);
    assert_eq!(deadline, Some(buffers.clock.now() + Duration::from_secs(7)));
}

/// Notes of each request whether its client has gone before the handler begins.
struct Notes(Arc<Mutex<Vec<bool>>>);

impl Service for Notes {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().cancellable()
    }

    fn call(&self, request: Request) -> Response {
        self.0.lock().push(request.cancel().is_cancelled());
        Response::new(204)
    }
}

/// The event that says so was delivered before, so there will be no other one.
#[test]
fn a_handler_that_begins_after_its_client_has_gone_is_told_at_once() {
    for leads in [true, false] {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let engine = serving(Default::default(), Notes(Arc::clone(&notes)));
        let [event_loop] = event_loops(&engine);
        let mut connections = [false, true].map(|has_end| {
            let (mut connection, client) = connection(&event_loop);
            connection.has_end = has_end;
            connection.leftover.extend(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            (Some(connection), client)
        });
        let mut buffers = Buffers::take();
        let (lead, other) =
            if leads { (Some(Box::new(event_loop)), None) } else { (None, Some(event_loop)) };
        let mut worker = worker(engine, &mut buffers, lead);
        for (connection, _) in &mut connections {
            let connection = worker.load(connection.take().unwrap());
            drop(worker.serve(connection));
        }
        assert_eq!(*notes.lock(), [false, true], "leads: {leads}");
        drop(other);
    }
}

/// A service whose connections switch to a protocol without messages.
struct Switches;

impl Protocol for Switches {
    fn data(&mut self, bytes: &[u8], _: &mut Io<'_>) -> usize {
        bytes.len()
    }
}

impl Service for Switches {
    fn call(&self, _: Request) -> Response {
        Response::upgrade_to(Self)
    }
}

#[test]
fn a_connection_that_switches_to_another_protocol_is_counted() {
    let engine = serving(Default::default(), Switches);
    let [event_loop] = event_loops(&engine);
    let (mut connection, mut client) = connection(&event_loop);
    connection.leftover.extend(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n");
    let mut buffers = Buffers::take();
    let mut worker = worker(Arc::clone(&engine), &mut buffers, Some(Box::new(event_loop)));
    let connection = worker.load(connection);
    drop(worker.serve(connection));
    assert_eq!(engine.counters.upgraded.get(), 1);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
}

/// A body of this many bytes whose drop panics.
struct Fragile(u64);

impl Read for Fragile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = io::repeat(b'x').take(self.0).read(buffer)?;
        self.0 -= read as u64;
        Ok(read)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("a test");
    }
}

#[test]
fn a_connection_is_not_counted_any_more_although_its_drop_panics() {
    for length in [u64::MAX, 3] {
        let server = Server::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let respond = move |_: Request| {
            let mut response = Response::new(200);
            response.set_stream(Fragile(length));
            response
        };
        server.spawn(respond).unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let _ = client.read(&mut [0; 100]).unwrap();
        drop(client);
        let begun = Instant::now();
        loop {
            let metrics = server.metrics().unwrap();
            if (metrics.connections, metrics.panics) == (0, 1) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{length}: {metrics:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
