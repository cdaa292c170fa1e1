//! Response bodies that other threads push.

use std::ops::ControlFlow::Continue;

use super::stream::tell_of_failed_body;
use super::{Flow, Worker};
use crate::budget::refusal::Refusal;
use crate::engine::connection::Connection;
use crate::engine::exchange::ReplyTo;
use crate::engine::seat::Seat;
use crate::engine::task::Task;
use crate::execution::key::Route;
use crate::protocol::http::{Http, PushFailed};
use crate::service::mailbox::WakeConnection;
use crate::service::pushed::{Outcome, Run};
use crate::service::refused::RETRY_AFTER;
use crate::service::response::{Response, ResponseBody};

/// The headers that describe a body and say how long it may be kept (RFC 9110, section 8, and RFC
/// 9111, section 5), or agree to another protocol (RFC 9110, section 7.8, and RFC 6455, section
/// 11.3).
const OF_WHAT_FOLLOWS: [&str; 16] = [
    "content-type",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-disposition",
    "accept-ranges",
    "etag",
    "last-modified",
    "cache-control",
    "expires",
    "trailer",
    "upgrade",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
];

impl Worker<'_> {
    /// Begins a response whose body is pushed, or that upgrades its connection.
    #[cold]
    #[inline(never)]
    pub(super) fn respond_on_thread(
        &mut self,
        mut reply_to: ReplyTo,
        response: &mut Response,
    ) -> Flow {
        let ReplyTo { connection, route, .. } = &mut reply_to;
        if let Some(refusal) = self.give_thread(connection, *route, response) {
            self.refused_late(connection, response, refusal);
        }
        self.respond_any_rare(reply_to, response)
    }

    /// Gives a thread to the program's code that runs after the handler, if there is such code. If
    /// there is no thread, the response becomes a `503`, and the reason is returned. This must
    /// happen before the response is passed to the service, which counts what the client gets.
    pub(super) fn give_thread(
        &mut self,
        connection: &Connection,
        route: Route,
        response: &mut Response,
    ) -> Option<Refusal> {
        self.start_filling(connection, route, response)
            .or_else(|| self.reserve_thread(connection, route, response))
    }

    /// Gives the code that fills a pushed body its thread.
    fn start_filling(
        &mut self,
        connection: &Connection,
        route: Route,
        response: &mut Response,
    ) -> Option<Refusal> {
        let ResponseBody::Pushed(body) = response.body_mut() else { return None };
        let run = body.take_run()?;
        if connection.guest.as_http().is_some_and(Http::is_head_request) {
            return None;
        }
        let refusal = self.run_for(connection, route, run).err()?;
        body.ended(Outcome::Refused(refusal));
        refuse_body(response);
        Some(refusal)
    }

    /// Runs code that fills a body on a thread of the pool, if this client may have one and the
    /// route has a seat.
    fn run_for(&mut self, connection: &Connection, route: Route, run: Run) -> Result<(), Refusal> {
        let (peer, client) = (connection.peer, connection.account.client());
        let open = self.open_lasting(connection, false)?;
        let taken = Seat::try_take(&self.engine, route.key, client).is_some_and(|seat| {
            let work = Box::new(move || run(Some(open)));
            self.engine.pool.submit(Task::Detached(work, route.id(), seat)).is_ok()
        });
        if taken {
            return Ok(());
        }
        self.engine.refusals.note(Refusal::Overloaded, peer);
        Err(Refusal::Overloaded)
    }

    /// Sends what was pushed. A thread that leads no loop does so once: the loop does the rest, so
    /// that a busy sender does not keep a thread of the pool.
    pub(super) fn pushed(
        &mut self,
        mut connection: Box<Connection>,
        has_more: bool,
        rounds: &mut u32,
    ) -> Flow {
        self.set_resets(&mut connection);
        if self.lead.is_some() {
            let connection = self.begin_round(connection, rounds)?;
            return self.flush(connection);
        }
        let is_pushing = connection.guest.as_http().is_some_and(Http::is_pushing);
        let connection = self.flush(connection)?;
        if !is_pushing {
            return Continue(connection);
        }
        if has_more {
            // Recorded as missed readiness until the connection has returned to its loop.
            connection.loop_handle.wake_connection(connection.token);
        }
        self.wait(connection)
    }

    /// Waits for other threads. A peer that has closed its direction is taken to be gone: otherwise
    /// that would not be noticed while nothing is sent, and clients that close only one direction
    /// are rare.
    pub(super) fn await_push(&mut self, mut connection: Box<Connection>) -> Flow {
        if connection.has_end {
            connection.guest.end_of_input();
            self.set_resets(&mut connection);
            return Continue(connection);
        }
        // Sends the head and keep-alive bytes.
        let connection = self.flush(connection)?;
        self.wait(connection)
    }

    /// Reports a body that has failed. Its connection ends.
    #[cold]
    pub(super) fn push_failed(
        &mut self,
        mut connection: Box<Connection>,
        failed: &PushFailed,
    ) -> Box<Connection> {
        let site = connection.guest.as_http().and_then(Http::site);
        tell_of_failed_body(&self.engine, site, failed.route, &failed.error);
        self.set_resets(&mut connection);
        connection
    }

    /// Decides whether the end of the connection must not look like the end of a response.
    pub(super) fn set_resets(&self, connection: &mut Connection) {
        let Connection { guest, transport, .. } = connection;
        transport.set_resets(guest.as_http().is_some_and(Http::is_cut_short));
    }
}

/// Turns a response into a `503` without its body or upgrade. Headers that do not describe the body
/// stay: without those of CORS, a browser hides the response from a script, and one of them may be
/// the ID of the request.
pub(super) fn refuse_body(response: &mut Response) {
    response.set_status(503);
    *response.body_mut() = ResponseBody::Empty;
    OF_WHAT_FOLLOWS.iter().for_each(|name| _ = response.headers_mut().remove(name));
    response.set_header("retry-after", RETRY_AFTER.to_string()).expect("a valid header");
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::io::{self, Read};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::Instant;

    use parking_lot::Mutex;

    use super::*;
    use crate::buffers::Buffers;
    use crate::engine::tests::{accepted_over, event_loops, serving};
    use crate::engine::worker::Outcome;
    use crate::engine::worker::tests::worker;
    use crate::service::pushed::{self, Sender};
    use crate::service::request::Request;
    use crate::transport::{Peer, Transport};

    /// Begins a pushed response to a request of this version, and lets `act` decide how its
    /// connection ends. Returns what the client reads.
    fn end(version: &str, act: fn(&Sender)) -> Result<String, io::ErrorKind> {
        let senders = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&senders);
        let engine = serving(Default::default(), move |_: Request| {
            let (sender, body) = pushed::channel();
            kept.lock().push(sender);
            let mut response = Response::new(200);
            response.set_pushed(body);
            response
        });
        let [event_loop] = event_loops(&engine);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, address) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let transport = Transport::tcp(mio::net::TcpStream::from_std(socket));
        let accepted = accepted_over(transport, Peer::Tcp(address));
        let loop_handle = Arc::clone(event_loop.handle());
        let mut connection = Box::new(Connection::new(accepted, loop_handle, 0, Instant::now()));
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n");
        connection.leftover.extend(head.as_bytes());
        let mut buffers = Buffers::take();
        let mut worker = worker(engine, &mut buffers, Some(Box::new(event_loop)));
        let connection = worker.load(connection);
        let Outcome::Parked(connection) = worker.serve(connection) else {
            panic!("it waits for its sender");
        };
        act(&senders.lock()[0]);
        // Served once more, and then closed as when there is no room for it.
        let (Outcome::Parked(connection) | Outcome::Closed(connection)) = worker.serve(connection)
        else {
            panic!("it is not moved");
        };
        drop(connection);
        let mut read = String::new();
        client.read_to_string(&mut read).map_err(|error| error.kind())?;
        Ok(read)
    }

    /// Without chunks, an orderly end of the connection means that the response is complete.
    #[test]
    fn a_pushed_response_without_chunks_is_reset_unless_it_is_complete() {
        let goes_on = |sender: &Sender| sender.send("some").unwrap();
        let ends = |sender: &Sender| sender.finish();
        let fails = |sender: &Sender| sender.fail("a test");
        let reset = Err(io::ErrorKind::ConnectionReset);
        let end = |version, act| end(version, act).map(|read| read.starts_with("HTTP/1.1 200"));
        assert_eq!([end("1.0", goes_on), end("1.0", fails)], [reset, reset]);
        assert_eq!(end("1.0", ends), Ok(true));
        assert_eq!([goes_on, ends].map(|act: fn(&Sender)| end("1.1", act)), [Ok(true); 2]);
    }
}
