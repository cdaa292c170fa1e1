//! Closing connections that have no request, to make room for new ones. The longest idle comes
//! first.
//!
//! This costs nothing per request. An idle connection's deadline tells since when it is idle, so
//! one scan of the slab finds the longest idle. A scan selects many candidates, and one is closed
//! for each new connection, so the cost of the scan is amortized over them.

use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use super::EventLoop;
use super::accept::ACCEPT_PAUSE;
use crate::engine::connection::Connection;
use crate::protocol::Waiting;

/// Minimum idle time before a connection is closed. A client that sends one request after the other
/// is quicker, and would lose its next request.
const IDLE_MIN: Duration = Duration::from_millis(100);

/// Minimum age of an incomplete head before its connection is closed. A head normally arrives
/// within a few round trips.
const UNFINISHED_MIN: Duration = Duration::from_secs(1);

/// A scan selects one in `CANDIDATES_SHARE` connections, and at least `CANDIDATES_MIN`.
const CANDIDATES_SHARE: usize = 32;
const CANDIDATES_MIN: usize = 8;

/// Connections that may be closed, as selected by the last scan.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    queue: VecDeque<Candidate>,
    /// The earliest time of the next scan, after one that found few.
    scan_again_at: Option<Instant>,
}

/// A connection and its deadline when it was selected. If the deadline has moved, the connection
/// was used since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    since: Instant,
    deadline: Instant,
    token: usize,
}

impl EventLoop {
    /// Closes the connection of this loop that has been idle for the longest time. If none is idle,
    /// closes the one whose head has been incomplete for the longest time. Returns whether a
    /// connection was closed.
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

    /// Closes the first candidate that was not used since it was selected.
    fn shed_candidate(&mut self) -> bool {
        while let Some(Candidate { deadline, token, .. }) = self.candidates.queue.pop_front() {
            let Some(connection) = self.slab.parked_mut(token) else { continue };
            let has_moved = connection.deadline != deadline
                || connection.waits_for() == Waiting::Other
                // It has sent a request that the poller has not reported yet.
                || connection.transport.has_unread();
            if has_moved {
                continue;
            }
            drop(self.slab.take(token, super::Missed::Nothing));
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

    /// Selects the connections that have been idle for the longest time. If none is idle, selects
    /// the ones with the oldest incomplete heads.
    fn scan(&mut self, now: Instant) {
        let config = &self.handle.engine.config;
        let (mut idle, mut unfinished) = (Vec::new(), Vec::new());
        for (token, connection) in self.slab.parked() {
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
        let wanted = (self.slab.len() / CANDIDATES_SHARE).max(CANDIDATES_MIN);
        let named = if idle.is_empty() { unfinished } else { idle };
        let has_found_few = named.len() < wanted;
        let mut first = BinaryHeap::new();
        for candidate in named {
            first.push(candidate);
            if first.len() > wanted {
                first.pop();
            }
        }
        self.candidates.queue = first.into_sorted_vec().into();
        self.candidates.scan_again_at = has_found_few.then(|| now + ACCEPT_PAUSE);
    }
}

impl Connection {
    /// Returns what a parked connection waits for.
    fn waits_for(&self) -> Waiting {
        if self.is_writing() {
            Waiting::Other
        } else {
            self.guest.waits_for(!self.leftover.is_empty())
        }
    }
}
