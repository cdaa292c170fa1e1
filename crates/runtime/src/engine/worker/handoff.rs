//! Giving a connection to another owner: the pool, the program, or another protocol.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Instant;

use super::push::refuse_body;
use super::refuse::CLIENT_THREADS;
use super::{Flow, Outcome, Worker};
use crate::budget::refusal::Refusal;
use crate::budget::seats::{Entered, Full, SeatRequest};
use crate::budget::streams::OpenStream;
use crate::engine::Backend;
use crate::engine::connection::Connection;
use crate::engine::exchange::{AnswerTo, Call, ReplyTo};
use crate::engine::incoming::IncomingRequest;
use crate::engine::pull_queue::NotSent;
use crate::engine::seat::Seat;
use crate::engine::task::Task;
use crate::engine::work::Work;
use crate::execution::key::{ExecutionKey, Route, RouteId};
use crate::protocol::{Guest, Successor};
use crate::service::blocking_stream::{Detached, OnThread, ReservedThread};
use crate::service::refused::{RETRY_AFTER, Refused};
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::tcp::Closed;

impl Worker<'_> {
    /// Gives a request to the pool. It waits in the queue of its route if the route may not have
    /// another thread.
    #[inline(never)]
    pub(super) fn dispatch(&mut self, request: Request, reply_to: ReplyTo) -> Flow {
        let mut reply_to = self.prepare_handoff(reply_to)?;
        if reply_to.connection.has_end {
            if let Some(failure) = reply_to.connection.transport.failure() {
                return Break(self.abandon(request, reply_to, failure));
            }
        }
        self.measure_queue(&mut reply_to.connection);
        match self.admit(Box::new(Call::new(request, AnswerTo::Connection(reply_to)))) {
            Ok(()) => Break(Outcome::Moved),
            Err((call, full)) => self.refuse_full(*call, &full),
        }
    }

    /// Gives a request to a pool thread, or lets it wait for one. Returns it if it would wait for
    /// too long.
    #[inline(always)]
    pub(super) fn admit(&mut self, call: Box<Call>) -> Result<(), (Box<Call>, Full)> {
        self.engine.heads.supply();
        let started = self.clocks.next_pool_sample().map(|_| Instant::now());
        let route = call.route();
        let work = Work::Call(call);
        let entered = if route.is_vital { self.enter_vital(work) } else { self.enter(work) };
        if let Some(started) = started {
            self.engine.routes.note_dispatch(started.elapsed());
            if let Some((in_line, elapsed)) = self.clocks.in_line(started) {
                self.engine.pool.note_in_line(in_line, elapsed);
            }
        }
        entered.map_err(|(work, full)| {
            let full = full.unwrap_or_else(|| self.engine.seats.why(route.key, &work));
            let Work::Call(call) = work else {
                unreachable!("the seats and the pool give back what they were given")
            };
            (call, full)
        })
    }

    /// Gives work to a pool thread as soon as a seat is free, and a permit if it needs one.
    #[inline]
    fn enter(&self, work: Work) -> Result<(), (Work, Option<Full>)> {
        match self.engine.seats.enter(work.key(), work) {
            Entered::Seated(work) => {
                Seat::taken(&self.engine, &work).run(work).map_err(|work| (work, None))
            }
            Entered::Waiting => Ok(()),
            Entered::Replaced(other) => {
                other.return_late();
                Ok(())
            }
            Entered::Refused(work, full) => Err((work, Some(full))),
        }
    }

    /// Gives a vital request to one of the threads that are reserved for these, unless it needs a
    /// permit.
    #[cold]
    fn enter_vital(&self, work: Work) -> Result<(), (Work, Option<Full>)> {
        if work.permits().is_some() {
            return self.enter(work);
        }
        match Seat::try_take_vital(&self.engine, work.client()) {
            Some(seat) => seat.run(work).or_else(|work| self.enter(work)),
            None => self.enter(work),
        }
    }

    /// Gives a request to the program.
    #[inline(never)]
    pub(super) fn enqueue(&mut self, mut request: Request, reply_to: ReplyTo) -> Flow {
        let mut reply_to = self.prepare_handoff(reply_to)?;
        let engine = Arc::clone(&self.engine);
        let Backend::Program(queue) = &engine.backend else {
            return Continue(reply_to.connection);
        };
        if reply_to.stream.is_some() {
            // The program may read the content as soon as it has the request.
            match self.open_stream(&mut request, &mut reply_to.connection) {
                Ok(true) => {}
                Ok(false) => {
                    let connection = self.load(reply_to.connection);
                    return self.refuse_open(request, ReplyTo { connection, ..reply_to });
                }
                Err(error) => return Break(self.give_up(reply_to.connection, error)),
            }
        }
        match queue.send(IncomingRequest::new(request, reply_to)) {
            Ok(()) => Break(Outcome::Moved),
            Err(NotSent { message, wait }) => {
                let (request, reply_to) = message.into_parts();
                drop(request);
                let peer = reply_to.connection.peer;
                let because = || {
                    let (waiting, max) = (queue.len(), queue.capacity());
                    format!(
                        "{waiting} requests wait for the program to pull them from `Incoming`: one \
                         more would wait for longer than `ServerConfig::queue_timeout`, or there \
                         would be more than {max}"
                    )
                };
                self.engine.refusals.note_because(Refusal::Overloaded, peer, because);
                let seconds = wait.map_or(RETRY_AFTER, |wait| wait.as_secs().saturating_add(1));
                let mut response = Refused::new(Refusal::Overloaded, seconds, &"").empty();
                self.answer_overloaded(reply_to, &mut response)
            }
        }
    }

    /// Lets a pool thread continue with a connection whose next step may block.
    pub(super) fn resume_on_pool(&mut self, connection: Box<Connection>, route: Route) -> Flow {
        let mut connection = self.flush_and_unload(connection)?;
        // The connection may wait for a thread for a long time, and its client may leave meanwhile.
        let watched = connection.watch_end();
        let connection = self.check(connection, watched)?;
        match self.enter(Work::Resume(connection, route)) {
            Ok(()) => Break(Outcome::Moved),
            Err((Work::Resume(connection, _), _)) => Break(self.break_off(connection)),
            Err((Work::Call(_), _)) => unreachable!("the seats give back what they were given"),
        }
    }

    /// Called when a connection whose response has begun has waited for a thread for a long time.
    /// It continues to wait, unless the client of an HTTP response has closed its direction: there
    /// may never be a thread, and a client that has left would otherwise be noticed only at the
    /// next write. A raw protocol still has to be told what its peer sent before it left.
    #[cold]
    pub(super) fn wait_on(&mut self, connection: Box<Connection>, route: Route) -> Outcome {
        let connection = self.load(connection);
        if connection.has_end && connection.guest.as_http().is_some() {
            return self.break_off(connection);
        }
        let flow = self.resume_on_pool(connection, route);
        self.serve_on(flow)
    }

    /// Ends a connection for which there is no thread. Its response has begun, so it cannot be
    /// refused with a status.
    #[cold]
    pub(super) fn break_off(&mut self, mut connection: Box<Connection>) -> Outcome {
        self.engine.refusals.note_closed(Refusal::Overloaded, connection.peer, String::new);
        connection.guest.break_off(Closed::Overloaded);
        Outcome::Closed(connection)
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
                let is_of_raw_service = matches!(self.engine.backend, Backend::Tcp(_));
                match self.reserve(&connection, handler, key, route, is_of_raw_service) {
                    Ok(thread) => Break(self.detach(connection, thread)),
                    Err(_) => Break(Outcome::Closed(connection)),
                }
            }
            Some(Successor::Reserved(thread)) => Break(self.detach(connection, thread)),
            None => Break(Outcome::Closed(connection)),
        }
    }

    /// Reserves a thread for the code that will own the connection after a `101`. If there is none,
    /// the response becomes a `503`, and the reason is returned: after the `101` the client could
    /// only be cut off.
    pub(super) fn reserve_thread(
        &mut self,
        connection: &Connection,
        route: Route,
        response: &mut Response,
    ) -> Option<Refusal> {
        if !response.needs_thread() {
            return None;
        }
        let mut refusal = None;
        response.reserve_thread(|handler| {
            let key = route.key.of_upgrade();
            let reserved = self.reserve(connection, handler, key, route.id(), false);
            reserved.map_err(|refused| refusal = Some(refused)).ok()
        });
        if refusal.is_some() {
            refuse_body(response);
        }
        refusal
    }

    /// Reserves a thread for code that will own a connection. Returns and notes why there is none.
    fn reserve(
        &self,
        connection: &Connection,
        handler: OnThread,
        key: ExecutionKey,
        route: RouteId,
        is_of_raw_service: bool,
    ) -> Result<ReservedThread, Refusal> {
        let (peer, client) = (connection.peer, connection.account.client());
        let open = self.open_lasting(connection, is_of_raw_service)?;
        let Some(seat) = Seat::try_take(&self.engine, key, client) else {
            self.engine.refusals.note(Refusal::Overloaded, peer);
            return Err(Refusal::Overloaded);
        };
        let engine = Arc::clone(&self.engine);
        Ok(Box::new(move |detached| {
            let timeout = engine.config.blocking_stream_timeout;
            let work = Box::new(move || handler(detached, open, timeout));
            engine.pool.submit(Task::Detached(work, route, seat)).is_ok()
        }))
    }

    /// Counts a thread that owns a connection or writes a body. Returns why there is none, and
    /// notes it.
    pub(super) fn open_lasting(
        &self,
        connection: &Connection,
        is_of_raw_service: bool,
    ) -> Result<OpenStream, Refusal> {
        let client = connection.account.client();
        let opened = self.engine.streams.open_lasting(client, is_of_raw_service);
        opened.inspect_err(|&refusal| {
            let because = || match refusal {
                Refusal::ClientThreads => CLIENT_THREADS.to_owned(),
                _ => "upgraded connections and written bodies hold half of the threads".to_owned(),
            };
            self.engine.refusals.note_because(refusal, connection.peer, because);
        })
    }

    /// Gives a connection to its pool thread, which becomes its only user.
    fn detach(&mut self, mut connection: Box<Connection>, thread: ReservedThread) -> Outcome {
        let timeout = self.engine.config.blocking_stream_timeout;
        if let Err(error) =
            connection.unwatch().and_then(|()| connection.transport.set_blocking(timeout))
        {
            return self.give_up(connection, error);
        }
        connection.transport.share();
        self.end_raw(&mut connection);
        self.end_lease(&mut connection);
        // The connection no longer counts as one, so its descriptor is counted instead.
        let held = self.engine.descriptors.force();
        let Connection { transport, peer, loop_handle, token, .. } = *connection;
        let unread = self.buffers.input.take_rest();
        if thread(Detached { transport, unread, held }) {
            self.engine.counters.upgraded.increment();
        } else {
            self.engine.refusals.note_closed(Refusal::Overloaded, peer, String::new);
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

    /// Sends an idle connection to the next process.
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
