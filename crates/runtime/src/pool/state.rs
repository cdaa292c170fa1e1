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

    /// Whether a worker is to be started for tasks that nobody else would come for; see [`Ledger::rescue`].
    ///
    /// In the critical section of what made it necessary, or [`Shared::join`](super::shared::Shared::join) would see a pool
    /// without workers.
    pub(super) fn rescue(&mut self) -> Rescue {
        if self.ledger.rescue() {
            return Rescue::Spawn(self.next_name());
        }
        Rescue::NotNeeded { is_empty: self.ledger.workers() == 0 }
    }

    /// Returns whether it was the last.
    pub(super) fn rescue_failed(&mut self) -> bool {
        self.ledger.rescue_failed();
        self.ledger.workers() == 0
    }

    /// Whether the ledger counts what there is.
    pub(super) fn is_in_step(&self) -> bool {
        self.ledger.idle() == self.idle.len() && self.ledger.queued() == self.queue.len()
    }

    fn next_name(&mut self) -> u64 {
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

/// Whether tasks wait that nobody would come for.
#[derive(Clone, Copy)]
pub(super) enum Rescue {
    /// A worker to be started, by the number in its name. It is counted already.
    Spawn(u64),
    NotNeeded {
        /// Whether the pool has no worker at all.
        is_empty: bool,
    },
}
