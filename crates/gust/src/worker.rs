//! One thread and its event loop. It opens connections, starts requests when they are due, and
//! reads the responses.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use mio::event::Event;
use mio::{Events, Poll, Token};

use crate::connection::{Connection, Link, Received, Scratch};
use crate::cpu::ThreadTime;
use crate::exchange::Exchange;
use crate::outbox::{Finished, Outbox, longest_wait};
use crate::plan::{Plan, Protocol};
use crate::request_source::RequestSource;
use crate::retry::Reachability;
use crate::schedule::{Pace, Schedule, Share};
use crate::shared::{Budget, Shared};
use crate::tally::{ErrorKind, Tally};
use crate::timer::Timer;
use crate::units::{Nanos, SECOND, nanos};

/// A read that does not fill this buffer has emptied the socket. It holds many responses of a
/// common size.
const INPUT_BYTES: usize = 128 * 1024;

/// Enough for the events of all connections of a usual run in one wait.
const EVENTS_MAX: usize = 1024;

/// Requests that are due within this time are sent together. One wake-up per request would be most
/// of the work.
const DUE_BATCH: Nanos = 50_000;

/// Most connects in a row before open connections are handled, as long as few connections are open.
/// A connect takes long, and each connection of a batch waits for the rest of it.
const CONNECT_BATCH_MIN: usize = 8;

/// Most connects in a row when many connections are open.
const CONNECT_BATCH_MAX: usize = 256;

/// Longest wait, so that a request to stop is noticed.
const WAIT_MAX: Nanos = SECOND / 20;

/// How often timeouts are checked.
const EXPIRY_INTERVAL: Nanos = SECOND / 10;

const TIMER: Token = Token(usize::MAX);

/// Runs the share of one thread in a plan until the end of the run.
pub(crate) fn run(
    plan: &Plan,
    shared: &Shared,
    index: usize,
    outbox: Outbox,
) -> io::Result<Finished> {
    let mut worker = Worker::new(plan, shared, index, outbox)?;
    worker.drive()?;
    Ok(worker.finish())
}

struct Worker<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    poll: Poll,
    timer: Timer,
    connections: Vec<Connection>,
    /// The connections that will be opened, ordered by time.
    to_open: BTreeSet<(Nanos, usize)>,
    pace: Pace,
    /// At a constant rate: connections with room for a request, the one that has waited longest
    /// first.
    available: VecDeque<usize>,
    /// Connections that may have more to read than [`Connection::receive`] has read.
    readable: Vec<usize>,
    source: RequestSource<'a>,
    /// The time at which due requests were last started.
    last_begun: Nanos,
    scratch: Scratch,
    tally: Tally,
    outbox: Outbox,
    cpu: ThreadTime,
    end: Nanos,
    /// When timeouts are checked next. It does not depend on the tick, which is longer with many
    /// threads.
    next_expiry: Nanos,
    server: Reachability,
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, shared: &'a Shared, index: usize, outbox: Outbox) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(&poll, TIMER, plan.rate.is_some())?;
        let share =
            plan.rate.map(|rate| Share::new(Schedule::new(rate, plan.ramp), index, plan.threads));
        let counts_from = nanos(plan.warmup);
        let opens_at = opening_times(plan, index);
        let mut worker = Self {
            plan,
            shared,
            poll,
            timer,
            connections: opens_at.iter().map(|&at| Connection::new(plan, at)).collect(),
            to_open: BTreeSet::new(),
            pace: Pace::new(plan.connect_rate, index, plan.threads),
            available: VecDeque::new(),
            readable: Vec::new(),
            source: RequestSource {
                plan,
                shared,
                budget: Budget::new(plan),
                share,
                // Threads start at different positions: otherwise all would send the same request
                // at the same time.
                position: index * 7919,
            },
            last_begun: 0,
            scratch: Scratch::new(INPUT_BYTES),
            tally: tally(plan, shared),
            outbox,
            cpu: ThreadTime::start(),
            end: plan
                .end
                .after
                .map_or(Nanos::MAX, |after| counts_from.saturating_add(nanos(after))),
            next_expiry: EXPIRY_INTERVAL,
            server: Reachability::default(),
        };
        if !plan.keep_alive && plan.rate.is_some() {
            // Connections are opened when a request is due.
            (0..opens_at.len()).for_each(|slot| worker.make_available(slot));
        } else {
            // The first connects have their own times. A ramp is no limit for later ones.
            if let (Some(limit), Some(&last)) = (plan.connect_rate, opens_at.last()) {
                let first = plan.opening_rate().unwrap_or(limit);
                worker.pace.share_with(limit, first, plan.threads, last);
            }
            worker.to_open.extend(opens_at.into_iter().enumerate().map(|(slot, at)| (at, slot)));
        }
        Ok(worker)
    }

    fn drive(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            let now = self.shared.clock.now();
            if now >= self.next_expiry {
                self.expire(now);
                self.next_expiry = (now / EXPIRY_INTERVAL + 1) * EXPIRY_INTERVAL;
            }
            if now >= self.outbox.next_tick() {
                self.tick(now);
            }
            if now >= self.end || self.shared.is_stopped() || self.is_done() {
                return Ok(());
            }
            self.open_due(now);
            self.begin_due(now);
            let wait = if self.readable.is_empty() { self.poll_timeout(now) } else { 0 };
            self.timer.wait(&mut self.poll, &mut events, wait)?;
            for event in events.iter().filter(|event| event.token() != TIMER) {
                self.on_event(event);
            }
            for slot in std::mem::take(&mut self.readable) {
                if self.connections[slot].is_open() {
                    self.receive(slot, true);
                }
            }
        }
    }

    fn on_event(&mut self, event: &Event) {
        let slot = event.token().0;
        let ends = event.is_read_closed() || event.is_error();
        if let Link::Connecting { .. } = self.connections[slot].link {
            let clock = || self.shared.clock.now();
            match self.connections[slot].finish_connect(self.plan, clock, &mut self.tally) {
                Ok(Some(since)) => self.on_open(slot, since),
                Ok(None) => return,
                Err(error) => return self.on_connect_error(slot, &error),
            }
            // The event that ended a handshake may not report that the socket is writable.
            if !self.flush(slot) {
                return;
            }
        }
        if !self.connections[slot].is_open() {
            return;
        }
        if event.is_writable() && self.connections[slot].has_unsent() && !self.flush(slot) {
            return;
        }
        if event.is_readable() || ends {
            self.receive(slot, ends);
        }
    }

    fn on_open(&mut self, slot: usize, since: Nanos) {
        let now = self.shared.clock.now();
        self.server.reached();
        self.shared.note_opened();
        if since >= self.tally.counts_from {
            self.tally.slice.connect.record(now - since);
        }
        if self.plan.holds {
            // A WebSocket has sent its request in the handshake.
            if self.plan.protocol != Protocol::WebSocket {
                self.connections[slot].exchange.begin(0, now, now, &mut self.tally);
            }
        } else if self.plan.keep_alive {
            if self.plan.rate.is_some() {
                self.make_available(slot);
            } else {
                self.source.fill_pipeline(
                    &mut self.connections[slot].exchange,
                    &mut self.tally,
                    now,
                );
            }
        }
    }

    /// Returns whether the connection is still open.
    fn flush(&mut self, slot: usize) -> bool {
        match self.connections[slot].flush(self.plan, &mut self.scratch, &mut self.tally) {
            Ok(()) => true,
            Err(kind) => {
                self.close(slot, Some(kind));
                false
            }
        }
    }

    fn receive(&mut self, slot: usize, ends: bool) {
        let Self { plan, shared, connections, scratch, tally, source, .. } = self;
        let is_closed_loop = plan.rate.is_none() && plan.keep_alive && !plan.holds;
        let connection = &mut connections[slot];
        let on_read = |exchange: &mut Exchange, tally: &mut Tally, now| {
            if is_closed_loop {
                source.fill_pipeline(exchange, tally, now);
            }
        };
        let received =
            connection.receive(plan, scratch, tally, ends, || shared.clock.now(), on_read);
        match received {
            Err(kind) => self.close(slot, Some(kind)),
            Ok(Received::Closed) => self.close(slot, None),
            Ok(_) if !plan.keep_alive && connection.exchange.in_flight() == 0 => {
                self.close(slot, None);
            }
            Ok(more) => {
                if plan.rate.is_some() && plan.keep_alive {
                    self.make_available(slot);
                }
                if more == Received::MayHaveMore {
                    self.readable.push(slot);
                }
            }
        }
    }

    /// Closes a connection, and counts the error that was the reason if there was one.
    fn close(&mut self, slot: usize, error: Option<ErrorKind>) {
        let now = self.shared.clock.now();
        self.server.reached();
        let connection = &mut self.connections[slot];
        let wait = connection.pause_after_close();
        let lost = connection.close(&self.tally, now + wait);
        self.tally.connection_ended(error, lost);
        self.reopen(slot, now + wait);
    }

    fn on_connect_error(&mut self, slot: usize, error: &io::Error) {
        self.tally.error(ErrorKind::Connect, 1);
        self.shared.note_refused(self.plan, error.to_string());
        let now = self.shared.clock.now();
        let connection = &mut self.connections[slot];
        let begun = match &connection.link {
            Link::Connecting { since, .. } => *since,
            _ => now,
        };
        self.server.failed(begun, now, nanos(self.plan.timeout));
        let until = now + connection.pause_after_failure();
        connection.close(&self.tally, until);
        self.reopen(slot, until);
    }

    /// Schedules a closed connection to be opened again, at a time or when a request is due.
    fn reopen(&mut self, slot: usize, at: Nanos) {
        if !self.plan.keep_alive && self.plan.rate.is_some() {
            self.make_available(slot);
        } else if !self.source.is_used_up() {
            self.open_at(slot, at);
        }
    }

    fn open_at(&mut self, slot: usize, at: Nanos) {
        let at = self.pace.take(at);
        self.to_open.insert((at, slot));
    }

    fn open_due(&mut self, now: Nanos) {
        // The more connections are open, the longer one round of events takes, so the batch grows
        // with them. Otherwise the remaining connections would wait too long.
        let begun = self.connections.len() - self.to_open.len();
        for _ in 0..(begun / 4).clamp(CONNECT_BATCH_MIN, CONNECT_BATCH_MAX) {
            if self.to_open.first().is_none_or(|&(at, _)| at > now) {
                return;
            }
            let Some((_, slot)) = self.to_open.pop_first() else { return };
            let now = self.shared.clock.now();
            // With a new connection per request, the latency counts from here.
            if !self.plan.keep_alive && self.plan.rate.is_none() {
                let exchange = &mut self.connections[slot].exchange;
                self.source.fill_pipeline(exchange, &mut self.tally, now);
                if exchange.in_flight() == 0 {
                    continue;
                }
            }
            let registry = self.poll.registry();
            if let Err(error) =
                self.connections[slot].connect(self.plan, registry, Token(slot), now)
            {
                self.on_connect_error(slot, &error);
            }
        }
    }

    /// Starts the requests that are due, as long as there is a connection for them. The others are
    /// started later and keep the time at which they were due.
    fn begin_due(&mut self, now: Nanos) {
        while self.source.next_due().is_some_and(|due| due <= now) {
            self.last_begun = now;
            let Some(slot) = self.next_available(now) else { return };
            let exchange = &mut self.connections[slot].exchange;
            if !self.source.begin_due(exchange, &mut self.tally, now) {
                return;
            }
            if !self.plan.keep_alive {
                self.open_at(slot, now);
                self.open_due(now);
            } else if self.flush(slot) {
                self.make_available(slot);
            }
        }
    }

    fn next_available(&mut self, now: Nanos) -> Option<usize> {
        let keep_alive = self.plan.keep_alive;
        for _ in 0..self.available.len() {
            let slot = self.available.pop_front()?;
            let connection = &mut self.connections[slot];
            connection.is_available = false;
            match &connection.link {
                Link::Open(_) if keep_alive => return Some(slot),
                Link::Closed { until } if !keep_alive && *until <= now => return Some(slot),
                // This connection may not be opened yet.
                Link::Closed { .. } if !keep_alive => self.make_available(slot),
                _ => {}
            }
        }
        None
    }

    fn make_available(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let has_room = connection.exchange.in_flight() < self.plan.depth;
        if has_room && !connection.is_available {
            connection.is_available = true;
            self.available.push_back(slot);
        }
    }

    fn poll_timeout(&self, now: Nanos) -> Nanos {
        let mut until =
            self.outbox.next_tick().min(self.end).min(now + WAIT_MAX).min(self.next_expiry);
        if let Some(&(at, _)) = self.to_open.first() {
            until = until.min(at);
        }
        // Without an available connection, an event has to come first.
        if let Some(due) = self.source.next_due().filter(|_| !self.available.is_empty()) {
            until = until.min(due.max(self.last_begun + DUE_BATCH));
        }
        until.saturating_sub(now)
    }

    fn tick(&mut self, now: Nanos) {
        if self.outbox.is_counted(now) {
            self.shared.note_errors(self.plan, self.tally.slice.errors.total());
        }
        if self.outbox.begins_to_count(now, self.tally.counts_from) {
            self.cpu = ThreadTime::start();
        }
        self.outbox.deliver(&mut self.tally, now);
    }

    /// Closes connections whose connect or oldest request has timed out.
    fn expire(&mut self, now: Nanos) {
        let timeout = nanos(self.plan.timeout);
        for slot in 0..self.connections.len() {
            let connection = &self.connections[slot];
            match &connection.link {
                Link::Connecting { since, .. } if now.saturating_sub(*since) > timeout => {
                    self.on_connect_error(slot, &io::Error::from(io::ErrorKind::TimedOut));
                }
                Link::Open(_) => {
                    let sent = connection.exchange.oldest_sent();
                    if sent.is_some_and(|sent| now.saturating_sub(sent) > timeout) {
                        self.close(slot, Some(ErrorKind::Timeout));
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns whether all requests are answered or lost. Also ends a run without a duration when
    /// the server can no longer be reached, because the number of requests would never be reached.
    fn is_done(&self) -> bool {
        let is_idle =
            || self.connections.iter().all(|connection| connection.exchange.in_flight() == 0);
        let server_is_gone = self.plan.end.after.is_none()
            && self.server.is_lost()
            && !self.connections.iter().any(Connection::is_open);
        (self.source.is_used_up() && is_idle()) || server_is_gone
    }

    fn finish(mut self) -> Finished {
        let stopped = self.shared.clock.now();
        let now = stopped.min(self.end);
        self.outbox.deliver(&mut self.tally, now);
        let counts_from = self.tally.counts_from;
        let oldest =
            self.connections.iter().filter_map(|connection| connection.exchange.oldest_intended());
        let overdue = self
            .source
            .share
            .filter(|_| !self.source.is_used_up())
            .map(|share| (share.overdue(now), share.next_due()));
        self.source.budget.give_back(self.shared);
        let oldest_due = overdue.filter(|&(count, _)| count > 0).map(|(_, due)| due);
        let since = oldest.chain(oldest_due);
        Finished {
            served: self.connections.iter().map(|connection| connection.exchange.served).collect(),
            opened: self.connections.iter().map(|connection| connection.opened).collect(),
            held: self.connections.iter().filter(|connection| connection.is_held()).count(),
            unanswered: self
                .connections
                .iter()
                .map(|each| each.exchange.unanswered(counts_from))
                .sum(),
            never_sent: overdue.map_or(0, |(count, _)| count),
            longest_wait: longest_wait(since, counts_from, stopped),
            thread: self.cpu.stop(),
            ended: now,
        }
    }
}

fn tally(plan: &Plan, shared: &Shared) -> Tally {
    let mut tally = Tally::new(nanos(plan.warmup), plan.rate.is_some());
    tally.wall_start = shared.wall_start;
    tally
}

/// Returns when the connections of this thread are opened.
fn opening_times(plan: &Plan, index: usize) -> Vec<Nanos> {
    let mut pace = Pace::new(plan.opening_rate(), index, plan.threads);
    (index..plan.connections).step_by(plan.threads).map(|_| pace.take(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    #[test]
    fn connections_are_opened_evenly_over_the_ramp() {
        let plan = args::plan(":1 -c 5 -t 2 --ramp 5s").unwrap();
        let opens_at = |index| opening_times(&plan, index);
        let second = 1_000_000_000;
        assert_eq!(opens_at(0), [0, 2 * second, 4 * second]);
        assert_eq!(opens_at(1), [second, 3 * second]);
    }
}
