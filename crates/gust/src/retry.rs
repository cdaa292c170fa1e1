//! How long to wait before a connection is opened again. Pure: counts of answers in, a time out.

use crate::units::{MILLISECOND, Nanos};

/// Waits between attempts to connect that fail: from this, doubling, up to the next.
const RETRY_FIRST: Nanos = 10 * MILLISECOND;
const RETRY_LONGEST: Nanos = 1000 * MILLISECOND;

/// What one place for connections has seen fail.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    /// Attempts that failed since there was last an answer.
    failures: u32,
    /// How many answers there were when the connection was opened.
    answered_before: u64,
}

impl Retry {
    /// A connection is open, after so many answers on those before it.
    pub(crate) fn opened(&mut self, answered: u64) {
        self.answered_before = answered;
    }

    /// Returns how long to wait after a connection was closed: not at all if it has brought an
    /// answer. A server that accepts and closes at once is not asked as fast as can be.
    pub(crate) fn pause_after_close(&mut self, answered: u64) -> Nanos {
        if answered > self.answered_before {
            self.failures = 0;
            return 0;
        }
        self.pause_after_failure()
    }

    /// Returns how long to wait after an attempt that failed.
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
    fn an_answer_ends_the_pauses() {
        let mut retry = Retry::default();
        let mut close = |answered| {
            let pause = retry.pause_after_close(answered);
            retry.opened(answered);
            pause
        };
        // The third connection brings two answers, the others none.
        assert_eq!(milliseconds([0, 0, 2, 2, 2].into_iter().map(&mut close)), [10, 20, 0, 10, 20]);
    }
}
