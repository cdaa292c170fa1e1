//! Decides what becomes of a task and of a worker.
//!
//! Counts in, decision out: no thread, no lock, no clock, so that the tests can walk every path.
//! Every count is changed here, at the moment of the decision and by the thread that decides, not
//! later by the thread that it is about.

/// The bounds within which the ledger decides.
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
    /// Leads an event loop: never waits, and may never come to an end.
    Urgent,
}

/// What becomes of one more task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Hand it to the worker on top of the idle stack.
    Wake,
    /// Start a worker for it.
    Spawn,
    /// Put it at the end of the queue.
    Queue,
    /// Give it back: no worker, no room.
    Refuse,
    /// Give it back: the pool is closed.
    Closed,
}

/// What a worker without a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run the oldest task of the queue.
    TakeQueued,
    /// Lie down on the idle stack.
    Idle,
    /// End; it is no longer counted.
    Retire,
}

/// The counts of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    limits: Limits,
    /// All workers: idle, at work, reserved, and those about to be started.
    workers: usize,
    /// Those on the idle stack that nobody has claimed.
    idle: usize,
    /// Those claimed for something urgent; they may not come back for a long time.
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

    /// Decides about one more task. One that can wait does so if a worker will come for it.
    pub(super) fn admit(&mut self, urgency: Urgency, can_wait: bool) -> Admission {
        if self.closed {
            return Admission::Closed;
        }
        let is_expected =
            urgency == Urgency::Ordinary && can_wait && self.workers > self.urgent + self.idle;
        if is_expected && self.queued < self.limits.queue_capacity {
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
    /// Also right after the pool was closed: the task was admitted before.
    pub(super) fn spawn_failed(&mut self, urgency: Urgency) -> Admission {
        self.workers -= 1;
        self.release(urgency);
        if self.idle > 0 {
            self.claim_idle(urgency);
            return Admission::Wake;
        }
        self.queue_or_refuse(urgency)
    }

    /// Decides what a worker does that has ended a task, or that was woken for nothing.
    pub(super) fn finished(&mut self, urgency: Urgency) -> Next {
        self.release(urgency);
        // A worker from the reserve leaves before it takes ordinary work: otherwise a full queue
        // would eat the reserve, and the next event loop would find no thread. Unless nobody else
        // would ever come to look at the queue.
        let is_surplus = self.ordinary() > self.limits.threads_max;
        let others_return = self.workers - 1 > self.urgent;
        if self.queued > 0 && !(is_surplus && others_return) {
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

    /// Decides about the oldest task in the queue, which has waited for too long: `Wake` or
    /// `Spawn`, and then it is no longer queued; `Queue` if there is nothing to be done.
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

    /// Whether there is no worker to be had for an ordinary task.
    pub(super) const fn is_short(&self) -> bool {
        self.idle == 0 && !self.may_spawn(Urgency::Ordinary)
    }

    /// Whether a worker that lies down now should wake up by itself to retire.
    ///
    /// At most `threads_min` workers ever hear "no", because each of them was counted when it did.
    /// So whenever there are more, one of those who heard "yes" is idle or at work, and the pool
    /// shrinks.
    pub(super) const fn may_expire(&self) -> bool {
        self.workers > self.limits.threads_min
    }

    /// What a worker does that is still on the idle stack after its time. `None` if it stays there.
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

    /// Admits nothing from now on. All idle workers are claimed and are to be woken; returns how
    /// many.
    pub(super) fn close(&mut self) -> usize {
        self.closed = true;
        std::mem::take(&mut self.idle)
    }

    /// Whether tasks wait that no worker will come for, and one may be started; if so it is
    /// counted.
    ///
    /// Asked after a start has failed: the queue may have taken tasks because that worker was on
    /// its way.
    pub(super) fn rescue(&mut self) -> bool {
        let rescues = self.queued > 0 && !self.someone_returns() && self.may_spawn(Urgency::Urgent);
        if rescues {
            self.workers += 1;
        }
        rescues
    }

    /// The worker of a [`Ledger::rescue`] could not be started.
    pub(super) fn rescue_failed(&mut self) {
        self.workers -= 1;
    }

    fn queue_or_refuse(&mut self, urgency: Urgency) -> Admission {
        let has_room = self.queued < self.limits.queue_capacity;
        if urgency == Urgency::Ordinary && has_room && self.someone_returns() {
            self.queued += 1;
            return Admission::Queue;
        }
        Admission::Refuse
    }

    /// Whether a worker exists that will look at the queue. One that leads an event loop may never
    /// do.
    const fn someone_returns(&self) -> bool {
        self.workers > self.urgent
    }

    /// Whether one more worker may be started. Those that do something urgent come on top of
    /// `threads_max`: a pool whose every event loop is led still has all its threads for tasks.
    const fn may_spawn(&self, urgency: Urgency) -> bool {
        let has_reserve =
            self.workers < self.limits.threads_max.saturating_add(self.limits.urgent_reserve);
        match urgency {
            Urgency::Ordinary => has_reserve && self.ordinary() < self.limits.threads_max,
            Urgency::Urgent => has_reserve,
        }
    }

    /// Workers that are idle, or do nothing urgent.
    const fn ordinary(&self) -> usize {
        self.workers - self.urgent
    }

    // Counted down by the thread that wakes, not by the one that wakes up: until the woken worker
    // runs it would still look idle, and a second task would be promised to it.
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
