//! An event loop: a poller, listeners, the connections of its own, and their deadlines.
//!
//! The loop is a value. Whoever has it in hand leads: nobody else touches what is in it. The side
//! that all threads see is its [`LoopHandle`].

mod accept;
mod handle;
mod ready;
mod relieve;
mod shed;
mod traffic;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use mio::{Events, Poll, Token};

use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::connection::deadlines::Deadlines;
use crate::engine::connection::table::{Missed, Table};
use crate::engine::listener::Accepted;
use crate::engine::seat::hand_out;
use crate::engine::task::Call;
use crate::execution::doze::FOR_EVER;
use crate::execution::key::ExecutionKey;
use crate::execution::policy::{OnLoop, Others};
use accept::Accepting;
pub(crate) use handle::{LoopHandle, Message};
use ready::{Ready, ReadyQueue};
use shed::Candidates;
use traffic::Traffic;

/// Events taken from the poller at once. Few in tests, so that they are not enough.
const EVENTS_MAX: usize = if cfg!(test) { 16 } else { 1024 };

/// Full batches in a row before deadlines are looked at all the same: as many as the default bound
/// of connections fills.
const FULL_BATCHES_MAX: u32 = 64;

/// Connections in a row that could go on for ever, before the poller is asked for others. Each has
/// moved some hundred kilobytes in its turn, beside which asking costs nothing.
const YIELDED_MAX: usize = 4;

const WAKER: Token = Token(usize::MAX);

/// Tokens from here up are listeners; no table grows so large.
const FIRST_LISTENER: usize = usize::MAX - 1024;

/// The side of an event loop that its leader has for itself.
pub(crate) struct EventLoop {
    handle: Arc<LoopHandle>,
    poll: Poll,
    events: Events,
    /// What the poller said and nobody has looked at yet. It is part of the loop, not of the
    /// leader: a new leader goes on where the old one was held up.
    ready: ReadyQueue,
    /// Connections that have had their turn and could go on. Whoever becomes ready comes before
    /// them: some that always have something to do must not keep the loop from its poller.
    yielded: VecDeque<Yielded>,
    yielded_in_row: usize,
    inbox: Receiver<Message>,
    table: Table<Connection>,
    deadlines: Deadlines,
    listeners: Vec<Accepting>,
    accept_again_at: Option<Instant>,
    /// Accepted, and waiting for room.
    waiting: Option<Accepted>,
    /// Connections that may be closed to make room.
    candidates: Candidates,
    /// How many other loops had no room to make, one after the other.
    asked_in_vain: usize,
    accepts_in_row: usize,
    full_batches: u32,
    /// When to look again who has to go, while memory is short.
    relieve_again_at: Option<Instant>,
    is_draining: bool,
    /// What this loop has seen of each route.
    routes: Box<[OnLoop]>,
    traffic: Traffic,
    /// Requests since the shared counter was told.
    pub(crate) requests: u64,
}

/// A connection that could go on when it had had its turn.
#[derive(Clone, Copy, Debug)]
struct Yielded {
    token: usize,
    /// How often it had yielded then.
    number: u32,
}

/// Why to look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// There may be something to read or room to write.
    Io,
    /// As before, and the peer has ended its direction: there is an end to be read.
    IoAndEnd,
    /// Other threads have left something for it.
    Look,
    /// Its deadline has passed.
    Expired,
    /// The server is shutting down.
    Drain,
}

/// What the leader does next.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Work on this connection.
    Serve(Box<Connection>, Readiness),
    /// Refuse this request, which has waited for a thread for too long.
    Refuse(Box<Call>),
    /// Nothing was ready; look again.
    Again,
    /// All is done.
    Ended,
}

impl EventLoop {
    pub(crate) fn new(engine: &Arc<Engine>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let (outbox, inbox) = crossbeam_channel::unbounded();
        let handle = LoopHandle::new(engine, &poll, outbox)?;
        Ok(Self {
            handle: Arc::new(handle),
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            ready: ReadyQueue::with_capacity(EVENTS_MAX),
            yielded: VecDeque::new(),
            yielded_in_row: 0,
            inbox,
            table: Table::new(),
            deadlines: Deadlines::default(),
            listeners: Vec::new(),
            accept_again_at: None,
            waiting: None,
            candidates: Candidates::default(),
            asked_in_vain: 0,
            accepts_in_row: 0,
            full_batches: 0,
            relieve_again_at: None,
            is_draining: false,
            routes: vec![OnLoop::default(); ExecutionKey::COUNT].into_boxed_slice(),
            traffic: Traffic::default(),
            requests: 0,
        })
    }

    pub(crate) fn handle(&self) -> &Arc<LoopHandle> {
        &self.handle
    }

    /// Finds the next connection to work on; waits for events when there is none.
    #[inline(always)]
    pub(crate) fn next(&mut self, clock: &mut Clock) -> Turn {
        while let Some(Ready { token, readiness }) = self.ready.pop() {
            // One that is away learns of it when it comes home.
            let said = if readiness == Readiness::IoAndEnd { Missed::IoAndEnd } else { Missed::Io };
            if let Some(connection) = self.table.take(token, said) {
                return Turn::Serve(connection, readiness);
            }
        }
        self.next_arrival(clock)
    }

    #[inline(never)]
    fn next_arrival(&mut self, clock: &mut Clock) -> Turn {
        if let Some(connection) = self.accept(clock.now()) {
            return Turn::Serve(connection, Readiness::Io);
        }
        while let Ok(message) = self.inbox.try_recv() {
            if let Some(turn) = self.receive(message, clock.now()) {
                return turn;
            }
        }
        if self.is_draining && self.has_drained(clock.now()) {
            return Turn::Ended;
        }
        if let Some(connection) = self.next_yielded() {
            return Turn::Serve(connection, Readiness::Io);
        }
        self.wait(clock);
        Turn::Again
    }

    /// Parks a connection until its peer moves or its deadline passes.
    #[inline(always)]
    pub(crate) fn park(&mut self, mut connection: Box<Connection>, now: Instant) {
        let deadline = connection.deadline;
        // An entry that is due was looked at while the connection was away, or will be ignored.
        let is_listed =
            connection.listed_at.is_some_and(|listed_at| listed_at <= deadline && listed_at > now);
        if !is_listed {
            self.deadlines.add(deadline, connection.token());
            connection.listed_at = Some(deadline);
        }
        self.table.park(connection.token(), connection);
    }

    /// Lets a connection wait for its next turn, behind the others that are ready.
    pub(crate) fn requeue(&mut self, mut connection: Box<Connection>, now: Instant) {
        connection.yields = connection.yields.wrapping_add(1);
        self.yielded.push_back(Yielded { token: connection.token(), number: connection.yields });
        self.park(connection, now);
    }

    fn next_yielded(&mut self) -> Option<Box<Connection>> {
        if self.yielded_in_row >= YIELDED_MAX {
            return None;
        }
        while let Some(Yielded { token, number }) = self.yielded.pop_front() {
            // One that became ready in the meantime has had a turn for that, and has another entry
            // if it yielded again.
            let is_current =
                self.table.parked_mut(token).is_some_and(|connection| connection.yields == number);
            if is_current {
                self.yielded_in_row += 1;
                return self.table.take(token, Missed::Io);
            }
        }
        None
    }

    /// A call of this route begins. Returns whether it is to be measured.
    #[inline(always)]
    pub(crate) fn begin_call(&mut self, key: ExecutionKey) -> bool {
        self.handle.running.store(key.index(), Ordering::Relaxed);
        self.routes[key.index()].begin()
    }

    /// What this loop has seen of a route.
    pub(crate) fn route_mut(&mut self, key: ExecutionKey) -> &mut OnLoop {
        &mut self.routes[key.index()]
    }

    /// Who else wants the loop at this moment.
    pub(crate) fn others(&self) -> Others {
        Others { are_ready: !self.ready.is_empty(), per_second: self.traffic.per_second() }
    }

    /// Frees the place of a connection that is gone.
    pub(crate) fn release(&mut self, token: usize) {
        self.table.release(token);
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        self.handle.engine.counters.connections.decrement();
        if self.waiting.is_some() {
            self.accept_again_at = None;
        }
    }

    fn adopt(&mut self, accepted: Accepted, now: Instant) -> Box<Connection> {
        let engine = &self.handle.engine;
        engine.counters.connections.increment();
        let token = self.table.reserve();
        let deadline = now + engine.config.head_timeout;
        Box::new(Connection::new(accepted, Arc::clone(&self.handle), token, deadline))
    }

    /// Tells a connection that comes back what its peer did meanwhile: the poller told only the
    /// table. Returns whether it did anything.
    pub(crate) fn tell_missed(&mut self, connection: &mut Connection) -> bool {
        let missed = self.table.take_missed(connection.token());
        connection.can_read |= missed != Missed::Nothing;
        connection.has_end |= missed == Missed::IoAndEnd;
        missed != Missed::Nothing
    }

    /// Takes in what another thread sent. Returns what there is to do about it now.
    fn receive(&mut self, message: Message, now: Instant) -> Option<Turn> {
        match message {
            Message::Returned(mut connection) => {
                if self.tell_missed(&mut connection) || self.is_draining {
                    return Some(Turn::Serve(connection, Readiness::Io));
                }
                self.park(connection, now);
                None
            }
            Message::Closed(token) => {
                self.release(token);
                None
            }
            Message::Look(token) => {
                Some(Turn::Serve(self.table.take(token, Missed::Io)?, Readiness::Look))
            }
            Message::Adopt(accepted) => Some(Turn::Serve(self.adopt(accepted, now), Readiness::Io)),
            Message::Late(mut call) => {
                self.tell_missed(&mut call.reply_to.connection);
                Some(Turn::Refuse(call))
            }
            Message::MakeRoom(asker) => {
                if self.make_room(now) {
                    asker.send(Message::RoomMade);
                }
                None
            }
            Message::RoomMade => {
                self.accept_again_at = None;
                self.asked_in_vain = 0;
                None
            }
        }
    }

    fn wait(&mut self, clock: &mut Clock) {
        self.handle.parked.store(self.table.parked_len(), Ordering::Relaxed);
        if self.requests > 0 {
            let requests = std::mem::take(&mut self.requests);
            self.traffic.count(requests);
            self.handle.engine.counters.requests.add(requests);
        }
        let mut timeout = self.timeout(clock.now());
        // Tasks that wait for a thread are looked after by those who have made them.
        if let Some(late_in) = self.handle.engine.pool.nudge() {
            timeout = Some(timeout.map_or(late_in, |timeout| timeout.min(late_in)));
        }
        if let Some(late_in) = self.send_late_home() {
            timeout = Some(timeout.map_or(late_in, |timeout| timeout.min(late_in)));
        }
        if let Some(relief_in) = self.relieve(clock.now()) {
            timeout = Some(timeout.map_or(relief_in, |timeout| timeout.min(relief_in)));
        }
        // What has missed something is to be seen as soon as it is back.
        let until = match timeout {
            Some(timeout) if !self.table.has_missed() => self.handle.time(clock.now() + timeout),
            _ => FOR_EVER,
        };
        let (inbox, yielded, handle) = (&self.inbox, &self.yielded, &self.handle);
        let is_draining = self.is_draining;
        let has_ready = !self.ready.is_empty();
        let has_work = || {
            has_ready
                || !inbox.is_empty()
                || !yielded.is_empty()
                || (!is_draining && handle.engine.is_draining())
        };
        let (poll, events) = (&mut self.poll, &mut self.events);
        let result = handle.doze.sleep(
            until,
            has_work,
            |has_work| poll.poll(events, if has_work { Some(Duration::ZERO) } else { timeout }),
            || handle.engine.watchdog.wake(),
        );
        clock.refresh();
        self.traffic.look(clock.now());
        if let Err(error) = result {
            if error.kind() != io::ErrorKind::Interrupted {
                tracing::error!(%error, "the poller failed");
            }
            return;
        }
        self.accepts_in_row = 0;
        self.yielded_in_row = 0;
        // A full batch is not all: when the clock has jumped, every deadline has passed, also that
        // of a request at hand.
        let is_full = self.sort_events() == EVENTS_MAX && self.full_batches < FULL_BATCHES_MAX;
        self.full_batches = if is_full { self.full_batches + 1 } else { 0 };
        if !is_full {
            self.expire(clock.now());
        }
        if self.drain_is_due() {
            self.drain();
        }
    }

    /// Has the requests refused, each by its own loop, that have waited for a thread for too long.
    /// Returns when to look again.
    fn send_late_home(&self) -> Option<Duration> {
        let (late, next) = self.handle.engine.seats.expired();
        if !late.is_empty() {
            // Who is first now may have another need than who was.
            hand_out(&self.handle.engine, self.handle.engine.seats.next());
        }
        for call in late {
            let home = Arc::clone(call.reply_to.connection.home());
            home.send(Message::Late(call));
        }
        next
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        let can_accept =
            self.waiting.is_some() || self.listeners.iter().any(|accepting| accepting.is_ready);
        let accept_at = can_accept.then(|| self.accept_again_at.unwrap_or(now));
        let drain_at = if self.is_draining { self.handle.engine.drain_deadline() } else { None };
        let next = [self.deadlines.next(), accept_at, drain_at].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(now))
    }

    /// Returns how many there were.
    fn sort_events(&mut self) -> usize {
        let mut events = 0;
        for event in &self.events {
            events += 1;
            let token = event.token().0;
            if token >= FIRST_LISTENER {
                // None is found for the waker.
                if let Some(accepting) = self.listeners.get_mut(token - FIRST_LISTENER) {
                    accepting.is_ready = true;
                }
                continue;
            }
            self.traffic.meet(token);
            let ended = event.is_read_closed() || event.is_error();
            let readiness = if ended { Readiness::IoAndEnd } else { Readiness::Io };
            self.ready.push(token, readiness);
        }
        events
    }

    fn expire(&mut self, now: Instant) {
        while let Some((at, token)) = self.deadlines.pop_due(now) {
            let Some(connection) = self.table.parked_mut(token) else { continue };
            if connection.listed_at != Some(at) {
                continue;
            }
            connection.listed_at = None;
            if connection.deadline <= now {
                self.ready.push(token, Readiness::Expired);
                continue;
            }
            let deadline = connection.deadline;
            connection.listed_at = Some(deadline);
            self.deadlines.add(deadline, token);
        }
    }

    fn drain_is_due(&self) -> bool {
        !self.is_draining && self.handle.engine.is_draining()
    }

    /// Stops accepting, after what waits in the backlog, and looks at every connection once more.
    fn drain(&mut self) {
        self.is_draining = true;
        for accepting in &mut self.listeners {
            accepting.is_ready = true;
        }
        for (token, _) in self.table.parked() {
            self.ready.push(token, Readiness::Drain);
        }
    }

    fn has_drained(&self, now: Instant) -> bool {
        if self.listeners.is_empty() && self.waiting.is_none() && self.table.len() == 0 {
            return true;
        }
        let is_late = self.handle.engine.drain_deadline().is_some_and(|deadline| deadline <= now);
        if is_late {
            tracing::warn!(
                connections = self.table.len(),
                "the drain deadline has passed: closing what is left"
            );
        }
        is_late
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        let engine = Arc::clone(&self.handle.engine);
        engine.counters.requests.add(self.requests);
        engine.loop_ended();
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop").field("connections", &self.table.len()).finish_non_exhaustive()
    }
}
