//! A thread that serves connections: it reads, calls the service, writes, and puts the connection
//! where it waits.
//!
//! The same code runs for a leader, which owns an event loop, and for a follower, which does not. A
//! leader becomes a follower if its loop is taken while a handler runs. Only this module knows both
//! event loops and protocols.

mod ask;
mod call;
mod descriptors;
mod handoff;
#[cfg(feature = "tls")]
mod handshake;
mod lease;
#[cfg(any(feature = "tls", feature = "spool"))]
mod lined;
mod measure;
mod push;
mod raw;
mod read;
mod refuse;
mod run;
mod serve;
mod shed;
#[cfg(feature = "spool")]
mod spool;
mod stream;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::budget::account::Charge;
use crate::budget::permits::Permit;
use crate::budget::refusal::Refusal;
use crate::buffers::Buffers;
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::event_loop::{EventLoop, LoopHandle, Message, Readiness, Turn};
use crate::engine::exchange::{AnswerTo, Call, ReplyTo};
use crate::engine::seat::Seat;
use crate::execution::probe::Clocks;
use crate::execution::scheduling::Batch;
use crate::service::tcp::Closed;
use measure::MeasuredCall;
use run::count_noted;

#[cfg(any(feature = "tls", feature = "spool"))]
pub(crate) use lined::{Lined, do_in_line};
pub(crate) use run::run_counted;

/// The state of a working thread: its buffers, and its event loop if it leads one.
pub(crate) struct Worker<'a> {
    engine: Arc<Engine>,
    buffers: &'a mut Buffers,
    lead: Option<Box<EventLoop>>,
    /// This thread's seat. Leaders and the program's own threads need none.
    seat: Option<Seat>,
    /// The permit of the resource that the running handler uses.
    permit: Option<Permit>,
    clocks: Clocks,
    /// The call that may be measured.
    measured_call: MeasuredCall,
    /// Whether a response to be written now is measured.
    has_measured: bool,
    /// Why the last connection was given up, for a caller that waits until a response is sent.
    error: Option<io::Error>,
}

/// Where a connection goes when its thread is done with it.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// To its loop: it waits for its peer.
    Parked(Box<Connection>),
    /// To its loop: it could continue, but other connections come first.
    Yielded(Box<Connection>),
    /// As [`Yielded`](Self::Yielded), and this thread runs a call for its guest. If the call
    /// blocks, the connection is not held up. Boxed, so that an outcome fits into two registers.
    Asked(Box<(Box<Connection>, Call)>),
    /// It is closed.
    Closed(Box<Connection>),
    /// It has another owner already.
    Moved,
}

/// Whether a thread continues with its connection.
type Flow = ControlFlow<Outcome, Box<Connection>>;

/// Leads the loop until it is taken or has ended.
pub(crate) fn lead(event_loop: Box<EventLoop>) {
    let mut buffers = Buffers::take();
    let engine = Arc::clone(&event_loop.handle().engine);
    // Dropped when this thread stops leading.
    let _batch = engine.config.batch_scheduling.then(Batch::begin).flatten();
    #[cfg(all(test, target_os = "linux"))]
    buffers.clock.jump_with(engine.config.jumps.as_ref());
    let mut clocks = std::mem::take(&mut buffers.clocks).with_run_queue();
    event_loop.handle().led_by(clocks.thread());
    engine.calls.register(clocks.slot());
    let mut worker = Worker {
        engine,
        buffers: &mut buffers,
        lead: Some(event_loop),
        seat: None,
        permit: None,
        clocks,
        measured_call: MeasuredCall::default(),
        has_measured: false,
        error: None,
    };
    // Panics of handlers are caught where they are called. A panic that arrives here comes from
    // code of a handler that runs outside of its call, such as the drop of a reader. It costs the
    // connection, not the loop.
    while catch_unwind(AssertUnwindSafe(|| worker.lead())).is_err() {
        worker.engine.note_panic("a panic outside of a handler's call: its connection is lost");
        // The output belonged to that connection.
        worker.buffers.output.clear();
    }
    count_noted(&worker.engine);
    let clocks = std::mem::take(&mut worker.clocks);
    drop(worker);
    buffers.clocks = clocks.without_run_queue();
    buffers.give_back();
}

/// Serves one connection without leading a loop. Returns why the connection was given up, if it
/// was.
pub(crate) fn follow(
    connection: Box<Connection>,
    seat: Option<Seat>,
    work: impl FnOnce(&mut Worker<'_>, Box<Connection>) -> Outcome,
) -> Option<io::Error> {
    let engine = Arc::clone(&connection.loop_handle().engine);
    without_loop(engine, seat, |worker| {
        let connection = worker.load(connection);
        let (loop_handle, token) = (Arc::clone(connection.loop_handle()), connection.token());
        if let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| work(worker, connection))) {
            worker.put(outcome);
            worker.count_moved();
        } else {
            // As for a leader, the panic costs the connection. The connection's loop frees its
            // entry.
            worker.engine.note_panic("a panic outside of a handler's call: its connection is lost");
            loop_handle.send(Message::Closed(token));
        }
    })
}

/// Makes this thread a worker without a loop. Returns why its connection was given up, if it was.
fn without_loop(
    engine: Arc<Engine>,
    seat: Option<Seat>,
    work: impl FnOnce(&mut Worker<'_>),
) -> Option<io::Error> {
    let mut buffers = Buffers::take();
    #[cfg(all(test, target_os = "linux"))]
    buffers.clock.jump_with(engine.config.jumps.as_ref());
    let clocks = std::mem::take(&mut buffers.clocks);
    let mut worker = Worker {
        engine,
        buffers: &mut buffers,
        lead: None,
        seat,
        permit: None,
        clocks,
        measured_call: MeasuredCall::default(),
        has_measured: false,
        error: None,
    };
    work(&mut worker);
    count_noted(&worker.engine);
    let error = worker.error.take();
    let clocks = std::mem::take(&mut worker.clocks);
    drop(worker);
    buffers.clocks = clocks;
    buffers.give_back();
    error
}

/// Runs the handler of a request that has a seat.
pub(crate) fn answer(mut call: Call, seat: Seat) {
    let failure = call.end_wait();
    let (request, answer_to, permit) = call.into_parts();
    match answer_to {
        AnswerTo::Connection(reply_to) => {
            follow_reply(reply_to, Some(seat), |worker, reply_to| match failure {
                Some(failure) => {
                    drop(permit);
                    worker.abandon(request, reply_to, failure)
                }
                None => {
                    // Not counted before: a request that waits for a thread may be refused.
                    worker.engine.counters.dispatched.increment();
                    let outcome = worker.answer(request, reply_to, permit);
                    worker.engine.heads.fill();
                    outcome
                }
            });
        }
        AnswerTo::Guest(asker) => {
            let engine = Arc::clone(&asker.loop_handle.engine);
            without_loop(engine, Some(seat), |worker| worker.answer_asked(request, asker, permit));
        }
    }
}

/// As [`follow`], for a request.
pub(crate) fn follow_reply(
    reply_to: ReplyTo,
    seat: Option<Seat>,
    work: impl FnOnce(&mut Worker<'_>, ReplyTo) -> Outcome,
) -> Option<io::Error> {
    let ReplyTo { connection, route, stream } = reply_to;
    follow(connection, seat, |worker, connection| {
        work(worker, ReplyTo { connection, route, stream })
    })
}

impl Worker<'_> {
    /// Does the loop's turns until it is taken or has ended.
    fn lead(&mut self) {
        while let Some(event_loop) = &mut self.lead {
            match event_loop.next(&mut self.buffers.clock) {
                Turn::Serve(connection, readiness) => self.serve_ready(connection, readiness),
                Turn::Refuse(call) => self.refuse_late(*call),
                Turn::Shed(shed) => self.shed(*shed),
                Turn::WaitOn(connection, route) => {
                    let outcome = self.wait_on(connection, route);
                    self.put(outcome);
                    self.count_moved();
                }
                Turn::Again => {}
                Turn::Ended => return,
            }
        }
    }

    /// Serves a connection that its loop found ready.
    #[inline]
    fn serve_ready(&mut self, connection: Box<Connection>, readiness: Readiness) {
        let mut connection = self.load(connection);
        let outcome = match readiness {
            Readiness::Io | Readiness::Drain => {
                if readiness == Readiness::Drain {
                    connection.guest.tell_of_drain();
                }
                connection.can_read = true;
                self.serve(connection)
            }
            Readiness::IoAndEnd => {
                connection.can_read = true;
                connection.has_end = true;
                self.serve(connection)
            }
            Readiness::Notified => self.serve(connection),
            Readiness::Expired if connection.deadline > self.buffers.clock.now() => {
                let flow = self.wait_cold(connection);
                self.serve_on(flow)
            }
            Readiness::Expired
                if !connection.is_writing() && connection.guest.keep_alive(self.buffers) =>
            {
                self.serve(connection)
            }
            Readiness::Expired => {
                let awaited = connection.awaited(!self.buffers.input.is_empty());
                self.engine.counters.timeouts.count(awaited);
                self.expire(connection)
            }
        };
        self.put(outcome);
        self.count_moved();
    }

    /// Ends a connection whose peer has used up its time, with the response that the peer is owed.
    fn expire(&mut self, mut connection: Box<Connection>) -> Outcome {
        let is_stuck = connection.unsent.take().is_some() | connection.transport.abandon();
        if is_stuck {
            self.engine.refusals.note(Refusal::Stalled, connection.peer);
        }
        connection.guest.expire(is_stuck, self.buffers);
        self.serve(connection)
    }

    /// Counts the bytes that this thread has moved.
    #[inline]
    pub(super) fn count_moved(&mut self) {
        let moved = std::mem::take(&mut self.buffers.moved);
        match &self.lead {
            Some(event_loop) => event_loop.handle().moved.add(moved),
            None => self.engine.counters.count_moved(moved),
        }
    }

    /// Refuses a request that has waited too long for a thread.
    #[cold]
    fn refuse_late(&mut self, call: Call) {
        let outcome = self.refuse_waiting(call);
        self.put(outcome);
        self.count_moved();
    }

    fn give_up(&mut self, mut connection: Box<Connection>, error: io::Error) -> Outcome {
        tracing::debug!(%error, peer = %connection.peer, "a connection failed");
        if error.kind() == io::ErrorKind::OutOfMemory {
            let because = || self.engine.usage(Refusal::Memory, &connection);
            self.engine.refusals.note_closed(Refusal::Memory, connection.peer, because);
            self.engine.counters.ended_for_memory.increment();
        }
        self.end_lease(&mut connection);
        connection.guest.break_off(Closed::Broken);
        self.error = Some(error);
        Outcome::Closed(connection)
    }

    /// Loads the connection's leftover input into the buffers.
    #[inline(always)]
    fn load(&mut self, mut connection: Box<Connection>) -> Box<Connection> {
        if connection.leftover.is_empty() {
            self.buffers.input.clear();
        } else {
            self.buffers.input.load(std::mem::take(&mut connection.leftover));
            connection.leftover_charge = Charge::default();
        }
        connection
    }

    /// Moves unused input from the buffers to the connection.
    #[inline(always)]
    fn unload(&mut self, connection: &mut Connection) {
        if !self.buffers.input.is_empty() {
            self.unload_input(connection);
        }
    }

    #[inline(never)]
    fn unload_input(&mut self, connection: &mut Connection) {
        connection.leftover = self.buffers.input.take_leftover();
        connection.leftover_charge.set(&connection.account, connection.leftover.capacity());
    }

    /// Puts a connection where its outcome says.
    #[inline(always)]
    fn put(&mut self, outcome: Outcome) {
        self.buffers.output.clear();
        match outcome {
            Outcome::Parked(connection) => self.park(connection),
            outcome => self.put_cold(outcome),
        }
    }

    #[inline(always)]
    fn park(&mut self, connection: Box<Connection>) {
        match &mut self.lead {
            Some(event_loop) => event_loop.park(connection, self.buffers.clock.now()),
            None => return_parked(connection),
        }
    }

    #[inline(never)]
    pub(super) fn put_cold(&mut self, mut outcome: Outcome) {
        if let Outcome::Closed(connection) = &mut outcome {
            let _ = self.note_refusal(connection);
            self.end_broken(connection);
            self.end_raw(connection);
            self.end_lease(connection);
        }
        match (outcome, &mut self.lead) {
            (Outcome::Moved, _) => {}
            (Outcome::Parked(connection), _) => self.park(connection),
            (Outcome::Yielded(connection), Some(event_loop)) => {
                event_loop.requeue(connection, self.buffers.clock.now());
            }
            (Outcome::Yielded(connection), None) => return_now(connection),
            (Outcome::Asked(asked), lead) => {
                let (connection, call) = *asked;
                match lead {
                    Some(event_loop) => event_loop.requeue(connection, self.buffers.clock.now()),
                    None => return_now(connection),
                }
                self.call_asked(call);
            }
            (Outcome::Closed(connection), _) => {
                let loop_handle = Arc::clone(connection.loop_handle());
                let token = connection.token();
                // The program's code may be dropped with it, such as the reader of a body.
                let dropped = catch_unwind(AssertUnwindSafe(|| connection.close()));
                self.release(&loop_handle, token);
                if dropped.is_err() {
                    self.engine.note_panic("the drop of a connection panicked");
                }
            }
        }
    }

    /// Frees the entry of a connection that has ended.
    fn release(&mut self, loop_handle: &LoopHandle, token: usize) {
        match &mut self.lead {
            Some(event_loop) => event_loop.release(token),
            None => loop_handle.send(Message::Closed(token)),
        }
    }
}

/// Refuses a request that has a seat but that the pool has refused.
#[cold]
pub(crate) fn refuse(call: Call) {
    let (request, answer_to, permit) = call.into_parts();
    let refuse = |worker: &mut Worker<'_>, answer_to| {
        let mut call = Call::new(request, answer_to);
        call.permit = permit;
        worker.refuse_waiting(call)
    };
    match answer_to {
        AnswerTo::Connection(reply_to) => {
            follow_reply(reply_to, None, |worker, mut reply_to| {
                // Unused input belongs to the connection, as it did while the request waited.
                worker.unload(&mut reply_to.connection);
                refuse(worker, AnswerTo::Connection(reply_to))
            });
        }
        AnswerTo::Guest(asker) => {
            let engine = Arc::clone(&asker.loop_handle.engine);
            without_loop(engine, None, |worker| {
                refuse(worker, AnswerTo::Guest(asker));
            });
        }
    }
}

/// Ends a connection whose response has begun and has a seat, but that the pool has refused.
#[cold]
pub(crate) fn break_off(connection: Box<Connection>) {
    follow(connection, None, |worker, connection| worker.break_off(connection));
}

/// Returns a connection to its loop, which serves it at once.
fn return_now(connection: Box<Connection>) {
    let loop_handle = Arc::clone(connection.loop_handle());
    loop_handle.send(Message::Returned(connection));
}

/// Returns a connection to its loop, where it waits for its peer.
fn return_parked(connection: Box<Connection>) {
    let loop_handle = Arc::clone(connection.loop_handle());
    loop_handle.return_parked(connection);
}

impl fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("leads", &self.lead.is_some()).finish_non_exhaustive()
    }
}
