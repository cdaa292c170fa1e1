//! What the lock of a pool guards: the ledger, the idle stack and the queue, kept in step.

use std::collections::VecDeque;

use super::ledger::{Admission, Ledger, Limits};
use super::refused::{Refused, RefusedBecause};
use super::worker::Seat;

/// The ledger and what it counts.
pub(super) struct State<T> {
    pub(super) ledger: Ledger,
    /// Last in, first out: the thread that has run last has the warmest caches, and those at the bottom can expire.
    pub(super) idle: Vec<Seat<T>>,
    pub(super) queue: VecDeque<T>,
    pub(super) threads_peak: usize,
    threads_named: u64,
    pub(super) threads_retired: u64,
}

impl<T> State<T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            ledger: Ledger::new(limits),
            idle: Vec::new(),
            queue: VecDeque::new(),
            threads_peak: 0,
            threads_named: 0,
            threads_retired: 0,
        }
    }

    /// Carries out a decision of the ledger as far as the lock is needed for it.
    pub(super) fn act(&mut self, admission: Admission, task: T) -> Placement<T> {
        match admission {
            Admission::Wake => match self.idle.pop() {
                Some(seat) => Placement::Wake(seat, task),
                None => unreachable!("the ledger counts the idle stack"),
            },
            Admission::Spawn => {
                self.threads_peak = self.threads_peak.max(self.ledger.workers());
                Placement::Spawn(self.next_name(), task)
            }
            Admission::Queue => {
                self.queue.push_back(task);
                Placement::Queued
            }
            Admission::Refuse => Placement::Refused(Refused { task, reason: RefusedBecause::Full }),
            Admission::Closed => Placement::Refused(Refused { task, reason: RefusedBecause::Closed }),
        }
    }

    /// The same for a worker that will be given its task later.
    pub(super) fn claim(&mut self, admission: Admission) -> Claim<T> {
        match admission {
            Admission::Wake => self.idle.pop().map_or(Claim::Nobody, Claim::Idle),
            Admission::Spawn => {
                self.threads_peak = self.threads_peak.max(self.ledger.workers());
                Claim::Spawn(self.next_name())
            }
            Admission::Queue | Admission::Refuse | Admission::Closed => Claim::Nobody,
        }
    }

    pub(super) fn next_name(&mut self) -> u64 {
        self.threads_named += 1;
        self.threads_named
    }

    /// Counts a worker that the ledger has let go. Returns whether it was the last.
    pub(super) fn retired(&mut self) -> bool {
        self.threads_retired += 1;
        self.ledger.workers() == 0
    }
}

/// What is left to do about a task once the lock is free again.
pub(super) enum Placement<T> {
    Wake(Seat<T>, T),
    Spawn(u64, T),
    Queued,
    Refused(Refused<T>),
}

/// The same for a worker that will be given its task later.
pub(super) enum Claim<T> {
    Idle(Seat<T>),
    Spawn(u64),
    Nobody,
}
