//! Decides what happens to a task and to a worker.
//!
//! It takes counts and returns decisions. It has no thread, no lock and no clock, so that tests can
//! walk every path. Every count is changed here, at the moment of the decision and by the thread
//! that decides, not later by the thread that is affected.

/// The limits of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Limits {
    pub(super) threads_min: usize,
    pub(super) threads_max: usize,
    pub(super) urgent_reserve: usize,
    pub(super) queue_capacity: usize,
}

/// Whether a task may use the reserve and must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Urgency {
    Ordinary,
    /// The task leads an event loop. It never waits, and may never end.
    Urgent,
}

/// The decision about a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Pass it to the worker on top of the idle stack.
    Wake,
    /// Start a worker for it.
    Spawn,
    /// Append it to the queue.
    Queue,
    /// Return it: there is no worker and no room.
    Refuse,
    /// Return it: the pool is closed.
    Closed,
}

/// What a worker without a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run the oldest task of the queue.
    TakeQueued,
    /// Go to the idle stack.
    Idle,
    /// End. The worker is no longer counted.
    Retire,
}

/// The counts of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    limits: Limits,
    /// All workers: idle, busy, reserved, and those that are about to be started.
    workers: usize,
    /// The workers on the idle stack that are not claimed.
    idle: usize,
    /// The workers that were claimed for an urgent task. They may be busy for a long time.
    urgent: usize,
    queued: usize,
    closed: bool,
}

impl Ledger {
    pub(super) const fn new(limits: Limits) -> Self {
        Self { limits, workers: 0, idle: 0, urgent: 0, queued: 0, closed: false }
    }

    pub(super) const fn workers(&self) -> usize {
        self.workers
    }

    pub(super) const fn idle(&self) -> usize {
        self.idle
    }

    pub(super) const fn queued(&self) -> usize {
        self.queued
    }

    /// Decides about a new task. A task with `can_wait` waits for a busy worker, if there is one,
    /// although another one is idle or could be started.
    pub(super) fn admit(&mut self, urgency: Urgency, can_wait: bool) -> Admission {
        if self.closed {
            return Admission::Closed;
        }
        let waits_for_busy =
            urgency == Urgency::Ordinary && can_wait && self.workers > self.urgent + self.idle;
        if waits_for_busy && self.queued < self.limits.queue_capacity {
            self.queued += 1;
            return Admission::Queue;
        }
        if self.idle > 0 {
            self.claim_idle(urgency);
            return Admission::Wake;
        }
        if self.may_spawn(urgency) {
            self.workers += 1;
            self.claim(urgency);
            return Admission::Spawn;
        }
        self.queue_or_refuse(urgency)
    }

    /// Decides again about a task whose worker could not be started.
    ///
    /// Also valid after the pool was closed, because the task was admitted before.
    pub(super) fn spawn_failed(&mut self, urgency: Urgency) -> Admission {
        self.workers -= 1;
        self.release(urgency);
        if self.idle > 0 {
            self.claim_idle(urgency);
            return Admission::Wake;
        }
        self.queue_or_refuse(urgency)
    }

    /// Decides again about a task whose worker could not be started, and that was accepted before
    /// that worker was to be started. It is never refused: it returns to the head of the queue,
    /// whose capacity is for new tasks.
    pub(super) fn spawn_failed_for_accepted(&mut self) -> Admission {
        self.workers -= 1;
        if self.idle > 0 {
            self.claim_idle(Urgency::Ordinary);
            return Admission::Wake;
        }
        self.queued += 1;
        Admission::Queue
    }

    /// Decides whether a task is returned that was queued because a worker was to be started, after
    /// that failed. If so, it is no longer queued.
    pub(super) fn withdraw(&mut self) -> bool {
        let withdraws = self.queued > self.limits.queue_capacity || !self.has_returning_worker();
        if withdraws {
            self.queued -= 1;
        }
        withdraws
    }

    /// Decides about a worker that has ended a task, or that was woken without a task.
    pub(super) fn finished(&mut self, urgency: Urgency) -> Next {
        self.release(urgency);
        // A worker of the reserve ends before it takes an ordinary task. Otherwise a full queue
        // would use up the reserve, and the next event loop would find no thread. The exception is
        // a worker without which no worker would ever check the queue.
        let is_surplus = self.ordinary() > self.limits.threads_max;
        let others_check_queue = self.workers - 1 > self.urgent;
        if self.queued > 0 && !(is_surplus && others_check_queue) {
            self.queued -= 1;
            return Next::TakeQueued;
        }
        if is_surplus || self.closed {
            self.workers -= 1;
            return Next::Retire;
        }
        self.idle += 1;
        Next::Idle
    }

    /// Decides about the oldest queued task, which has waited for too long. After `Wake` or `Spawn`
    /// it is no longer queued. `Queue` means that nothing can be done.
    pub(super) fn overdue(&mut self) -> Admission {
        if self.queued == 0 || self.is_short() {
            return Admission::Queue;
        }
        self.queued -= 1;
        if self.idle > 0 {
            self.claim_idle(Urgency::Ordinary);
            return Admission::Wake;
        }
        self.workers += 1;
        Admission::Spawn
    }

    /// Returns whether no worker is available for an ordinary task.
    pub(super) const fn is_short(&self) -> bool {
        self.idle == 0 && !self.may_spawn(Urgency::Ordinary)
    }

    /// Returns whether a worker that goes idle now should wake up by itself to retire.
    ///
    /// At most `threads_min` workers ever get `false`, because each of them was counted at that
    /// moment. So if there are more workers, one that got `true` is idle or busy, and the pool
    /// shrinks.
    pub(super) const fn may_expire(&self) -> bool {
        self.workers > self.limits.threads_min
    }

    /// Decides about a worker that is still on the idle stack after its timeout. Returns `None` if
    /// it stays there.
    pub(super) fn idle_expired(&mut self) -> Option<Next> {
        if self.queued > 0 {
            self.idle -= 1;
            self.queued -= 1;
            return Some(Next::TakeQueued);
        }
        if !self.may_expire() {
            return None;
        }
        self.idle -= 1;
        self.workers -= 1;
        Some(Next::Retire)
    }

    /// Closes the pool. All idle workers are claimed and must be woken. Returns how many.
    pub(super) fn close(&mut self) -> usize {
        self.closed = true;
        std::mem::take(&mut self.idle)
    }

    /// Returns whether tasks wait for which no worker will come, and a worker may be started. If
    /// so, that worker is counted.
    ///
    /// Called after a start has failed: the queue may have accepted tasks because that worker was
    /// about to start.
    pub(super) fn rescue(&mut self) -> bool {
        let rescues =
            self.queued > 0 && !self.has_returning_worker() && self.may_spawn(Urgency::Urgent);
        if rescues {
            self.workers += 1;
        }
        rescues
    }

    /// Records that the worker of a [`Ledger::rescue`] could not be started.
    pub(super) fn rescue_failed(&mut self) {
        self.workers -= 1;
    }

    fn queue_or_refuse(&mut self, urgency: Urgency) -> Admission {
        let has_room = self.queued < self.limits.queue_capacity;
        if urgency == Urgency::Ordinary && has_room && self.has_returning_worker() {
            self.queued += 1;
            return Admission::Queue;
        }
        Admission::Refuse
    }

    /// Returns whether a worker exists that will check the queue. A worker that leads an event loop
    /// may never do so.
    const fn has_returning_worker(&self) -> bool {
        self.workers > self.urgent
    }

    /// Returns whether one more worker may be started. Workers with urgent tasks do not count
    /// toward `threads_max`: a pool that leads all event loops still has all its threads for tasks.
    const fn may_spawn(&self, urgency: Urgency) -> bool {
        let has_room =
            self.workers < self.limits.threads_max.saturating_add(self.limits.urgent_reserve);
        match urgency {
            Urgency::Ordinary => has_room && self.ordinary() < self.limits.threads_max,
            Urgency::Urgent => has_room,
        }
    }

    /// Returns the number of workers that are idle or have an ordinary task.
    const fn ordinary(&self) -> usize {
        self.workers - self.urgent
    }

    // The thread that wakes a worker changes the count. If the woken worker did so, it would look
    // idle until it runs, and a second task would be assigned to it.
    fn claim_idle(&mut self, urgency: Urgency) {
        self.idle -= 1;
        self.claim(urgency);
    }

    fn claim(&mut self, urgency: Urgency) {
        if urgency == Urgency::Urgent {
            self.urgent += 1;
        }
    }

    fn release(&mut self, urgency: Urgency) {
        if urgency == Urgency::Urgent {
            self.urgent -= 1;
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
