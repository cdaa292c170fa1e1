//! The connections that a loop looks at next, in the order in which they were named.

use super::Readiness;

/// A connection to look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) token: usize,
    pub(super) readiness: Readiness,
}

/// A queue that is filled by the batch and emptied before the next one: its places are used from
/// the start again, which costs less than a ring.
#[derive(Debug)]
pub(super) struct ReadyQueue {
    batch: Vec<Ready>,
    /// The place of the first one that was not taken.
    next: usize,
}

impl ReadyQueue {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { batch: Vec::with_capacity(capacity), next: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, token: usize, readiness: Readiness) {
        self.batch.push(Ready { token, readiness });
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Ready> {
        let Some(ready) = self.batch.get(self.next) else {
            self.batch.clear();
            self.next = 0;
            return None;
        };
        self.next += 1;
        Some(*ready)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.batch.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_taken_in_order_and_their_places_are_used_again() {
        let mut queue = ReadyQueue::with_capacity(2);
        for batch in 0..3 {
            assert!(queue.is_empty());
            queue.push(batch, Readiness::Io);
            assert_eq!(queue.pop().map(|ready| ready.token), Some(batch));
            assert!(queue.is_empty(), "whatever is left of the batch was taken");
            queue.push(batch + 10, Readiness::Expired);
            assert!(!queue.is_empty());
            assert_eq!(queue.pop().map(|ready| ready.token), Some(batch + 10));
            assert!(queue.pop().is_none());
            assert_eq!((queue.batch.len(), queue.next), (0, 0));
        }
    }
}
