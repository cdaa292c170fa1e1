//! What the lock of a pool guards: the ledger, the idle stack and the queue, kept in step.

use std::collections::VecDeque;

use super::ledger::{Admission, Ledger, Limits, Urgency};
use super::patience::Patience;
use super::refused::{Refused, RefusedBecause};
use super::worker::Seat;

/// The ledger and what it counts.
pub(super) struct State<T> {
    pub(super) ledger: Ledger,
    /// Last in, first out: the thread that has run last has the warmest caches, and those at the
    /// bottom can expire.
    pub(super) idle: Vec<Seat<T>>,
    pub(super) queue: VecDeque<Queued<T>>,
    pub(super) patience: Patience,
    pub(super) threads_peak: usize,
    /// Whether the system did not let the last thread be started.
    pub(super) cannot_spawn: bool,
    threads_named: u64,
    pub(super) threads_retired: u64,
}

impl<T> State<T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            ledger: Ledger::new(limits),
            idle: Vec::new(),
            queue: VecDeque::new(),
            patience: Patience::new(),
            threads_peak: 0,
            cannot_spawn: false,
            threads_named: 0,
            threads_retired: 0,
        }
    }

    /// Carries out a decision of the ledger as far as the lock is needed for it.
    pub(super) fn act(
        &mut self,
        admission: Admission,
        task: T,
        urgency: Urgency,
        now: u64,
    ) -> Placement<T> {
        let task = match (admission, urgency) {
            (Admission::Wake | Admission::Spawn, Urgency::Ordinary) => self.oldest_of(task, now),
            // What is urgent does not wait behind others, and its worker is not theirs.
            _ => task,
        };
        self.act_at_once(admission, task, now)
    }

    /// The same for a task that is the oldest of all.
    fn act_at_once(&mut self, admission: Admission, task: T, now: u64) -> Placement<T> {
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
                self.queue.push_back(Queued { task, at: now });
                Placement::Queued
            }
            Admission::Refuse => Placement::Refused(Refused { task, reason: RefusedBecause::Full }),
            Admission::Closed => {
                Placement::Refused(Refused { task, reason: RefusedBecause::Closed })
            }
        }
    }

    /// Whether there is no worker to be had for one more task.
    pub(super) fn is_short(&self) -> bool {
        self.ledger.is_short() || (self.cannot_spawn && self.ledger.idle() == 0)
    }

    /// The task that has waited longest, in exchange for a new one that waits behind the others.
    fn oldest_of(&mut self, task: T, now: u64) -> T {
        match self.queue.pop_front() {
            Some(oldest) => {
                self.queue.push_back(Queued { task, at: now });
                oldest.task
            }
            None => task,
        }
    }

    /// Takes the oldest task out of the queue for another worker if it has waited for too long.
    pub(super) fn take_late(&mut self, now: u64) -> Late<T> {
        let Some(oldest) = self.queue.front() else { return Late::Nothing };
        if self.is_short() {
            return Late::Nothing;
        }
        if let Some(left) = self.patience.left(now, oldest.at) {
            return Late::In(left);
        }
        let Some(oldest) = self.queue.pop_front() else { return Late::Nothing };
        let admission = self.ledger.overdue();
        Late::Now(self.act_at_once(admission, oldest.task, now))
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

    /// Whether a worker is to be started for tasks that nobody else would come for; see
    /// [`Ledger::rescue`].
    ///
    /// In the critical section of what made it necessary, or
    /// [`Shared::join`](super::shared::Shared::join) would see a pool without workers.
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

/// A task that waits, and since when.
pub(super) struct Queued<T> {
    pub(super) task: T,
    pub(super) at: u64,
}

/// Whether the oldest task that waits has waited for too long.
pub(super) enum Late<T> {
    /// Nothing waits, or nobody could be woken.
    Nothing,
    /// In so many nanoseconds.
    In(u64),
    Now(Placement<T>),
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
