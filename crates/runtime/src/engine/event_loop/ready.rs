//! The connections that a loop serves next, in the order in which they became ready.

use super::{EventLoop, Readiness};

/// A connection to serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) token: usize,
    pub(super) readiness: Readiness,
}

/// A connection that used up its turn and could continue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yielded {
    pub(super) token: usize,
    /// The connection's number of yields at that time.
    pub(super) number: u32,
}

/// A queue that is filled with one batch and emptied before the next one. It is refilled from the
/// start, which costs less than a ring buffer.
#[derive(Debug)]
pub(super) struct ReadyQueue {
    batch: Vec<Ready>,
    /// The index of the first entry that was not taken.
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

impl EventLoop {
    /// Returns how many connections share the loop: the yielded ones, and those of the current
    /// batch. Those of the batch that were served already count too, because otherwise the last one
    /// would seem to be alone.
    pub(crate) fn crowd(&self) -> u32 {
        u32::try_from(self.ready.batch.len() + self.yielded.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_popped_in_order_and_the_buffer_is_reused() {
        let mut queue = ReadyQueue::with_capacity(2);
        for batch in 0..3 {
            assert!(queue.is_empty());
            queue.push(batch, Readiness::Io);
            assert_eq!(queue.pop().map(|ready| ready.token), Some(batch));
            assert!(queue.is_empty(), "the batch was taken");
            queue.push(batch + 10, Readiness::Expired);
            assert!(!queue.is_empty());
            assert_eq!(queue.pop().map(|ready| ready.token), Some(batch + 10));
            assert!(queue.pop().is_none());
            assert_eq!((queue.batch.len(), queue.next), (0, 0));
        }
    }
}
