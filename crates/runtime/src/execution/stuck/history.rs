//! How long the calls of each route took, as far as that decides when a call is late.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::execution::key::ExecutionKey;

/// A call is late when it has taken this many times as long as the longest earlier call of its
/// route.
const TIMES_LONGEST: u64 = 3;

/// How many calls of a route must have ended before its history counts.
const CALLS_KNOWN: u32 = 16;

/// How many times as long the first calls of a route may take as those of a known route, because it
/// is not known yet whether they always take that long.
const TIMES_FIRST: u64 = 10;

/// The longest calls of all routes.
#[derive(Debug)]
pub(super) struct History {
    /// No call is late before this time.
    floor_ns: u64,
    entries: Box<[Entry]>,
}

#[derive(Debug, Default)]
struct Entry {
    longest_ns: AtomicU64,
    /// Calls on the pool that have ended. Not counted further than [`CALLS_KNOWN`].
    ended: AtomicU32,
    /// The time from which the last call was late that was counted in the report of another one.
    /// Many such calls may end after the same incident: each on its own would move the bound.
    counted_bound_ns: AtomicU64,
}

impl History {
    pub(super) fn new(floor: Duration) -> Self {
        let entries = (0..ExecutionKey::COUNT).map(|_| Entry::default()).collect();
        Self { floor_ns: nanos(floor), entries }
    }

    pub(super) fn floor_ns(&self) -> u64 {
        self.floor_ns
    }

    /// Records a call that was not late.
    #[inline]
    pub(super) fn ended(&self, key: ExecutionKey, took_ns: u64) {
        let entry = &self.entries[key.index()];
        if entry.ended.load(Ordering::Relaxed) < CALLS_KNOWN {
            // May exceed the bound by the number of threads.
            entry.ended.fetch_add(1, Ordering::Relaxed);
        }
        // A shorter call changes no decision.
        if took_ns > self.floor_ns / TIMES_LONGEST {
            entry.longest_ns.fetch_max(took_ns, Ordering::Relaxed);
        }
    }

    /// Records a call that was late. It moves the bound to twice its value at most: a call that
    /// hung for an hour must not hide the next one that hangs for a minute. A route that has become
    /// slow for good is reported a few times only.
    pub(super) fn ended_late(&self, key: ExecutionKey, took_ns: u64, bound_ns: u64) {
        let most = bound_ns.saturating_mul(2).div_ceil(TIMES_LONGEST);
        self.ended(key, took_ns.min(most));
    }

    /// Records that a call is late from this time on, which is counted and not reported.
    pub(super) fn counted(&self, key: ExecutionKey, bound_ns: u64) {
        self.entries[key.index()].counted_bound_ns.store(bound_ns, Ordering::Relaxed);
    }

    /// As [`ended_late`](Self::ended_late), for a call that was counted.
    pub(super) fn ended_counted(&self, key: ExecutionKey, took_ns: u64) {
        let bound_ns = self.entries[key.index()].counted_bound_ns.load(Ordering::Relaxed);
        self.ended_late(key, took_ns, bound_ns);
    }

    /// Returns the time from which a call of the route is late. `calls` are the calls of the route
    /// that this history does not know.
    pub(super) fn bound_ns(&self, key: ExecutionKey, calls: u64) -> u64 {
        let times = if self.is_known(key, calls) { 1 } else { TIMES_FIRST };
        let floor_ns = self.floor_ns.saturating_mul(times);
        self.longest_ns(key).saturating_mul(TIMES_LONGEST).max(floor_ns)
    }

    /// Returns whether enough calls of the route have ended to tell how long they take. `calls` as
    /// in [`bound_ns`](Self::bound_ns).
    pub(super) fn is_known(&self, key: ExecutionKey, calls: u64) -> bool {
        let ended = u64::from(self.entries[key.index()].ended.load(Ordering::Relaxed));
        ended.saturating_add(calls) >= u64::from(CALLS_KNOWN)
    }

    /// Returns how long the longest call took, or 0 if all were too short to matter.
    pub(super) fn longest_ns(&self, key: ExecutionKey) -> u64 {
        self.entries[key.index()].longest_ns.load(Ordering::Relaxed)
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn history(calls: &[u64]) -> (History, ExecutionKey) {
        let (history, key) = (History::new(Duration::from_secs(1)), ExecutionKey::at(7));
        for &took_ns in calls {
            history.ended(key, took_ns);
        }
        (history, key)
    }

    #[test]
    fn the_bound_follows_the_longest_call_of_the_route() {
        for (calls, on_loops, expected) in [
            (vec![], 0, 10 * SECOND),
            (vec![SECOND / 1000; 15], 0, 10 * SECOND),
            (vec![SECOND / 1000; 16], 0, SECOND),
            (vec![], 16, SECOND),
            (vec![SECOND / 1000; 4], 12, SECOND),
            (vec![2 * SECOND; 16], 0, 6 * SECOND),
            (vec![20 * SECOND], 0, 60 * SECOND),
            (vec![u64::MAX; 16], 0, u64::MAX),
        ] {
            let (history, key) = history(&calls);
            assert_eq!(history.bound_ns(key, on_loops), expected, "{calls:?} and {on_loops}");
            assert_eq!(history.bound_ns(ExecutionKey::at(8), 16), SECOND);
        }
    }

    #[test]
    fn a_call_that_hung_moves_the_bound_to_twice_its_value_at_most() {
        let (history, key) = history(&[SECOND / 10; 16]);
        let mut bounds = Vec::new();
        for _ in 0..7 {
            let bound_ns = history.bound_ns(key, 0);
            bounds.push(bound_ns / SECOND);
            if bound_ns < 20 * SECOND {
                history.ended_late(key, 20 * SECOND, bound_ns);
            }
        }
        // A route that takes 20 s from now on is reported five times.
        assert_eq!(bounds, [1, 2, 4, 8, 16, 32, 32]);
    }

    #[test]
    fn calls_that_hung_together_move_the_bound_as_one() {
        let (history, key) = history(&[SECOND / 10; 16]);
        history.counted(key, history.bound_ns(key, 0));
        for _ in 0..20 {
            history.ended_counted(key, 3600 * SECOND);
        }
        assert!(history.bound_ns(key, 0).abs_diff(2 * SECOND) < 10);
    }
}
