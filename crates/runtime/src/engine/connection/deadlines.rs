//! Deadlines of the connections of one event loop.
//!
//! A deadline is stored in its connection, so moving it with each request is cheap. The heap holds
//! one entry per connection. When an entry is due and its connection's deadline has moved on, the
//! entry is inserted again with the new deadline. Only a deadline that moves to an *earlier* time
//! needs a second entry. The first entry is then recognised as stale and dropped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// A heap of entries, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Deadlines {
    /// Adds an entry for `token` that is due at `at`.
    pub(crate) fn add(&mut self, at: Instant, token: usize) {
        self.heap.push(Reverse((at, token)));
    }

    /// Returns the time of the earliest entry.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns the earliest entry, if it is due.
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
    fn entries_are_due_in_order_and_not_before_their_time() {
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
