//! Giving a connection to another owner: the pool, the program, or another protocol.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Instant;

use super::refuse::RETRY_AFTER;
use super::{Flow, Outcome, Worker};
use crate::budget::refusal::Refusal;
use crate::budget::seats::{Entered, Full};
use crate::engine::Backend;
use crate::engine::connection::Connection;
use crate::engine::exchange::{AnswerTo, Call, ReplyTo};
use crate::engine::incoming::IncomingRequest;
use crate::engine::seat::Seat;
use crate::engine::task::Task;
use crate::execution::key::{ExecutionKey, Route, RouteId};
use crate::protocol::{Guest, Successor};
use crate::service::blocking_stream::BlockingStream;
use crate::service::refused::Refused;
use crate::service::request::Request;
use crate::service::tcp::Closed;

impl Worker<'_> {
    /// Gives a request to the pool. It waits in the queue of its route if the route may not have
    /// another thread.
    #[inline(never)]
    pub(super) fn dispatch(&mut self, request: Request, reply_to: ReplyTo) -> Flow {
        let mut reply_to = self.prepare_handoff(reply_to)?;
        self.measure_queue(&mut reply_to.connection);
        match self.admit(Box::new(Call::new(request, AnswerTo::Connection(reply_to)))) {
            Ok(()) => Break(Outcome::Moved),
            Err((call, full)) => self.refuse_full(*call, &full),
        }
    }

    /// Has a request run by a pool thread, or lets it wait for one. Gives it back if it would wait
    /// for too long.
    #[inline(always)]
    pub(super) fn admit(&mut self, call: Box<Call>) -> Result<(), (Box<Call>, Full)> {
        self.engine.counters.dispatched.increment();
        let started = self.clocks.is_due().then(Instant::now);
        let route = call.route();
        let entered = if route.is_vital { self.enter_vital(call) } else { self.enter(call) };
        if let Some(started) = started {
            self.engine.routes.note_dispatch(started.elapsed());
            if let Some((in_line, elapsed)) = self.clocks.in_line(started) {
                self.engine.pool.note_in_line(in_line, elapsed);
            }
        }
        entered.map_err(|(call, full)| {
            let full = full.unwrap_or_else(|| self.engine.seats.why(route.key, &call));
            (call, full)
        })
    }

    /// Has a request run by a pool thread as soon as a seat is free, and a permit if it needs one.
    #[inline]
    fn enter(&self, call: Box<Call>) -> Result<(), (Box<Call>, Option<Full>)> {
        let key = call.route().key;
        match self.engine.seats.enter(key, call) {
            Entered::Seated(call) => {
                Seat::taken(&self.engine, key).run(call).map_err(|call| (call, None))
            }
            Entered::Waiting => Ok(()),
            Entered::Refused(call, full) => Err((call, Some(full))),
        }
    }

    /// Has a vital request run by one of the threads that are reserved for these, unless it needs a
    /// permit.
    #[cold]
    fn enter_vital(&self, call: Box<Call>) -> Result<(), (Box<Call>, Option<Full>)> {
        if call.request.permits().is_some() {
            return self.enter(call);
        }
        match Seat::try_take_vital(&self.engine) {
            Some(seat) => seat.run(call).or_else(|call| self.enter(call)),
            None => self.enter(call),
        }
    }

    /// Gives a request to the program.
    #[inline(never)]
    pub(super) fn enqueue(&mut self, request: Request, reply_to: ReplyTo) -> Flow {
        let reply_to = self.prepare_handoff(reply_to)?;
        let engine = Arc::clone(&self.engine);
        let Backend::Program(queue) = &engine.backend else {
            return Continue(reply_to.connection);
        };
        match queue.send(IncomingRequest::new(request, reply_to)) {
            Ok(()) => Break(Outcome::Moved),
            Err(refused) => {
                let (request, reply_to) = refused.into_message().into_parts();
                drop(request);
                self.engine.refusals.note(Refusal::Overloaded, reply_to.connection.peer);
                let mut response = Refused::new(Refusal::Overloaded, RETRY_AFTER, &"").empty();
                self.answer_overloaded(reply_to, &mut response)
            }
        }
    }

    /// Has a pool thread continue with a connection whose next step may block.
    pub(super) fn resume_on_pool(&mut self, connection: Box<Connection>, route: Route) -> Flow {
        let connection = self.flush_and_unload(connection)?;
        // A response that has begun must be finished, so no limit applies.
        let seat = Seat::force(&self.engine, route.key);
        match self.engine.pool.submit(Task::Resume(connection, seat)) {
            Ok(()) => Break(Outcome::Moved),
            Err(refused) => {
                let Task::Resume(mut connection, _) = refused.task else {
                    unreachable!("the pool gives back what it was given")
                };
                // Its response has begun, so it cannot be refused with a status.
                self.engine.refusals.note(Refusal::Overloaded, connection.peer);
                connection.guest.break_off(Closed::Overloaded);
                Break(Outcome::Closed(connection))
            }
        }
    }

    /// Replaces the guest that leaves by its successor, or gives the connection to a thread.
    #[cold]
    pub(super) fn replace_guest(&mut self, mut connection: Box<Connection>) -> Flow {
        let is_upgrade = matches!(connection.guest, Guest::Http(_));
        match connection.guest.leave() {
            Some(Successor::Guest(guest)) => {
                if is_upgrade {
                    self.engine.counters.upgraded.increment();
                }
                // A PROXY header counts against the deadline of what follows.
                if !matches!(connection.guest, Guest::Preamble(_)) {
                    connection.deadline =
                        self.buffers.clock.now() + self.engine.config.head_timeout;
                }
                connection.guest = guest;
                // The end of the input may have been read already, and must be read again.
                connection.can_read = true;
                Continue(connection)
            }
            Some(Successor::Thread(handler, key, route)) => {
                Break(self.detach(connection, handler, key, route))
            }
            None => Break(Outcome::Closed(connection)),
        }
    }

    /// Gives a connection to a pool thread, which becomes its only user.
    fn detach(
        &mut self,
        mut connection: Box<Connection>,
        handler: Box<dyn FnOnce(BlockingStream) + Send>,
        key: ExecutionKey,
        route: RouteId,
    ) -> Outcome {
        let timeout = self.engine.config.blocking_stream_timeout;
        if let Err(error) =
            connection.unwatch().and_then(|()| connection.transport.set_blocking(timeout))
        {
            return self.give_up(connection, error);
        }
        connection.transport.share();
        self.end_raw(&mut connection);
        self.end_lease(&mut connection);
        let Connection { transport, place, peer, loop_handle, token, .. } = *connection;
        let unread = self.buffers.input.take_rest();
        match self.engine.streams.open(place.as_ref()) {
            None => self.engine.refusals.note(Refusal::ClientThreads, peer),
            Some(open) => {
                let stream = BlockingStream::new(transport, unread, open);
                let is_taken = Seat::try_take(&self.engine, key).is_some_and(|seat| {
                    let work = Box::new(move || handler(stream));
                    self.engine.pool.submit(Task::Detached(work, route, seat)).is_ok()
                });
                if is_taken {
                    self.engine.counters.upgraded.increment();
                } else {
                    self.engine.refusals.note(Refusal::Overloaded, peer);
                }
            }
        }
        self.release(&loop_handle, token);
        Outcome::Moved
    }

    /// Returns whether a connection need not end although the server stops, because the next
    /// process continues it.
    #[cold]
    pub(super) fn keeps_for_successor(&self, connection: &Connection) -> bool {
        #[cfg(unix)]
        return self.engine.may_hand_over(connection);
        #[cfg(not(unix))]
        {
            let _ = (self, connection);
            false
        }
    }

    /// Has an idle connection sent to the next process.
    #[cfg(unix)]
    #[cold]
    pub(super) fn hand_over(&mut self, mut connection: Box<Connection>) -> Outcome {
        self.unload(&mut connection);
        let (loop_handle, token) = (Arc::clone(connection.loop_handle()), connection.token());
        self.engine.hand_over(connection);
        self.release(&loop_handle, token);
        Outcome::Moved
    }

    /// Prepares a connection for another owner: writes earlier responses, which must not wait for
    /// the next one, and moves unused input to the connection.
    fn prepare_handoff(&mut self, reply_to: ReplyTo) -> ControlFlow<Outcome, ReplyTo> {
        let connection = self.flush_and_unload(reply_to.connection)?;
        Continue(ReplyTo { connection, ..reply_to })
    }

    pub(super) fn flush_and_unload(&mut self, mut connection: Box<Connection>) -> Flow {
        if let Err(error) = self.flush_output(&mut connection) {
            return Break(self.give_up(connection, error));
        }
        self.unload(&mut connection);
        Continue(connection)
    }
}
