//! How many TLS handshakes are computed at once, and how long that takes. Each takes a thread of
//! the pool for some hundred microseconds of pure computing, so more of them than processors would
//! only delay each other and the requests of established connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::budget::line::Line;

/// Maximum number of handshakes that wait per one that is computed. At a millisecond each, the last
/// one waits for a second, which clients bear.
const WAITING_PER_RUNNING: usize = 1024;

/// A step that takes less is short: handing it to another thread would cost a good part of that
/// time.
const SHORT: Duration = Duration::from_micros(500);

/// How long a loop may compute steps before it looks for events again. Others wait for that.
const TURN: Duration = Duration::from_millis(1);

/// The handshakes that are computed and those that wait, whose clients take turns, and how long a
/// step takes.
#[derive(Debug)]
pub(crate) struct Handshakes<T> {
    pub(crate) line: Line<T>,
    /// How long the longest of the last steps took, in nanoseconds. 0 if there was none yet.
    step_ns: AtomicU64,
}

impl<T> Handshakes<T> {
    pub(crate) fn new(running_max: usize) -> Self {
        let running_max = running_max.max(1);
        let waiting_max = running_max.saturating_mul(WAITING_PER_RUNNING);
        Self { line: Line::new(running_max, waiting_max), step_ns: AtomicU64::new(0) }
    }

    /// Records how long a step took. A long one is remembered for some hundred steps. Clients
    /// choose among the keys of a server, and their certificates decide what it verifies. A client
    /// that chooses a costly step must not get it computed on a loop again and again between short
    /// ones. A value that is lost because another thread stores one at the same time does no harm.
    pub(crate) fn took(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let before = self.step_ns.load(Ordering::Relaxed);
        self.step_ns.store(time.max(before - before / 64), Ordering::Relaxed);
    }

    /// Returns whether a loop that has computed steps for this long in its turn may compute another
    /// one.
    pub(crate) fn may_delay(&self, computed: Duration) -> bool {
        computed < TURN && self.are_short()
    }

    /// Returns whether all of the last steps were short. This depends on the key of the
    /// certificate: a signature with RSA takes twenty times as long as one on P-256.
    fn are_short(&self) -> bool {
        let step = self.step_ns.load(Ordering::Relaxed);
        step > 0 && u128::from(step) < SHORT.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_has_computed_for_a_millisecond_leaves_the_next_step_to_others() {
        let handshakes = Handshakes::<()>::new(1);
        handshakes.took(Duration::from_micros(499));
        assert!(handshakes.may_delay(Duration::from_micros(999)));
        assert!(!handshakes.may_delay(Duration::from_millis(1)));
        handshakes.took(Duration::from_micros(500));
        assert!(!handshakes.may_delay(Duration::ZERO), "a step is too long for a loop");
    }

    #[test]
    fn steps_are_short_when_all_of_the_last_ones_were() {
        let handshakes = Handshakes::<()>::new(1);
        assert!(!handshakes.are_short(), "nothing is known");
        let [short, long] = [100, 6_000].map(Duration::from_micros);
        handshakes.took(short);
        assert!(handshakes.are_short());
        for _ in 0..3 {
            handshakes.took(long);
            for _ in 0..100 {
                handshakes.took(short);
                assert!(!handshakes.are_short(), "a client alternates between two keys");
            }
        }
        for _ in 0..100 {
            handshakes.took(short);
        }
        assert!(handshakes.are_short(), "the key was replaced");
    }
}
