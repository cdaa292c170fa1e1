//! The state under the lock of a pool: the ledger, the idle stack and the queue, kept consistent.

use std::collections::VecDeque;

use super::ledger::{Admission, Ledger, Limits, Urgency};
use super::patience::Patience;
use super::refused::{Refused, RefusedBecause};
use super::worker::WorkerHandle;

/// The ledger and the things that it counts.
pub(super) struct State<T> {
    pub(super) ledger: Ledger,
    /// Last in, first out: the last active thread has the warmest caches, and those at the bottom
    /// can expire.
    pub(super) idle: Vec<WorkerHandle<T>>,
    pub(super) queue: VecDeque<Queued<T>>,
    pub(super) patience: Patience,
    /// How many tasks were queued so far.
    places: u64,
    pub(super) threads_peak: usize,
    /// Whether the system refused to start the last thread.
    pub(super) cannot_spawn: bool,
    threads_numbered: u64,
    pub(super) threads_retired: u64,
}

impl<T> State<T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            ledger: Ledger::new(limits),
            idle: Vec::new(),
            queue: VecDeque::new(),
            patience: Patience::new(),
            places: 0,
            threads_peak: 0,
            cannot_spawn: false,
            threads_numbered: 0,
            threads_retired: 0,
        }
    }

    /// Executes a decision of the ledger as far as it needs the lock.
    pub(super) fn apply(
        &mut self,
        admission: Admission,
        task: T,
        urgency: Urgency,
        now: u64,
    ) -> Placement<T> {
        let (task, accepted) = match (admission, urgency) {
            (Admission::Wake | Admission::Spawn, Urgency::Ordinary) => {
                self.swap_for_oldest(task, now)
            }
            // An urgent task does not wait behind others, and its worker takes no other task first.
            _ => (task, None),
        };
        self.apply_to_oldest(admission, task, accepted, now)
    }

    /// As `apply`, for a task that is the oldest of all.
    fn apply_to_oldest(
        &mut self,
        admission: Admission,
        task: T,
        accepted: Option<Accepted>,
        now: u64,
    ) -> Placement<T> {
        match admission {
            Admission::Wake => match self.idle.pop() {
                Some(worker) => Placement::Wake(worker, task),
                None => unreachable!("the ledger counts the idle stack"),
            },
            Admission::Spawn => {
                self.threads_peak = self.threads_peak.max(self.ledger.workers());
                Placement::Spawn(self.next_number(), task, accepted)
            }
            Admission::Queue => {
                self.enqueue(task, now);
                Placement::Queued
            }
            Admission::Refuse => Placement::Refused(Refused { task, reason: RefusedBecause::Full }),
            Admission::Closed => {
                Placement::Refused(Refused { task, reason: RefusedBecause::Closed })
            }
        }
    }

    /// Returns whether no worker is available for one more task.
    pub(super) fn is_short(&self) -> bool {
        self.ledger.is_short() || (self.cannot_spawn && self.ledger.idle() == 0)
    }

    /// Decides again about a task whose worker could not be started.
    pub(super) fn spawn_failed(
        &mut self,
        task: T,
        accepted: Option<Accepted>,
        urgency: Urgency,
        now: u64,
    ) -> Placement<T> {
        self.cannot_spawn = true;
        let Some(Accepted { at, place, newest }) = accepted else {
            let admission = self.ledger.spawn_failed(urgency);
            return self.apply(admission, task, urgency, now);
        };
        if self.ledger.spawn_failed_for_accepted() == Admission::Wake {
            return self.apply_to_oldest(Admission::Wake, task, None, now);
        }
        self.queue.push_front(Queued { task, at, place });
        // The caller gets its own task back, unless another worker has taken it meanwhile.
        let own = self.queue.iter().rposition(|queued| Some(queued.place) == newest);
        match own.filter(|_| self.ledger.withdraw()).and_then(|own| self.queue.remove(own)) {
            Some(Queued { task, .. }) => {
                Placement::Refused(Refused { task, reason: RefusedBecause::Full })
            }
            None => Placement::Queued,
        }
    }

    /// Returns the task that has waited longest. Queues the new one behind the others.
    fn swap_for_oldest(&mut self, task: T, now: u64) -> (T, Option<Accepted>) {
        match self.queue.pop_front() {
            Some(Queued { task: oldest, at, place }) => {
                let newest = Some(self.enqueue(task, now));
                (oldest, Some(Accepted { at, place, newest }))
            }
            None => (task, None),
        }
    }

    /// Appends a task to the queue. Returns its place.
    fn enqueue(&mut self, task: T, now: u64) -> u64 {
        self.places += 1;
        self.queue.push_back(Queued { task, at: now, place: self.places });
        self.places
    }

    /// Removes the oldest task from the queue for another worker if it has waited for too long.
    pub(super) fn take_overdue(&mut self, now: u64) -> Overdue<T> {
        let Some(oldest) = self.queue.front() else { return Overdue::Nothing };
        if self.is_short() {
            return Overdue::Nothing;
        }
        if let Some(left) = self.patience.left(now, oldest.at) {
            return Overdue::In(left);
        }
        let Some(Queued { task, at, place }) = self.queue.pop_front() else {
            return Overdue::Nothing;
        };
        let admission = self.ledger.overdue();
        let accepted = Some(Accepted { at, place, newest: None });
        Overdue::Now(self.apply_to_oldest(admission, task, accepted, now))
    }

    /// As `apply`, for a worker that gets its task later.
    pub(super) fn claim(&mut self, admission: Admission) -> Claim<T> {
        match admission {
            Admission::Wake => self.idle.pop().map_or(Claim::Unavailable, Claim::Idle),
            Admission::Spawn => {
                self.threads_peak = self.threads_peak.max(self.ledger.workers());
                Claim::Spawn(self.next_number())
            }
            Admission::Queue | Admission::Refuse | Admission::Closed => Claim::Unavailable,
        }
    }

    /// Returns whether a worker must be started for tasks for which no other worker would come; see
    /// [`Ledger::rescue`].
    ///
    /// Must be called in the critical section that made it necessary. Otherwise
    /// [`Shared::join`](super::shared::Shared::join) would see a pool without workers.
    pub(super) fn rescue(&mut self) -> Rescue {
        if self.ledger.rescue() {
            return Rescue::Spawn(self.next_number());
        }
        Rescue::NotNeeded { is_empty: self.ledger.workers() == 0 }
    }

    /// Records that the worker could not be started. Returns whether it was the last one.
    pub(super) fn rescue_failed(&mut self) -> bool {
        self.ledger.rescue_failed();
        self.ledger.workers() == 0
    }

    /// Returns whether the counts of the ledger are right.
    pub(super) fn is_consistent(&self) -> bool {
        self.ledger.idle() == self.idle.len() && self.ledger.queued() == self.queue.len()
    }

    fn next_number(&mut self) -> u64 {
        self.threads_numbered += 1;
        self.threads_numbered
    }

    /// Counts a worker that has retired. Returns whether it was the last one.
    pub(super) fn retired(&mut self) -> bool {
        self.threads_retired += 1;
        self.ledger.workers() == 0
    }
}

/// A waiting task, and since when it waits.
pub(super) struct Queued<T> {
    pub(super) task: T,
    pub(super) at: u64,
    /// How many tasks had been queued when it was.
    place: u64,
}

/// What is known of a task that has waited, and for which a worker is started.
#[derive(Clone, Copy)]
pub(super) struct Accepted {
    at: u64,
    place: u64,
    /// The place of the task that was queued in exchange.
    newest: Option<u64>,
}

/// Whether the oldest task has waited for a busy worker for too long.
pub(super) enum Overdue<T> {
    /// No task waits, or no worker is available.
    Nothing,
    /// It will be overdue in this many nanoseconds.
    In(u64),
    Now(Placement<T>),
}

/// The rest of a decision, for after the lock is released.
pub(super) enum Placement<T> {
    Wake(WorkerHandle<T>, T),
    /// The number of the worker, its task, and what is known of that if it has waited.
    Spawn(u64, T, Option<Accepted>),
    Queued,
    Refused(Refused<T>),
}

/// As [`Placement`], for a worker that gets its task later.
pub(super) enum Claim<T> {
    Idle(WorkerHandle<T>),
    Spawn(u64),
    Unavailable,
}

/// Whether tasks wait for which no worker would come.
#[derive(Clone, Copy)]
pub(super) enum Rescue {
    /// A worker must be started. This is the number for its name. It is already counted.
    Spawn(u64),
    NotNeeded {
        /// Whether the pool has no worker.
        is_empty: bool,
    },
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn state(threads_max: usize) -> State<u32> {
        let (threads_min, urgent_reserve, queue_capacity) = (0, 1, 10);
        State::new(Limits { threads_min, threads_max, urgent_reserve, queue_capacity })
    }

    fn place(
        state: &mut State<u32>,
        task: u32,
        urgency: Urgency,
        can_wait: bool,
    ) -> Placement<u32> {
        let admission = state.ledger.admit(urgency, can_wait);
        state.apply(admission, task, urgency, 0)
    }

    #[test]
    fn a_thread_that_is_started_for_a_task_gets_the_one_that_has_waited_for_longest() {
        let mut state = state(2);
        let first = place(&mut state, 1, Urgency::Ordinary, true);
        assert!(matches!(first, Placement::Spawn(1, 1, None)));
        assert!(matches!(place(&mut state, 2, Urgency::Ordinary, true), Placement::Queued));
        assert!(matches!(place(&mut state, 5, Urgency::Ordinary, true), Placement::Queued));
        let third = place(&mut state, 3, Urgency::Ordinary, false);
        assert!(matches!(third, Placement::Spawn(2, 2, Some(_))));
        assert!(state.queue.iter().map(|queued| queued.task).eq([5, 3]));
        let urgent = place(&mut state, 4, Urgency::Urgent, false);
        assert!(matches!(urgent, Placement::Spawn(3, 4, None)), "an urgent task does not wait");
    }

    /// A task that was accepted stays, and the one of the caller is given back.
    #[test]
    fn a_caller_whose_thread_cannot_be_started_gets_its_own_task_back() {
        let is_queued = |state: &State<u32>, tasks: &[u32]| {
            assert!(state.is_consistent());
            assert!(state.queue.iter().map(|queued| queued.task).eq(tasks.iter().copied()));
        };
        let mut state = state(2);
        let first = place(&mut state, 1, Urgency::Ordinary, true);
        assert!(matches!(first, Placement::Spawn(1, 1, None)));
        assert!(matches!(place(&mut state, 2, Urgency::Ordinary, true), Placement::Queued));
        let Placement::Spawn(2, 2, accepted) = place(&mut state, 3, Urgency::Ordinary, false)
        else {
            panic!("a thread is started for the oldest task");
        };
        is_queued(&state, &[3]);
        // The start of the first one fails, and its task waits for the second thread.
        let placement = state.spawn_failed(1, None, Urgency::Ordinary, 0);
        assert!(matches!(placement, Placement::Queued));
        is_queued(&state, &[3, 1]);
        // Then no thread is left that would come.
        let placement = state.spawn_failed(2, accepted, Urgency::Ordinary, 0);
        assert!(matches!(placement, Placement::Refused(Refused { task: 3, .. })));
        is_queued(&state, &[2, 1]);
    }

    #[test]
    fn an_overdue_task_whose_thread_cannot_be_started_keeps_its_place_in_a_full_queue() {
        let mut state = state(2);
        place(&mut state, 0, Urgency::Ordinary, true);
        for task in 1..=10 {
            assert!(matches!(place(&mut state, task, Urgency::Ordinary, true), Placement::Queued));
        }
        let Overdue::Now(Placement::Spawn(2, 1, accepted)) = state.take_overdue(3_600_000_000_000)
        else {
            panic!("a thread is started for the oldest task");
        };
        assert!(matches!(place(&mut state, 11, Urgency::Ordinary, true), Placement::Queued));
        let placement = state.spawn_failed(1, accepted, Urgency::Ordinary, 0);
        assert!(matches!(placement, Placement::Queued) && state.is_consistent());
        assert!(state.queue.iter().map(|queued| queued.task).eq(1..=11));
    }

    #[test]
    fn a_task_is_overdue_only_while_a_thread_may_be_started_for_it() {
        for (threads_max, is_short) in [(1, true), (2, false)] {
            let mut state = state(threads_max);
            place(&mut state, 1, Urgency::Ordinary, true);
            assert!(matches!(place(&mut state, 2, Urgency::Ordinary, true), Placement::Queued));
            assert!(is_short || matches!(state.take_overdue(0), Overdue::In(1..)));
            let hour = 3_600_000_000_000;
            match state.take_overdue(hour) {
                Overdue::Nothing => assert!(is_short),
                Overdue::Now(placement) => {
                    assert!(!is_short && matches!(placement, Placement::Spawn(2, 2, Some(_))));
                }
                Overdue::In(left) => panic!("{left} ns are left"),
            }
        }
    }
}
