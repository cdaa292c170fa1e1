//! One thread and its event loop: it opens connections, begins requests when they are due, and
//! takes the answers.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use mio::event::Event;
use mio::{Events, Poll, Token};

use crate::connection::{Connection, Link, Received, Scratch};
use crate::cpu::ThreadTime;
use crate::exchange::Exchange;
use crate::outbox::{Finished, Outbox, longest_wait};
use crate::plan::Plan;
use crate::schedule::{Pace, Schedule, Share};
use crate::shared::{Budget, Shared};
use crate::tally::{ErrorKind, Tally};
use crate::timer::Timer;
use crate::units::{Nanos, SECOND, nanos};

/// A read that does not fill this has emptied the socket; most answers fit many times.
const INPUT_BYTES: usize = 128 * 1024;

/// Enough for every connection of a usual run to be named by one wait.
const EVENTS_MAX: usize = 1024;

/// Requests that are due closer together are sent together: a wake-up each would be most of the
/// work.
const DUE_TOGETHER: Nanos = 50_000;

/// Connections that are begun before those that are open have their turn, while there are few: a
/// connect is long, and each one waits for the rest of its row.
const CONNECTS_IN_A_ROW: usize = 8;

/// And when there are many.
const CONNECTS_IN_A_ROW_MAX: usize = 256;

/// Longest wait, so that a stop is noticed.
const WAIT_MAX: Nanos = SECOND / 20;

const TIMER: Token = Token(usize::MAX);

/// Runs one thread's share of a plan to its end.
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
    /// Connections that are to be opened, and when.
    to_open: BTreeSet<(Nanos, usize)>,
    pace: Pace,
    /// At a constant rate: who may be given the next request, the one who has waited longest first.
    line: VecDeque<usize>,
    /// Connections that may have more to read than was read in their turn.
    again: Vec<usize>,
    supply: Supply<'a>,
    /// When requests that were due were last begun.
    last_begun: Nanos,
    scratch: Scratch,
    tally: Tally,
    outbox: Outbox,
    cpu: ThreadTime,
    end: Nanos,
    /// When something last went well, or at least forward.
    progress: Nanos,
}

/// Where requests come from.
struct Supply<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    budget: Budget,
    /// `None` in a closed loop.
    share: Option<Share>,
    /// How many requests were begun, which says which one is next.
    position: usize,
}

impl<'a> Worker<'a> {
    fn new(plan: &'a Plan, shared: &'a Shared, index: usize, outbox: Outbox) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(&poll, TIMER, plan.rate.is_some())?;
        let share =
            plan.rate.map(|rate| Share::new(Schedule::new(rate, plan.ramp), index, plan.threads));
        let counts_from = nanos(plan.warmup);
        let mut pace = Pace::new(opening_rate(plan), index, plan.threads);
        let count = (index..plan.connections).step_by(plan.threads).count();
        let opens_at: Vec<_> = (0..count).map(|_| pace.take(0)).collect();
        let mut worker = Self {
            plan,
            shared,
            poll,
            timer,
            connections: opens_at.iter().map(|&at| Connection::new(plan, at)).collect(),
            to_open: BTreeSet::new(),
            pace: Pace::new(plan.connect_rate, index, plan.threads),
            line: VecDeque::new(),
            again: Vec::new(),
            supply: Supply {
                plan,
                shared,
                budget: Budget::new(plan),
                share,
                // Threads begin at different places, or all would ask for the same thing at the
                // same time.
                position: index * 7919,
            },
            last_begun: 0,
            scratch: Scratch::new(INPUT_BYTES),
            tally: Tally::new(counts_from, plan.rate.is_some()),
            outbox,
            cpu: ThreadTime::start(),
            end: plan
                .end
                .after
                .map_or(Nanos::MAX, |after| counts_from.saturating_add(nanos(after))),
            progress: 0,
        };
        if let Some(&last) = opens_at.last() {
            worker.pace.skip_to(last);
        }
        if !plan.keep_alive && plan.rate.is_some() {
            // They are opened when a request is due.
            (0..count).for_each(|slot| worker.stand_in_line(slot));
        } else {
            worker.to_open.extend(opens_at.into_iter().enumerate().map(|(slot, at)| (at, slot)));
        }
        Ok(worker)
    }

    fn drive(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            let now = self.shared.clock.now();
            if now >= self.outbox.next_tick() {
                self.tick(now);
            }
            if now >= self.end || self.shared.is_stopped() || self.is_done(now) {
                return Ok(());
            }
            self.open_due(now);
            self.begin_due(now);
            let wait = if self.again.is_empty() { self.wait_at_most(now) } else { 0 };
            self.timer.wait(&mut self.poll, &mut events, wait)?;
            for event in events.iter().filter(|event| event.token() != TIMER) {
                self.on_event(event);
            }
            for slot in std::mem::take(&mut self.again) {
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
            if !(event.is_writable() || ends) {
                return;
            }
            match self.connections[slot].finish_connect() {
                Ok(since) => self.on_open(slot, since),
                Err(error) => return self.refused(slot, &error),
            }
        }
        if !self.connections[slot].is_open() {
            return;
        }
        if event.is_writable() && self.connections[slot].exchange.has_unsent() && !self.flush(slot)
        {
            return;
        }
        if event.is_readable() || ends {
            self.receive(slot, ends);
        }
    }

    fn on_open(&mut self, slot: usize, since: Option<Nanos>) {
        let now = self.shared.clock.now();
        self.progress = now;
        self.shared.note_opened();
        if let Some(since) = since.filter(|&since| since >= self.tally.counts_from) {
            self.tally.slice.connect.record(now - since);
        }
        if self.plan.keep_alive {
            if self.plan.rate.is_some() {
                self.stand_in_line(slot);
            } else {
                self.supply.top_up(&mut self.connections[slot].exchange, &mut self.tally, now);
            }
        }
    }

    /// Returns whether the connection is still open.
    fn flush(&mut self, slot: usize) -> bool {
        match self.connections[slot].flush(self.plan, &mut self.scratch, &mut self.tally) {
            Ok(()) => true,
            Err(kind) => {
                self.failed(slot, kind);
                false
            }
        }
    }

    fn receive(&mut self, slot: usize, ends: bool) {
        let Self { plan, shared, connections, scratch, tally, supply, .. } = self;
        let is_closed_loop = plan.rate.is_none() && plan.keep_alive;
        let connection = &mut connections[slot];
        let go_on = |exchange: &mut Exchange, tally: &mut Tally, now| {
            if is_closed_loop {
                supply.top_up(exchange, tally, now);
            }
        };
        let received = connection.receive(plan, scratch, tally, ends, || shared.clock.now(), go_on);
        match received {
            Err(kind) => self.failed(slot, kind),
            Ok(Received::Closed) => self.ended(slot),
            Ok(_) if !plan.keep_alive && connection.exchange.on_their_way() == 0 => {
                self.ended(slot)
            }
            Ok(more) => {
                if plan.rate.is_some() && plan.keep_alive {
                    self.stand_in_line(slot);
                }
                if more == Received::Some {
                    self.again.push(slot);
                }
            }
        }
    }

    /// The server closed in order, or said that it will.
    fn ended(&mut self, slot: usize) {
        let lost = self.close(slot);
        self.tally.error(ErrorKind::ClosedEarly, lost);
    }

    fn failed(&mut self, slot: usize, kind: ErrorKind) {
        let lost = self.close(slot);
        self.tally.error(kind, lost.max(1));
    }

    fn close(&mut self, slot: usize) -> u64 {
        let now = self.shared.clock.now();
        self.progress = now;
        let connection = &mut self.connections[slot];
        let wait = connection.pause_after_close();
        let lost = connection.close(&self.tally, now + wait);
        self.reopen(slot, now + wait);
        lost
    }

    fn refused(&mut self, slot: usize, error: &io::Error) {
        self.tally.error(ErrorKind::Connect, 1);
        self.shared.note_refused(self.plan, error.to_string());
        let now = self.shared.clock.now();
        let connection = &mut self.connections[slot];
        let until = now + connection.pause_after_failure();
        connection.close(&self.tally, until);
        self.reopen(slot, until);
    }

    /// Sees to it that a closed connection is opened again, in time or when it is needed.
    fn reopen(&mut self, slot: usize, at: Nanos) {
        if !self.plan.keep_alive && self.plan.rate.is_some() {
            self.stand_in_line(slot);
        } else if !self.supply.is_used_up() {
            self.open_at(slot, at);
        }
    }

    fn open_at(&mut self, slot: usize, at: Nanos) {
        let at = self.pace.take(at);
        self.to_open.insert((at, slot));
    }

    fn open_due(&mut self, now: Nanos) {
        // The more there are, the longer is a turn of those that are open: the rest must not wait
        // for ever.
        let begun = self.connections.len() - self.to_open.len();
        for _ in 0..(begun / 4).clamp(CONNECTS_IN_A_ROW, CONNECTS_IN_A_ROW_MAX) {
            if self.to_open.first().is_none_or(|&(at, _)| at > now) {
                return;
            }
            let Some((_, slot)) = self.to_open.pop_first() else { return };
            let now = self.shared.clock.now();
            // With a connection for each request, its time begins here.
            if !self.plan.keep_alive && self.plan.rate.is_none() {
                let exchange = &mut self.connections[slot].exchange;
                self.supply.top_up(exchange, &mut self.tally, now);
                if exchange.on_their_way() == 0 {
                    continue;
                }
            }
            let registry = self.poll.registry();
            if let Err(error) =
                self.connections[slot].connect(self.plan, registry, Token(slot), now)
            {
                self.refused(slot, &error);
            }
        }
    }

    /// Begins the requests whose time has come, as far as there is a connection for them. Those for
    /// which there is none are begun later, and keep their time.
    fn begin_due(&mut self, now: Nanos) {
        while self.supply.next_due().is_some_and(|due| due <= now) {
            self.last_begun = now;
            let Some(slot) = self.first_in_line(now) else { return };
            let exchange = &mut self.connections[slot].exchange;
            if !self.supply.begin_due(exchange, &mut self.tally, now) {
                return;
            }
            if !self.plan.keep_alive {
                self.open_at(slot, now);
                self.open_due(now);
            } else if self.flush(slot) {
                self.stand_in_line(slot);
            }
        }
    }

    fn first_in_line(&mut self, now: Nanos) -> Option<usize> {
        let keep_alive = self.plan.keep_alive;
        for _ in 0..self.line.len() {
            let slot = self.line.pop_front()?;
            let connection = &mut self.connections[slot];
            connection.is_in_line = false;
            match &connection.link {
                Link::Open(_) if keep_alive => return Some(slot),
                Link::Closed { until } if !keep_alive && *until <= now => return Some(slot),
                // Its time will come.
                Link::Closed { .. } if !keep_alive => self.stand_in_line(slot),
                _ => {}
            }
        }
        None
    }

    fn stand_in_line(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let has_room = connection.exchange.on_their_way() < self.plan.depth;
        if has_room && !connection.is_in_line {
            connection.is_in_line = true;
            self.line.push_back(slot);
        }
    }

    fn wait_at_most(&self, now: Nanos) -> Nanos {
        let mut until = self.outbox.next_tick().min(self.end).min(now + WAIT_MAX);
        if let Some(&(at, _)) = self.to_open.first() {
            until = until.min(at);
        }
        // Without a connection in line an event has to come first.
        if let Some(due) = self.supply.next_due().filter(|_| !self.line.is_empty()) {
            until = until.min(due.max(self.last_begun + DUE_TOGETHER));
        }
        until.saturating_sub(now)
    }

    fn tick(&mut self, now: Nanos) {
        self.expire(now);
        if self.outbox.is_counted(now) {
            self.shared.note_errors(self.plan, self.tally.slice.errors.total());
        }
        if self.outbox.begins_to_count(now, self.tally.counts_from) {
            self.cpu = ThreadTime::start();
        }
        self.outbox.deliver(&mut self.tally, now);
    }

    /// Gives up on what has taken too long.
    fn expire(&mut self, now: Nanos) {
        let timeout = nanos(self.plan.timeout);
        for slot in 0..self.connections.len() {
            let connection = &self.connections[slot];
            match &connection.link {
                Link::Connecting { since, .. } if now.saturating_sub(*since) > timeout => {
                    self.refused(slot, &io::Error::from(io::ErrorKind::TimedOut));
                }
                Link::Open(_) => {
                    let sent = connection.exchange.oldest_sent();
                    if sent.is_some_and(|sent| now.saturating_sub(sent) > timeout) {
                        self.failed(slot, ErrorKind::Timeout);
                    }
                }
                _ => {}
            }
        }
    }

    /// All requests are answered or lost; or the server is gone for good, and only a number of
    /// requests would end this.
    fn is_done(&self, now: Nanos) -> bool {
        let is_idle =
            || self.connections.iter().all(|connection| connection.exchange.on_their_way() == 0);
        let is_gone = self.plan.end.after.is_none()
            && now.saturating_sub(self.progress) > nanos(self.plan.timeout) + SECOND
            && !self.connections.iter().any(Connection::is_open);
        (self.supply.is_used_up() && is_idle()) || is_gone
    }

    fn finish(mut self) -> Finished {
        let stopped = self.shared.clock.now();
        let now = stopped.min(self.end);
        self.outbox.deliver(&mut self.tally, now);
        let counts_from = self.tally.counts_from;
        let oldest =
            self.connections.iter().filter_map(|connection| connection.exchange.oldest_intended());
        let overdue = self
            .supply
            .share
            .filter(|_| !self.supply.is_used_up())
            .map(|share| (share.overdue(now), share.next_due()));
        let oldest_due = overdue.filter(|&(count, _)| count > 0).map(|(_, due)| due);
        let since = oldest.chain(oldest_due);
        Finished {
            served: self.connections.iter().map(|connection| connection.exchange.served).collect(),
            opened: self.connections.iter().map(|connection| connection.opened).collect(),
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

impl Supply<'_> {
    fn is_used_up(&self) -> bool {
        self.budget.is_used_up(self.shared)
    }

    /// When the next request is due, if requests are due at certain moments and one is left.
    fn next_due(&self) -> Option<Nanos> {
        let share = self.share.as_ref().filter(|_| !self.is_used_up());
        share.map(Share::next_due)
    }

    fn begin_due(&mut self, exchange: &mut Exchange, tally: &mut Tally, now: Nanos) -> bool {
        if !self.budget.take(self.shared) {
            return false;
        }
        let Some(share) = &mut self.share else { return false };
        let due = share.next_due();
        share.advance();
        exchange.begin(self.next_template(), due, now, tally);
        true
    }

    /// A closed loop: as many requests are on their way as may be.
    #[inline]
    fn top_up(&mut self, exchange: &mut Exchange, tally: &mut Tally, now: Nanos) {
        while exchange.on_their_way() < self.plan.depth && self.budget.take(self.shared) {
            let template = self.next_template();
            exchange.begin(template, now, now, tally);
        }
    }

    #[inline]
    fn next_template(&mut self) -> u16 {
        if self.plan.requests.only().is_some() {
            return 0;
        }
        self.position += 1;
        self.plan.requests.at(self.position)
    }
}

/// Connections a second at the beginning: in a closed loop, a ramp is that of the connections.
fn opening_rate(plan: &Plan) -> Option<f64> {
    let ramp = plan.ramp.as_secs_f64();
    if plan.rate.is_some() || ramp == 0.0 {
        return plan.connect_rate;
    }
    #[expect(clippy::cast_precision_loss, reason = "connections are few")]
    let ramped = plan.connections as f64 / ramp;
    Some(plan.connect_rate.map_or(ramped, |rate| rate.min(ramped)))
}
