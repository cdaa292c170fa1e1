//! Decides how long to wait before a connection is opened again, from the number of responses
//! alone.

use crate::units::{MILLISECOND, Nanos};

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
