//! How many TLS handshakes are computed at once, and how long that takes. Each takes a thread of
//! the pool for some hundred microseconds of pure computing, so more of them than processors would
//! only delay each other and the requests of established connections.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Maximum number of handshakes that wait per one that is computed. At a millisecond each, the last
/// one waits for a second, which clients bear.
const WAITING_PER_RUNNING: usize = 1024;

/// A step that takes less is short: to give it to another thread would cost a good part of it.
const SHORT: Duration = Duration::from_micros(500);

/// The handshakes that are computed, and those that wait, in order of arrival.
pub(crate) struct Handshakes<T> {
    state: Mutex<State<T>>,
    running_max: usize,
    /// How long the longest of the last steps took, in nanoseconds. 0 if there was none yet.
    step_ns: AtomicU64,
}

struct State<T> {
    running: usize,
    waiting: VecDeque<T>,
}

/// What becomes of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered<T> {
    /// Compute it now, then call [`Handshakes::next`].
    Run(T),
    Waiting,
    /// Too many wait already.
    Refused(T),
}

impl<T> Handshakes<T> {
    pub(crate) fn new(running_max: usize) -> Self {
        Self {
            state: Mutex::new(State { running: 0, waiting: VecDeque::new() }),
            running_max: running_max.max(1),
            step_ns: AtomicU64::new(0),
        }
    }

    /// Records how long a step took. A long one is remembered for some hundred steps: clients
    /// choose among the keys of a server, and with their certificates what it verifies, so one that
    /// asks for something costly must not do so on a loop again and again between short ones. A
    /// value that is lost to another thread does no harm.
    pub(crate) fn took(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let before = self.step_ns.load(Ordering::Relaxed);
        self.step_ns.store(time.max(before - before / 64), Ordering::Relaxed);
    }

    /// Returns whether all of the last steps were short. This depends on the key of the
    /// certificate: a signature with RSA takes twenty times as long as one on P-256.
    pub(crate) fn are_short(&self) -> bool {
        let step = self.step_ns.load(Ordering::Relaxed);
        step > 0 && u128::from(step) < SHORT.as_nanos()
    }

    pub(crate) fn enter(&self, handshake: T) -> Entered<T> {
        let mut state = self.state.lock();
        if state.running < self.running_max {
            state.running += 1;
            Entered::Run(handshake)
        } else if state.waiting.len() < self.running_max * WAITING_PER_RUNNING {
            state.waiting.push_back(handshake);
            Entered::Waiting
        } else {
            Entered::Refused(handshake)
        }
    }

    /// Ends one that was computed. Returns the next one, which takes its place.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.running -= 1;
        }
        next
    }

    /// Takes all that wait.
    pub(crate) fn close(&self) -> VecDeque<T> {
        std::mem::take(&mut self.state.lock().waiting)
    }
}

impl<T> fmt::Debug for Handshakes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes").field("running_max", &self.running_max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_maximum_run_and_the_others_follow_in_order() {
        let handshakes = Handshakes::new(2);
        assert_eq!(handshakes.enter(1), Entered::Run(1));
        assert_eq!(handshakes.enter(2), Entered::Run(2));
        assert_eq!(handshakes.enter(3), Entered::Waiting);
        assert_eq!(handshakes.enter(4), Entered::Waiting);
        assert_eq!(handshakes.next(), Some(3));
        assert_eq!(handshakes.next(), Some(4));
        assert_eq!(handshakes.next(), None);
        assert_eq!(handshakes.enter(5), Entered::Run(5));
        assert_eq!(handshakes.enter(6), Entered::Waiting);
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

    #[test]
    fn the_queue_is_bounded() {
        let handshakes = Handshakes::new(1);
        assert_eq!(handshakes.enter(0), Entered::Run(0));
        for number in 0..WAITING_PER_RUNNING {
            assert_eq!(handshakes.enter(number), Entered::Waiting);
        }
        assert_eq!(handshakes.enter(7), Entered::Refused(7));
        assert_eq!(handshakes.close().len(), WAITING_PER_RUNNING);
    }
}
