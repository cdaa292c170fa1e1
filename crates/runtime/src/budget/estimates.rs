//! Memory that code of the program takes for requests, where only an estimate is known: what a
//! parser makes of a content depends on the types of the program.
//!
//! Estimates have a budget of their own, as large as that of all peers. One that is too high must
//! not make [memory](super::memory) look short, as that closes the connections of slow peers. For
//! the same reason they wait for each other before one is refused. That ends: who holds one has all
//! that it needs, and is a handler that returns; and nobody waits for longer than [`PATIENCE`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::memory::Memory;
use crate::sync::{Condvar, Mutex};

/// An estimate counts as one part in this many of the budget at most. Otherwise a content with an
/// estimate that is too high would be refused each time, even if nothing else needs memory.
const SHARE_MAX: usize = 4;

/// How long an estimate waits for others.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sum of all estimates.
#[derive(Debug)]
pub(crate) struct Estimates {
    bytes_max: usize,
    held: Mutex<usize>,
    /// Notified when there is less.
    less: Condvar,
}

/// An estimate that counts until it is dropped.
pub(crate) struct Estimate {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Estimates {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, held: Mutex::new(0), less: Condvar::new() }
    }

    /// Counts the bytes, and waits for that if others have all of the budget. Returns whether they
    /// are counted.
    fn add(&self, bytes: usize, until: Instant) -> bool {
        let mut held = self.held.lock();
        while *held + bytes > self.bytes_max {
            let is_late;
            (held, is_late) = self.less.wait_until(held, until);
            if is_late {
                return false;
            }
        }
        *held += bytes;
        true
    }

    fn remove(&self, bytes: usize) {
        *self.held.lock() -= bytes;
        self.less.notify_all();
    }
}

impl Estimate {
    /// Counts an estimate. Returns `None` if there was no memory for it for a second.
    pub(crate) fn hold(memory: &Arc<Memory>, bytes: usize) -> Option<Self> {
        Self::hold_within(memory, bytes, PATIENCE)
    }

    fn hold_within(memory: &Arc<Memory>, bytes: usize, patience: Duration) -> Option<Self> {
        let estimates = memory.estimates();
        let bytes = bytes.min(estimates.bytes_max / SHARE_MAX);
        let is_held = estimates.add(bytes, Instant::now() + patience);
        is_held.then(|| Self { memory: Arc::clone(memory), bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Estimate {
    fn drop(&mut self) {
        self.memory.estimates().remove(self.bytes);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn hold(memory: &Arc<Memory>, bytes: usize) -> Option<Estimate> {
        Estimate::hold_within(memory, bytes, Duration::ZERO)
    }

    #[test]
    fn estimates_fill_a_budget_of_their_own() {
        let memory = Memory::new(Some(1000));
        let held: Vec<_> = (0..4).map(|_| hold(&memory, 240).unwrap()).collect();
        assert!(hold(&memory, 41).is_none(), "40 bytes are left");
        assert!(hold(&memory, 40).is_some_and(|estimate| estimate.bytes() == 40));
        assert_eq!(memory.used(), 0, "peers have all of theirs");
        drop(held);
        assert!(hold(&memory, 250).is_some());
    }

    #[test]
    fn an_estimate_counts_as_a_quarter_at_most() {
        let memory = Memory::new(Some(1000));
        let held: Vec<_> = (0..4).map(|_| hold(&memory, usize::MAX).unwrap()).collect();
        assert!(held.iter().all(|estimate| estimate.bytes() == 250));
        assert!(hold(&memory, 1).is_none());
    }

    #[test]
    fn an_estimate_waits_for_others() {
        let memory = Memory::new(Some(1000));
        let held: Vec<_> = (0..4).map(|_| hold(&memory, 250)).collect();
        thread::scope(|scope| {
            let waits = scope.spawn(|| Estimate::hold_within(&memory, 250, LONG).is_some());
            // Usually it waits by now. The result is the same if not.
            thread::sleep(Duration::from_millis(20));
            drop(held);
            assert!(waits.join().unwrap());
        });
    }
}
