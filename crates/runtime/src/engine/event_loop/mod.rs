//! An event loop: a poller, listeners, connections, and their deadlines.
//!
//! The loop is a value. The thread that owns it is its leader, and no other thread accesses its
//! fields. The part that all threads share is its [`LoopHandle`].

mod accept;
mod drain;
mod handle;
#[cfg(unix)]
mod handover;
mod memory_pressure;
mod messages;
mod ready;
mod shed;
mod traffic;
#[cfg(feature = "waits")]
mod waits;
mod watched_clients;

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
use crate::engine::connection::slab::{Missed, Slab};
use crate::engine::exchange::Call;
use crate::engine::listener::Accepted;
use crate::engine::seat::start_waiting;
use crate::engine::work::Work;
use crate::execution::key::{ExecutionKey, Route};
use crate::execution::policy::{OnLoop, Others};
use crate::execution::sleep::FOR_EVER;
use accept::Accepting;
pub(crate) use handle::{LoopHandle, Message};
use ready::{Ready, ReadyQueue, Yielded};
use shed::Candidates;
pub(crate) use shed::{Scarce, Shed};
use traffic::Traffic;
use watched_clients::WatchedClients;

/// Maximum number of events per poll. Low in tests, so that full batches occur.
const EVENTS_MAX: usize = if cfg!(test) { 16 } else { 1024 };

/// Maximum number of successive full batches before deadlines are checked anyway. The default
/// maximum of connections fills this many.
const FULL_BATCHES_MAX: u32 = 64;

/// Maximum number of yielded connections served in a row before the next poll. Each of them has
/// moved some hundred kilobytes in its turn, so the poll costs little in comparison.
const YIELDED_MAX: usize = 4;

const WAKER: Token = Token(usize::MAX);

/// Tokens from here on are listeners. No slab grows that large.
const FIRST_LISTENER: usize = usize::MAX - 1024;

/// The part of an event loop that only its leader accesses.
pub(crate) struct EventLoop {
    handle: Arc<LoopHandle>,
    poll: Poll,
    events: Events,
    /// Readiness that was reported and not yet handled. It belongs to the loop and not to the
    /// leader, so a new leader continues where the old one was blocked.
    ready: ReadyQueue,
    /// Connections that used up their turn and could continue. Connections that become ready are
    /// served first: a few that always have work must not keep the loop from polling.
    yielded: VecDeque<Yielded>,
    yielded_in_row: usize,
    messages_in_row: usize,
    /// When the first of these messages was handled that notified a connection.
    notified_since: Option<Instant>,
    inbox: Receiver<Message>,
    slab: Slab<Connection>,
    deadlines: Deadlines,
    /// The clients whose handlers are told when they have gone.
    watched: WatchedClients,
    listeners: Vec<Accepting>,
    accept_again_at: Option<Instant>,
    /// An accepted connection that waits because the maximum is reached.
    waiting: Option<Accepted>,
    /// Connections that may be closed to make room.
    candidates: Candidates,
    /// How many other loops were asked in a row to close a connection, without success.
    failed_room_requests: usize,
    accepts_in_row: usize,
    /// The listener behind the one that had the last connection, or their number.
    next_listener: usize,
    full_batches: u32,
    /// When to look again for connections to expire, while memory is short.
    pressure_check_at: Option<Instant>,
    is_draining: bool,
    /// What this loop has measured of each route.
    routes: Box<[OnLoop]>,
    traffic: Traffic,
    /// How long steps of handshakes were computed since the loop looked for events.
    #[cfg(feature = "tls")]
    computed_in_turn: Duration,
    /// Requests that are not yet added to the shared counter.
    pub(crate) requests: u64,
}

/// Why a connection is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// The socket may be readable or writable.
    Io,
    /// As `Io`, and the peer has closed its direction, so a read will report the end.
    IoAndEnd,
    /// Other threads have put bytes into its mailbox.
    Notified,
    /// Its deadline has passed.
    Expired,
    /// The server is shutting down.
    Drain,
}

/// What the leader does next.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Serve this connection.
    Serve(Box<Connection>, Readiness),
    /// Refuse this request, which has waited too long for a thread.
    Refuse(Box<Call>),
    /// Close this connection to make room for a new one.
    Shed(Box<Shed>),
    /// Check whether the client of this response, which waits for a thread, is still there.
    WaitOn(Box<Connection>, Route),
    /// Nothing was ready: ask again.
    Again,
    /// The loop has ended.
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
            messages_in_row: 0,
            notified_since: None,
            inbox,
            slab: Slab::new(),
            deadlines: Deadlines::default(),
            watched: WatchedClients::default(),
            listeners: Vec::new(),
            accept_again_at: None,
            waiting: None,
            candidates: Candidates::default(),
            failed_room_requests: 0,
            accepts_in_row: 0,
            next_listener: 0,
            full_batches: 0,
            pressure_check_at: None,
            is_draining: false,
            routes: vec![OnLoop::default(); ExecutionKey::COUNT].into_boxed_slice(),
            traffic: Traffic::default(),
            #[cfg(feature = "tls")]
            computed_in_turn: Duration::ZERO,
            requests: 0,
        })
    }

    pub(crate) fn handle(&self) -> &Arc<LoopHandle> {
        &self.handle
    }

    /// Returns the next connection to serve. Waits for events if there is none.
    #[inline(always)]
    pub(crate) fn next(&mut self, clock: &mut Clock) -> Turn {
        while let Some(Ready { token, readiness }) = self.ready.pop() {
            // If the connection is taken, the slab records the event as missed.
            let has_end = readiness == Readiness::IoAndEnd;
            let event = if has_end { Missed::IoAndEnd } else { Missed::Io };
            if let Some(connection) = self.slab.take(token, event) {
                return Turn::Serve(connection, readiness);
            }
            if has_end {
                self.client_has_gone(token);
            }
        }
        self.next_arrival(clock)
    }

    #[inline(never)]
    fn next_arrival(&mut self, clock: &mut Clock) -> Turn {
        if let Some(turn) = self.accept(clock.now()) {
            return turn;
        }
        if let Some(turn) = self.next_message(clock.now()) {
            return turn;
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

    /// Parks a connection until it is ready or its deadline passes.
    #[inline(always)]
    pub(crate) fn park(&mut self, mut connection: Box<Connection>, now: Instant) {
        let deadline = connection.deadline;
        // An entry that is due was popped while the connection was taken, or will be ignored.
        let is_listed =
            connection.listed_at.is_some_and(|listed_at| listed_at <= deadline && listed_at > now);
        if !is_listed {
            self.deadlines.add(deadline, connection.token());
            connection.listed_at = Some(deadline);
        }
        self.slab.park(connection.token(), connection);
    }

    /// Parks a connection until its next turn, after the others that are ready.
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
            // A connection that became ready in the meantime was served for that. If it yielded
            // again, it has a newer entry.
            let is_current =
                self.slab.parked_mut(token).is_some_and(|connection| connection.yields == number);
            if is_current {
                self.yielded_in_row += 1;
                return self.slab.take(token, Missed::Io);
            }
        }
        None
    }

    /// Records that a call of this route begins. Returns whether to measure it.
    #[inline(always)]
    pub(crate) fn begin_call(&mut self, route: Route) -> bool {
        self.handle.running.store(route.id().to_bits(), Ordering::Relaxed);
        self.routes[route.key.index()].begin()
    }

    /// Returns what this loop has measured of a route.
    pub(crate) fn route_mut(&mut self, key: ExecutionKey) -> &mut OnLoop {
        &mut self.routes[key.index()]
    }

    /// Returns how much other connections need the loop at this moment.
    pub(crate) fn others(&self) -> Others {
        let are_ready = !self.ready.is_empty() || self.is_crowd_arriving();
        Others { are_ready, per_second: self.traffic.per_second() }
    }

    /// Returns how long steps of handshakes were computed since the loop looked for events.
    #[cfg(feature = "tls")]
    pub(crate) fn computed_in_turn(&self) -> Duration {
        self.computed_in_turn
    }

    /// Records that a step of a handshake was computed on this loop.
    #[cfg(feature = "tls")]
    pub(crate) fn note_computed(&mut self, time: Duration) {
        self.computed_in_turn += time;
    }

    /// Frees the entry of a connection that has ended.
    pub(crate) fn release(&mut self, token: usize) {
        self.unwatch_client(token);
        self.slab.release(token);
        self.handle.connections.fetch_sub(1, Ordering::Relaxed);
        self.handle.engine.counters.connections.decrement();
        if self.waiting.is_some() {
            self.accept_again_at = None;
        }
    }

    pub(crate) fn adopt(&mut self, accepted: Accepted, now: Instant) -> Box<Connection> {
        let token = self.slab.reserve();
        let deadline = now + accepted.entry.timeout(&self.handle.engine.config);
        Box::new(Connection::new(accepted, Arc::clone(&self.handle), token, deadline))
    }

    /// Tells a connection which readiness it has missed: while it was taken, the poller's events
    /// reached only the slab. Returns whether there was any.
    pub(crate) fn apply_missed(&mut self, connection: &mut Connection) -> bool {
        let missed = self.slab.take_missed(connection.token());
        connection.can_read |= missed != Missed::Nothing;
        connection.has_end |= missed == Missed::IoAndEnd;
        missed != Missed::Nothing
    }

    fn wait(&mut self, clock: &mut Clock) {
        self.handle.parked.store(self.slab.parked_len(), Ordering::Relaxed);
        if self.requests > 0 {
            let requests = std::mem::take(&mut self.requests);
            self.traffic.count(requests);
            self.handle.engine.counters.requests.add(requests);
        }
        let mut timeout = self.timeout(clock.now());
        // The pool has no thread of its own that checks for late tasks, so the loops do.
        if let Some(late_in) = self.handle.engine.pool.run_overdue() {
            timeout = Some(timeout.map_or(late_in, |timeout| timeout.min(late_in)));
        }
        if let Some(late_in) = self.return_late_calls() {
            timeout = Some(timeout.map_or(late_in, |timeout| timeout.min(late_in)));
        }
        if let Some(check_in) = self.expire_under_pressure(clock.now()) {
            timeout = Some(timeout.map_or(check_in, |timeout| timeout.min(check_in)));
        }
        // A taken connection with missed readiness must be served as soon as it is returned.
        let until = match timeout {
            Some(timeout) if !self.slab.has_missed() => self.handle.time(clock.now() + timeout),
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
        let result = handle.sleep.sleep(
            until,
            has_work,
            |has_work| poll.poll(events, if has_work { Some(Duration::ZERO) } else { timeout }),
            || handle.engine.watchdog.wake(),
        );
        clock.refresh();
        self.traffic.update(clock.now());
        if let Err(error) = result {
            if error.kind() != io::ErrorKind::Interrupted {
                tracing::error!(%error, "the poller failed");
            }
            return;
        }
        self.accepts_in_row = 0;
        #[cfg(feature = "tls")]
        {
            self.computed_in_turn = Duration::ZERO;
        }
        (self.yielded_in_row, self.messages_in_row, self.notified_since) = (0, 0, None);
        // After a full batch more events may be pending. If the clock has jumped, every deadline
        // has passed, including those of connections whose events are still pending.
        let is_full = self.sort_events() == EVENTS_MAX && self.full_batches < FULL_BATCHES_MAX;
        self.full_batches = if is_full { self.full_batches + 1 } else { 0 };
        if !is_full {
            self.expire(clock.now());
        }
        if self.handle.engine.is_stopping() {
            self.continue_to_stop(clock.now());
        }
    }

    /// Sends work that has waited too long for a thread to its own loop, which decides what becomes
    /// of it. Returns how long until the next one expires.
    fn return_late_calls(&self) -> Option<Duration> {
        let expired = self.handle.engine.seats.expired();
        if expired.has_changed {
            start_waiting(&self.handle.engine, self.handle.engine.seats.next());
        }
        expired.late.into_iter().for_each(Work::return_late);
        expired.search_in
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        let can_accept =
            self.waiting.is_some() || self.listeners.iter().any(|accepting| accepting.is_ready);
        let accept_at = can_accept.then(|| self.accept_again_at.unwrap_or(now));
        let engine = &self.handle.engine;
        let stop_at = if engine.is_stopping() { engine.phase_ends_at() } else { None };
        let next = [self.deadlines.next(), accept_at, stop_at].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(now))
    }

    /// Sorts the events into ready connections and listeners. Returns the number of events.
    fn sort_events(&mut self) -> usize {
        let mut events = 0;
        for event in &self.events {
            events += 1;
            let token = event.token().0;
            if token >= FIRST_LISTENER {
                // The waker's token is beyond the listeners.
                if let Some(accepting) = self.listeners.get_mut(token - FIRST_LISTENER) {
                    accepting.is_ready = true;
                }
                continue;
            }
            self.traffic.record_event(token);
            let ended = event.is_read_closed() || event.is_error();
            let readiness = if ended { Readiness::IoAndEnd } else { Readiness::Io };
            self.ready.push(token, readiness);
        }
        events
    }

    fn expire(&mut self, now: Instant) {
        while let Some((at, token)) = self.deadlines.pop_due(now) {
            let Some(connection) = self.slab.parked_mut(token) else { continue };
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
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        let engine = Arc::clone(&self.handle.engine);
        self.forget_adopted();
        engine.counters.requests.add(self.requests);
        engine.counters.count_moved(self.handle.moved.take());
        engine.loop_ended();
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop").field("connections", &self.slab.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests;
