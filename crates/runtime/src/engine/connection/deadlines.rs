//! When to look at which connection again.
//!
//! A deadline is stored in its connection and moves with every request at no cost; the heap holds
//! one entry a connection, which is looked at when it comes up and put back if the deadline has
//! moved on. Only a deadline that comes *earlier* than its entry needs a second entry; the first
//! one is then recognised as stale and dropped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Entries by time, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Deadlines {
    /// Asks for `token` at `at`.
    pub(crate) fn add(&mut self, at: Instant, token: usize) {
        self.heap.push(Reverse((at, token)));
    }

    /// The earliest entry's time.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the earliest entry, if it is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Instant, usize)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entries_come_up_in_order_and_not_before_their_time() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        for (seconds, token) in [(30, 3), (10, 1), (20, 2)] {
            deadlines.add(after(seconds), token);
        }
        assert_eq!(deadlines.next(), Some(after(10)));
        assert_eq!(deadlines.pop_due(after(5)), None);
        assert_eq!(deadlines.pop_due(after(25)), Some((after(10), 1)));
        assert_eq!(deadlines.pop_due(after(25)), Some((after(20), 2)));
        assert_eq!(deadlines.pop_due(after(25)), None);
    }
}
