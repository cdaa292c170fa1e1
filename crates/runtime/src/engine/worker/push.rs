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
