//! Counts what happens during a run. Each thread counts separately, in consecutive slices of time.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::units::{MICROSECOND, Nanos};

/// How a request, or a connection, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// A connection could not be opened, or not before the timeout.
    Connect,
    /// The connection was reset while a response was awaited.
    Reset,
    /// The connection was closed without an error, but before the response was complete.
    ClosedEarly,
    /// No response came before the timeout.
    Timeout,
    /// The response violates the protocol.
    Malformed,
    /// The server sent bytes without a request.
    Unsolicited,
    /// The response has a status that `--expect` does not list.
    Status,
    /// The response is complete, but does not match what `--verify` expects.
    Mismatch,
}

/// The number of errors of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Errors {
    pub(crate) connect: u64,
    pub(crate) reset: u64,
    pub(crate) closed_early: u64,
    pub(crate) timeout: u64,
    pub(crate) malformed: u64,
    pub(crate) unsolicited: u64,
    pub(crate) status: u64,
    pub(crate) mismatch: u64,
}

/// The counts of one slice of time.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) errors: Errors,
    /// A list, because few statuses occur and nearly all responses have the first one.
    pub(crate) statuses: Vec<(u16, u64)>,
    /// Latencies from the time at which a request was due.
    pub(crate) latency: Histogram,
    /// Latencies from the time at which a request was sent. Recorded only at a constant rate,
    /// because otherwise both are the same.
    pub(crate) uncorrected: Histogram,
    pub(crate) connect: Histogram,
    pub(crate) handshakes: Handshakes,
}

/// The number of TLS handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshakes {
    pub(crate) full: u64,
    /// Those that resumed an earlier session.
    pub(crate) resumed: u64,
}

/// The slice in progress, and the time from which requests count.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) slice: Box<Slice>,
    /// The end of the warm-up.
    pub(crate) counts_from: Nanos,
    /// Whether requests are due at set times.
    pub(crate) has_schedule: bool,
    /// When the run started, in microseconds since 1970.
    pub(crate) wall_start: u64,
}

impl Errors {
    pub(crate) fn add(&mut self, kind: ErrorKind, count: u64) {
        let counter = match kind {
            ErrorKind::Connect => &mut self.connect,
            ErrorKind::Reset => &mut self.reset,
            ErrorKind::ClosedEarly => &mut self.closed_early,
            ErrorKind::Timeout => &mut self.timeout,
            ErrorKind::Malformed => &mut self.malformed,
            ErrorKind::Unsolicited => &mut self.unsolicited,
            ErrorKind::Status => &mut self.status,
            ErrorKind::Mismatch => &mut self.mismatch,
        };
        *counter += count;
    }

    /// Returns every kind with its name, in the order in which they can occur during a request.
    pub(crate) fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("connect", self.connect),
            ("reset", self.reset),
            ("closed early", self.closed_early),
            ("timeout", self.timeout),
            ("malformed", self.malformed),
            ("unsolicited", self.unsolicited),
            ("status", self.status),
            ("mismatch", self.mismatch),
        ]
    }

    pub(crate) fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.connect += other.connect;
        self.reset += other.reset;
        self.closed_early += other.closed_early;
        self.timeout += other.timeout;
        self.malformed += other.malformed;
        self.unsolicited += other.unsolicited;
        self.status += other.status;
        self.mismatch += other.mismatch;
    }
}

impl Slice {
    pub(crate) fn new() -> Self {
        Self {
            requests: 0,
            responses: 0,
            bytes_sent: 0,
            bytes_received: 0,
            errors: Errors::default(),
            statuses: Vec::new(),
            latency: Histogram::new(),
            uncorrected: Histogram::new(),
            connect: Histogram::new(),
            handshakes: Handshakes::default(),
        }
    }

    #[inline]
    pub(crate) fn count_status(&mut self, status: u16) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => self.statuses.push((status, 1)),
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.responses += other.responses;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.errors.merge(&other.errors);
        for &(status, count) in &other.statuses {
            match self.statuses.iter_mut().find(|(known, _)| *known == status) {
                Some((_, sum)) => *sum += count,
                None => self.statuses.push((status, count)),
            }
        }
        self.latency.add(&other.latency);
        self.uncorrected.add(&other.uncorrected);
        self.connect.add(&other.connect);
        self.handshakes.full += other.handshakes.full;
        self.handshakes.resumed += other.handshakes.resumed;
    }

    /// Moves the figures to which the warm-up adds into an empty slice. The others have only what
    /// counts.
    pub(crate) fn move_uncounted(&mut self, to: &mut Self) {
        to.bytes_sent = std::mem::take(&mut self.bytes_sent);
        to.bytes_received = std::mem::take(&mut self.bytes_received);
        to.errors = std::mem::take(&mut self.errors);
    }

    /// Empties the slice and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.requests = 0;
        self.responses = 0;
        self.bytes_sent = 0;
        self.bytes_received = 0;
        self.errors = Errors::default();
        self.statuses.clear();
        self.latency.clear();
        self.uncorrected.clear();
        self.connect.clear();
        self.handshakes = Handshakes::default();
    }
}

impl Tally {
    pub(crate) fn new(counts_from: Nanos, has_schedule: bool) -> Self {
        Self { slice: Box::new(Slice::new()), counts_from, has_schedule, wall_start: 0 }
    }

    #[inline]
    pub(crate) fn request(&mut self, sent: Nanos) {
        self.slice.requests += u64::from(sent >= self.counts_from);
    }

    /// Records a complete response. Returns whether it counts, which it does if its request was
    /// sent after the warm-up.
    #[inline]
    pub(crate) fn response(&mut self, intended: Nanos, sent: Nanos, now: Nanos) -> bool {
        if sent < self.counts_from {
            return false;
        }
        self.slice.responses += 1;
        self.slice.latency.record(now.saturating_sub(intended));
        if self.has_schedule {
            self.slice.uncorrected.record(now.saturating_sub(sent));
        }
        true
    }

    /// Records a message that no request asked for, and that says when it was sent, in microseconds
    /// since 1970. Returns whether it counts.
    pub(crate) fn arrival(&mut self, sent_at: Option<u64>, now: Nanos) -> bool {
        if now < self.counts_from {
            return false;
        }
        self.slice.responses += 1;
        if let Some(sent_at) = sent_at {
            let arrived = self.wall_start + now / MICROSECOND;
            // The clock of another machine may be ahead.
            self.slice.latency.record(arrived.saturating_sub(sent_at).saturating_mul(MICROSECOND));
        }
        true
    }

    /// Records a TLS handshake on a connection that was begun at `since`.
    pub(crate) fn handshake(&mut self, since: Nanos, is_resumed: bool) {
        if since >= self.counts_from {
            self.slice.handshakes.full += u64::from(!is_resumed);
            self.slice.handshakes.resumed += u64::from(is_resumed);
        }
    }

    pub(crate) fn error(&mut self, kind: ErrorKind, count: u64) {
        self.slice.errors.add(kind, count);
    }

    /// Records that a connection ended and lost this many requests. Without an error only these
    /// requests count; an error counts at least once.
    pub(crate) fn connection_ended(&mut self, error: Option<ErrorKind>, lost: u64) {
        match error {
            None => self.error(ErrorKind::ClosedEarly, lost),
            Some(kind) => self.error(kind, lost.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_warm_up_do_not_count() {
        let mut tally = Tally::new(100, true);
        tally.request(99);
        tally.request(100);
        assert!(!tally.response(50, 99, 150));
        assert!(tally.response(50, 100, 150));
        let slice = &tally.slice;
        assert_eq!((slice.requests, slice.responses), (1, 1));
        assert_eq!((slice.latency.percentile(50.0), slice.uncorrected.percentile(50.0)), (100, 50));
    }

    #[test]
    fn an_error_of_a_connection_counts_without_a_request() {
        let mut tally = Tally::new(0, false);
        tally.connection_ended(None, 0);
        tally.connection_ended(None, 2);
        tally.connection_ended(Some(ErrorKind::Reset), 0);
        tally.connection_ended(Some(ErrorKind::Reset), 3);
        assert_eq!((tally.slice.errors.closed_early, tally.slice.errors.reset), (2, 4));
    }

    #[test]
    fn handshakes_of_the_warm_up_do_not_count() {
        let mut tally = Tally::new(100, false);
        for (since, is_resumed) in [(99, false), (99, true), (100, false), (101, true), (102, true)]
        {
            tally.handshake(since, is_resumed);
        }
        assert_eq!(tally.slice.handshakes, Handshakes { full: 1, resumed: 2 });
    }

    #[test]
    fn a_message_is_as_old_as_two_clocks_say_and_never_younger_than_nothing() {
        let mut tally = Tally::new(100, false);
        tally.wall_start = 5000;
        assert!(!tally.arrival(Some(4999), 99));
        // The other clock is ahead.
        assert!(tally.arrival(Some(5001), 100));
        assert_eq!(tally.slice.latency.max(), 0);
        assert!(tally.arrival(Some(4990), 2 * MICROSECOND));
        assert_eq!(tally.slice.latency.max(), 12 * MICROSECOND);
        assert!(tally.arrival(None, 3 * MICROSECOND), "it counts, without an age");
        assert_eq!((tally.slice.responses, tally.slice.latency.count()), (3, 2));
    }

    #[test]
    fn slices_add_up_and_start_over() {
        let (mut sum, mut slice) = (Slice::new(), Slice::new());
        slice.count_status(200);
        slice.count_status(200);
        slice.count_status(404);
        slice.errors.add(ErrorKind::Timeout, 2);
        slice.errors.add(ErrorKind::Connect, 1);
        slice.latency.record(5);
        slice.uncorrected.record(6);
        slice.connect.record(7);
        slice.handshakes = Handshakes { full: 1, resumed: 2 };
        sum.merge(&slice);
        sum.merge(&slice);
        assert_eq!(sum.statuses, [(200, 4), (404, 2)]);
        assert_eq!((sum.errors.timeout, sum.errors.total(), sum.latency.count()), (4, 6, 2));
        let counts =
            |sum: &Slice| [&sum.latency, &sum.uncorrected, &sum.connect].map(Histogram::count);
        assert_eq!(counts(&sum), [2; 3]);
        assert_eq!(sum.handshakes, Handshakes { full: 2, resumed: 4 });
        sum.clear();
        let kinds = [
            ErrorKind::Connect,
            ErrorKind::Reset,
            ErrorKind::ClosedEarly,
            ErrorKind::Timeout,
            ErrorKind::Malformed,
            ErrorKind::Unsolicited,
            ErrorKind::Status,
            ErrorKind::Mismatch,
        ];
        let mut errors = Errors::default();
        for (kind, count) in kinds.into_iter().zip(1..) {
            errors.add(kind, count);
        }
        errors.merge(&errors.clone());
        assert_eq!(errors.named().map(|(_, count)| count), [2, 4, 6, 8, 10, 12, 14, 16]);
        assert!(sum.statuses.is_empty() && sum.errors == Errors::default());
        assert_eq!((counts(&sum), sum.handshakes), ([0; 3], Handshakes::default()));
    }
}
