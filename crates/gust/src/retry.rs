//! Decides how long to wait before a connection is opened again, from the number of responses
//! alone, and when a server can no longer be reached.

use crate::units::{MILLISECOND, Nanos, SECOND};

/// The first pause after a failed attempt to connect. Each further failure doubles it, up to
/// `RETRY_LONGEST`.
const RETRY_FIRST: Nanos = 10 * MILLISECOND;
const RETRY_LONGEST: Nanos = 1000 * MILLISECOND;

/// The failures of one connection and its predecessors.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    /// Failed attempts since the last response.
    failures: u32,
    /// The number of responses when the connection was opened.
    answered_before: u64,
}

impl Retry {
    /// Records that a connection was opened. `answered` is the number of responses so far.
    pub(crate) fn opened(&mut self, answered: u64) {
        self.answered_before = answered;
    }

    /// Returns how long to wait after a connection was closed. The pause is zero if the connection
    /// had a response. Otherwise there is a pause, so that a server that accepts and closes at once
    /// is not flooded with connects.
    pub(crate) fn pause_after_close(&mut self, answered: u64) -> Nanos {
        if answered > self.answered_before {
            self.failures = 0;
            return 0;
        }
        self.pause_after_failure()
    }

    /// Returns how long to wait after a failed attempt.
    pub(crate) fn pause_after_failure(&mut self) -> Nanos {
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(10)).min(RETRY_LONGEST);
        self.failures += 1;
        pause
    }
}

/// Whether the attempts of one thread to connect have failed for so long that more are useless.
///
/// Only failures count. A thread that has no connection because none is to be opened yet has not
/// lost its server.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    /// When the first failed attempt since the last success was begun.
    failing_since: Option<Nanos>,
    is_lost: bool,
}

impl Reachability {
    /// Records that a connection was opened, or that an open one was closed.
    pub(crate) fn reached(&mut self) {
        *self = Self::default();
    }

    /// Records that an attempt that began at `begun` has failed at `now`.
    pub(crate) fn failed(&mut self, begun: Nanos, now: Nanos, timeout: Nanos) {
        let since = *self.failing_since.get_or_insert(begun);
        self.is_lost |= now.saturating_sub(since) > timeout.saturating_add(SECOND);
    }

    /// Returns whether attempts have failed for a second longer than the timeout, without a
    /// success.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(pauses: impl Iterator<Item = Nanos>) -> Vec<u64> {
        pauses.map(|pause| pause / MILLISECOND).collect()
    }

    #[test]
    fn each_failure_doubles_the_pause_up_to_a_second() {
        let mut retry = Retry::default();
        let pauses = milliseconds((0..9).map(|_| retry.pause_after_failure()));
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert!((0..100).all(|_| retry.pause_after_failure() == RETRY_LONGEST));
    }

    #[test]
    fn a_server_is_lost_after_failures_over_more_than_the_timeout_and_a_second() {
        let timeout = 2 * SECOND;
        let mut server = Reachability::default();
        let mut fails_at = |begun, now, is_reached| {
            if is_reached {
                server.reached();
            }
            server.failed(begun, now, timeout);
            server.is_lost()
        };
        assert!(!fails_at(50 * SECOND, 52 * SECOND, false), "the time before does not count");
        assert!(!fails_at(53 * SECOND, 53 * SECOND, false));
        assert!(fails_at(53 * SECOND, 53 * SECOND + 1, false));
        assert!(fails_at(53 * SECOND + 1, 53 * SECOND + 2, false));
        assert!(!fails_at(54 * SECOND, 54 * SECOND, true));
    }

    #[test]
    fn a_response_ends_the_pauses() {
        let mut retry = Retry::default();
        let mut close = |answered| {
            let pause = retry.pause_after_close(answered);
            retry.opened(answered);
            pause
        };
        // The third connection has two responses, the others have none.
        assert_eq!(milliseconds([0, 0, 2, 2, 2].into_iter().map(&mut close)), [10, 20, 0, 10, 20]);
    }
}
