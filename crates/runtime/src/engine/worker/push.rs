//! Response bodies that other threads push.

use std::ops::ControlFlow::Continue;

use super::refuse::CLIENT_THREADS;
use super::stream::tell_of_failed_body;
use super::{Flow, Worker};
use crate::budget::refusal::Refusal;
use crate::engine::connection::Connection;
use crate::engine::exchange::ReplyTo;
use crate::engine::seat::Seat;
use crate::engine::task::Task;
use crate::protocol::http::{Http, PushFailed};
use crate::service::mailbox::WakeConnection;
use crate::service::response::{Response, ResponseBody};

impl Worker<'_> {
    /// Begins a response whose body is pushed. If code of the program must run to fill the body, it
    /// gets a thread first: without one the response is a `503`.
    pub(super) fn respond_pushed(&mut self, reply_to: ReplyTo, response: &mut Response) -> Flow {
        let ResponseBody::Pushed(body) = response.body_mut() else {
            return self.respond_any_rare(reply_to, response);
        };
        let is_head = reply_to.connection.guest.as_http().is_some_and(Http::is_head_request);
        let Some(run) = body.take_run().filter(|_| !is_head) else {
            return self.respond_any_rare(reply_to, response);
        };
        let peer = reply_to.connection.peer;
        let Some(open) = self.engine.streams.open(reply_to.connection.account.client()) else {
            let because = || CLIENT_THREADS.to_owned();
            self.engine.refusals.note_because(Refusal::ClientThreads, peer, because);
            return self.respond_any_rare(reply_to, &mut Response::new(503));
        };
        let route = reply_to.route;
        let client = reply_to.connection.account.client();
        let seat = Seat::try_take(&self.engine, route.key, client);
        let taken = seat.is_some_and(|seat| {
            let work = Box::new(move || {
                let _open = open;
                run();
            });
            self.engine.pool.submit(Task::Detached(work, route.id(), seat)).is_ok()
        });
        if !taken {
            self.engine.refusals.note(Refusal::Overloaded, peer);
            let mut refused = Response::new(503);
            let _ = refused.set_header("retry-after", "1");
            return self.respond_any_rare(reply_to, &mut refused);
        }
        self.respond_any_rare(reply_to, response)
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

    /// Waits for other threads. A peer that has closed its direction has gone: it would not be
    /// noticed while nothing is sent, and clients that close only one direction are rare.
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
