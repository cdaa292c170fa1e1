//! Choosing connections to close, to make room for new ones, or for descriptors that others need:
//! first those with which the least is lost, and of these the ones that have waited for longest.
//!
//! This costs nothing per request. What a connection waits for and its deadlines tell since when
//! it waits, so one scan of the slab finds the longest waiting. A scan selects many candidates, and
//! one is closed for each new connection, so the cost of the scan is amortized over them.
//!
//! The worker closes them, because the program's code may have to run for that. Meanwhile the new
//! connection stays in `waiting`, and accepting is not paused: the loop's next turn either finds
//! the freed place or chooses another connection. If another loop has asked, the worker answers it
//! when the place is free. If the connection stays open, the worker asks its own loop again
//! instead. If a message is lost, the other loop tries again after its pause.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::accept::ACCEPT_PAUSE;
use super::{EventLoop, LoopHandle, Turn};
use crate::config::ServerConfig;
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::connection::slab::Missed;
use crate::metrics::timeouts::Awaited;
use crate::protocol::{Guest, Waiting};

/// Minimum idle time before a connection is closed. A client that sends one request after the other
/// is quicker, and would lose its next request.
const IDLE_MIN: Duration = Duration::from_millis(100);

/// Minimum age of an incomplete head before its connection is closed. A head normally arrives
/// within a few round trips.
const UNFINISHED_MIN: Duration = Duration::from_secs(1);

/// Minimum time after the last output before a connection that its peer keeps open is closed. The
/// last bytes of a response normally arrive within a few round trips.
const LINGER_MIN: Duration = Duration::from_secs(1);

/// A client loses silent streams if it has more than one in this many of all connections, and more
/// than [`CLIENT_FEW`]. Otherwise a few addresses could fill the server with streams.
const CLIENT_SHARE: usize = 64;

/// The tabs of one browser may have this many connections.
const CLIENT_FEW: usize = 8;

/// A small server is shared by fewer clients: a share is at most one in this many of its
/// connections.
const CLIENT_SHARE_OF_FEW: usize = 4;

/// A scan selects one in `CANDIDATES_SHARE` connections, and at least `CANDIDATES_MIN`.
const CANDIDATES_SHARE: usize = 32;
const CANDIDATES_MIN: usize = 8;

/// How long the candidates of a scan are used. After that, there may be others with which less is
/// lost.
const CANDIDATES_AGE_MAX: Duration = Duration::from_secs(1);

/// Connections that may be closed, as selected by the last scan.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    queue: VecDeque<Candidate>,
    scanned_at: Option<Instant>,
    /// The earliest time of the next scan, after one that found few.
    scan_again_at: Option<Instant>,
}

/// A connection and its state when it was selected. If it no longer waits since the same time, it
/// was used meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: Rank,
    /// The number of its client's connections, if that matters.
    of_client: Reverse<usize>,
    since: Instant,
    token: usize,
}

/// What is lost if a connection is closed, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It is idle between two requests. Nothing is lost.
    Idle,
    /// Its head is incomplete. No request was accepted.
    Head,
    /// All is sent, and should have arrived.
    Lingering,
    /// Its peer sends a content or takes a response more slowly than peers may while a resource is
    /// scarce.
    Slow,
    /// A silent stream of a client that has more than its share.
    Stream,
}

/// What there is too little of, so that a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scarce {
    /// The maximum of connections is reached.
    Connections,
    /// The process, the system or the reserve for the program has no free descriptor.
    Descriptors,
}

/// A connection that is to be closed, for a new one or for a descriptor.
#[derive(Debug)]
pub(crate) struct Shed {
    pub(crate) connection: Box<Connection>,
    pub(crate) scarce: Scarce,
    /// Whether it is served once more, and closed only if it is still slow after that: its peer may
    /// have sent or taken something since.
    pub(crate) only_if_slow: bool,
    /// The loop that asked for it, if that is not the connection's own loop.
    pub(crate) asker: Option<Arc<LoopHandle>>,
    /// A thread that waits for its descriptor.
    pub(crate) waiting: Option<Sender<()>>,
}

impl EventLoop {
    /// Takes a connection that is to be closed out of this loop's slab.
    pub(super) fn make_room(&mut self, scarce: Scarce, now: Instant) -> Option<Box<Shed>> {
        self.room_of(scarce, now, Rank::Stream)
    }

    /// Chooses a connection to close for a descriptor that another thread needs. If there is none,
    /// this loop asks another one. A thread that waits asks the other loops itself.
    pub(super) fn find_descriptor(
        &mut self,
        waiting: Option<Sender<()>>,
        now: Instant,
    ) -> Option<Turn> {
        let Some(mut shed) = self.make_room(Scarce::Descriptors, now) else {
            if waiting.is_none() {
                self.ask_for_room(Scarce::Descriptors);
            }
            return None;
        };
        shed.waiting = waiting;
        Some(Turn::Shed(shed))
    }

    /// Takes an idle connection that is to be closed for a descriptor. Closing one runs no code of
    /// the program.
    pub(crate) fn make_idle_room(&mut self, now: Instant) -> Option<Box<Shed>> {
        self.room_of(Scarce::Descriptors, now, Rank::Idle)
    }

    fn room_of(&mut self, scarce: Scarce, now: Instant, last: Rank) -> Option<Box<Shed>> {
        let is_old = |at| now > at + CANDIDATES_AGE_MAX;
        if !self.candidates.scanned_at.is_some_and(is_old) {
            if let Some(shed) = self.next_candidate(scarce, now, last) {
                return Some(shed);
            }
            if !self.candidates.queue.is_empty() {
                // They are sorted: all that are left are of a higher rank.
                return None;
            }
        }
        if self.candidates.scan_again_at.is_some_and(|at| now < at) {
            return None;
        }
        self.scan(now);
        self.next_candidate(scarce, now, last)
    }

    /// Takes the first candidate that was not used since it was selected, up to this rank.
    fn next_candidate(&mut self, scarce: Scarce, now: Instant, last: Rank) -> Option<Box<Shed>> {
        while let Some(&Candidate { rank, since, token, .. }) = self.candidates.queue.front() {
            if rank > last {
                return None;
            }
            self.candidates.queue.pop_front();
            let engine = &self.handle.engine;
            let Some(connection) = self.slab.parked_mut(token) else { continue };
            // The worker looks at a slow one again.
            let is_unused = |(now, at)| now == rank && (at == since || rank == Rank::Slow);
            if !connection.rank(&engine.config, now).is_some_and(is_unused)
                || connection.has_unread_request(rank)
                || rank == Rank::Stream && connection.beyond_share(engine).is_none()
            {
                continue;
            }
            let connection = self.slab.take(token, Missed::Nothing)?;
            let only_if_slow = rank == Rank::Slow;
            let (asker, waiting) = (None, None);
            return Some(Box::new(Shed { connection, scarce, only_if_slow, asker, waiting }));
        }
        None
    }

    /// Selects the connections with which the least is lost, the longest waiting first.
    fn scan(&mut self, now: Instant) {
        let engine = &self.handle.engine;
        let wanted = (self.slab.len() / CANDIDATES_SHARE).max(CANDIDATES_MIN);
        let mut first = BinaryHeap::with_capacity(wanted + 1);
        for (token, connection) in self.slab.parked() {
            let Some((rank, since)) = connection.rank(&engine.config, now) else { continue };
            let is_full = first.len() == wanted;
            if is_full && first.peek().is_some_and(|last: &Candidate| last.rank < rank) {
                continue;
            }
            let mut of_client = Reverse(0);
            if rank == Rank::Stream {
                let Some(connections) = connection.beyond_share(engine) else { continue };
                of_client = Reverse(connections);
            }
            first.push(Candidate { rank, of_client, since, token });
            if is_full {
                first.pop();
            }
        }
        let has_found_few = first.len() < wanted;
        self.candidates.queue = first.into_sorted_vec().into();
        self.candidates.scanned_at = Some(now);
        self.candidates.scan_again_at = has_found_few.then(|| now + ACCEPT_PAUSE);
    }
}

impl Connection {
    /// Returns what would be lost with this parked connection, and since when it waits. Returns
    /// `None` if it must not be closed.
    fn rank(&self, config: &ServerConfig, now: Instant) -> Option<(Rank, Instant)> {
        if self.guest.awaits_answers() {
            return None;
        }
        let began = |timeout| self.deadline.checked_sub(timeout).unwrap_or(now);
        let (rank, since, time_min) = match self.waits_for() {
            Waiting::Idle => (Rank::Idle, began(config.keep_alive_timeout), IDLE_MIN),
            Waiting::Head => (Rank::Head, began(config.head_timeout), UNFINISHED_MIN),
            Waiting::Lingering => (Rank::Lingering, began(config.linger_timeout), LINGER_MIN),
            Waiting::Content { until } => (Rank::Slow, until, Duration::ZERO),
            Waiting::Stream { since } => (Rank::Stream, since, IDLE_MIN),
            Waiting::Other => return None,
        };
        (since + time_min <= now).then_some((rank, since))
    }

    /// Returns what the connection waits for.
    fn waits_for(&self) -> Waiting {
        match &self.unsent {
            // A peer that does not take its response is as slow as one that does not send.
            Some(unsent) => Waiting::Content { until: unsent.pressed_deadline() },
            None => self.guest.waits_for(!self.leftover.is_empty()),
        }
    }

    /// Returns what the connection waits for, as it is counted. `has_input` says whether bytes that
    /// were read are unused: a worker that serves the connection has them.
    #[cold]
    #[inline(never)]
    pub(crate) fn awaited(&self, has_input: bool) -> Awaited {
        if self.unsent.is_some() || self.transport.unsent() > 0 {
            return Awaited::ResponseTaken;
        }
        #[cfg(feature = "tls")]
        if matches!(self.guest, Guest::Handshake(_)) {
            return Awaited::Handshake;
        }
        match self.guest.waits_for(has_input) {
            Waiting::Idle => Awaited::NextRequest,
            Waiting::Head if has_input => Awaited::Head,
            Waiting::Head => Awaited::FirstByte,
            Waiting::Content { .. } => Awaited::Content,
            Waiting::Stream { .. } => Awaited::Stream,
            Waiting::Lingering => Awaited::Close,
            Waiting::Other => Awaited::Other,
        }
    }

    /// Returns whether the peer has sent a request that the poller has not reported yet.
    fn has_unread_request(&self, rank: Rank) -> bool {
        match rank {
            Rank::Idle | Rank::Head => self.transport.has_unread(),
            // After a pushed response has begun, a further request waits for the end of the
            // response.
            Rank::Stream => matches!(self.guest, Guest::Raw(_)) && self.transport.has_unread(),
            // What a lingering peer sends is discarded. A slow one is served once more.
            Rank::Lingering | Rank::Slow => false,
        }
    }

    /// Returns how many connections its client has, if these are more than its share.
    fn beyond_share(&self, engine: &Engine) -> Option<usize> {
        let connections = self.account.client()?.connections();
        (connections > share_of(engine.connections_max)).then_some(connections)
    }

    /// Returns whether the peer is slower than peers may be while a resource is scarce.
    pub(crate) fn is_slow(&self, config: &ServerConfig, now: Instant) -> bool {
        self.rank(config, now).is_some_and(|(rank, _)| rank == Rank::Slow)
    }
}

/// Returns how many connections a client may have before it loses silent streams.
fn share_of(connections_max: usize) -> usize {
    let share = (connections_max / CLIENT_SHARE).max(CLIENT_FEW);
    share.min(connections_max / CLIENT_SHARE_OF_FEW).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_small_part_of_a_large_server_and_a_quarter_of_a_small_one() {
        let shares = [1, 4, 20, 48, 300, 1024, 65_536].map(share_of);
        assert_eq!(shares, [1, 1, 5, 8, 8, 16, 1024]);
    }
}
