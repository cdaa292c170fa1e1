//! Closing connections that hold nothing, to make room for new ones: the longest idle first.
//!
//! Nothing is recorded for a request. An idle connection's deadline says since when it is idle, so
//! one scan of the table finds the longest idle. A scan names many candidates, and one is closed
//! for each new connection, so its cost is spread over them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::EventLoop;
use super::accept::ACCEPT_REST;
use crate::engine::connection::Connection;
use crate::protocol::Waiting;

/// A connection is closed only if it is idle for this long. A client that sends one request after
/// the other is quicker, and would lose the next one.
const IDLE_MIN: Duration = Duration::from_millis(100);

/// A connection without a complete head is closed only after this time: a head that is on its way
/// takes a few round trips.
const UNFINISHED_MIN: Duration = Duration::from_secs(1);

/// One in so many connections is named by one scan, and this many at least.
const CANDIDATES_SHARE: usize = 32;
const CANDIDATES_MIN: usize = 8;

/// Connections that may be closed, by the last scan.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    queue: VecDeque<Candidate>,
    /// A scan that found few is not repeated before.
    scan_again_at: Option<Instant>,
}

/// A connection, and its deadline when it was named: if that has moved, so has the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    since: Instant,
    deadline: Instant,
    token: usize,
}

impl EventLoop {
    /// Closes the connection of this loop that is idle for the longest time. If none is idle,
    /// closes the one whose head is unfinished for the longest time. Returns whether there was one.
    pub(super) fn make_room(&mut self, now: Instant) -> bool {
        if self.shed_candidate() {
            return true;
        }
        if self.candidates.scan_again_at.is_some_and(|at| now < at) {
            return false;
        }
        self.scan(now);
        self.shed_candidate()
    }

    /// Closes the first candidate that has not moved.
    fn shed_candidate(&mut self) -> bool {
        while let Some(Candidate { deadline, token, .. }) = self.candidates.queue.pop_front() {
            let Some(connection) = self.table.parked_mut(token) else { continue };
            let has_moved = connection.deadline != deadline
                || connection.waits_for() == Waiting::Other
                // It has sent a request, which the poller is about to tell.
                || connection.transport.has_unread();
            if has_moved {
                continue;
            }
            drop(self.table.take(token, super::Missed::Nothing));
            self.release(token);
            let engine = &self.handle.engine;
            engine.counters.connections_shed.increment();
            if let Some(left_out) = engine.shed_log.admit() {
                tracing::warn!(
                    connections_max = engine.connections_max,
                    left_out,
                    "a connection without a request is closed to make room for a new one"
                );
            }
            return true;
        }
        false
    }

    /// Names those that are idle for the longest time, or unfinished if none is idle.
    fn scan(&mut self, now: Instant) {
        let config = &self.handle.engine.config;
        let (mut idle, mut unfinished) = (Vec::new(), Vec::new());
        for (token, connection) in self.table.parked() {
            let (named, timeout, time_min) = match connection.waits_for() {
                Waiting::Idle => (&mut idle, config.keep_alive_timeout, IDLE_MIN),
                Waiting::Head => (&mut unfinished, config.head_timeout, UNFINISHED_MIN),
                Waiting::Other => continue,
            };
            let deadline = connection.deadline;
            let since = deadline.checked_sub(timeout).unwrap_or(now);
            if now.saturating_duration_since(since) >= time_min {
                named.push(Candidate { since, deadline, token });
            }
        }
        let wanted = (self.table.len() / CANDIDATES_SHARE).max(CANDIDATES_MIN);
        let mut named = if idle.is_empty() { unfinished } else { idle };
        let has_found_few = named.len() < wanted;
        if named.len() > wanted {
            named.select_nth_unstable(wanted);
            named.truncate(wanted);
        }
        named.sort_unstable();
        self.candidates.queue = named.into();
        self.candidates.scan_again_at = has_found_few.then(|| now + ACCEPT_REST);
    }
}

impl Connection {
    /// What a connection that is parked waits for.
    fn waits_for(&self) -> Waiting {
        if self.is_writing() {
            Waiting::Other
        } else {
            self.guest.waits_for(!self.leftover.is_empty())
        }
    }
}
