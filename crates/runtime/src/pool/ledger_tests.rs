//! Explores every reachable state of small pools.

use std::collections::{HashSet, VecDeque};

use super::{Admission, Ledger, Limits, Next, Urgency};

/// A ledger, and the state of the rest of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Model {
    ledger: Ledger,
    /// Workers that are busy or claimed, by urgency.
    busy: [usize; 2],
    /// Threads that are being started, by urgency.
    starting: [usize; 2],
    /// Ordinary threads among them that are being started for a task that was accepted before.
    for_accepted: usize,
    /// Whether a thread could not be started so far. Then tasks may wait although more threads are
    /// allowed.
    has_failed: bool,
    /// Threads that are being started for tasks that would otherwise wait for ever.
    rescuing: usize,
    /// Whether a start for such a task has failed as well.
    has_failed_again: bool,
    /// Whether a task waits although a worker was available for it.
    has_waited: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Admit(Urgency),
    /// A new ordinary task that may wait for a worker to finish.
    AdmitPatiently,
    /// The oldest task in the queue has waited for too long.
    Overdue,
    Started(Urgency),
    SpawnFailed(Urgency),
    StartedForAccepted,
    SpawnFailedForAccepted {
        /// Whether the task that was queued in exchange still waits.
        is_newest_queued: bool,
    },
    Finished(Urgency),
    IdleExpired,
    Close,
    RescueStarted,
    RescueFailed,
}

const URGENCIES: [Urgency; 2] = [Urgency::Ordinary, Urgency::Urgent];

impl Model {
    fn new(limits: Limits) -> Self {
        Self {
            ledger: Ledger::new(limits),
            busy: [0; 2],
            starting: [0; 2],
            for_accepted: 0,
            has_failed: false,
            rescuing: 0,
            has_failed_again: false,
            has_waited: false,
        }
    }

    fn possible_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for urgency in URGENCIES {
            events.push(Event::Admit(urgency));
            let is_ordinary = urgency == Urgency::Ordinary;
            let for_accepted = if is_ordinary { self.for_accepted } else { 0 };
            if self.starting[urgency as usize] > for_accepted {
                events.extend([Event::Started(urgency), Event::SpawnFailed(urgency)]);
            }
            if self.busy[urgency as usize] > 0 {
                events.push(Event::Finished(urgency));
            }
        }
        if self.for_accepted > 0 {
            events.push(Event::StartedForAccepted);
            if self.ledger.queued > 0 {
                events.push(Event::SpawnFailedForAccepted { is_newest_queued: true });
            }
            // Another worker took that task, and a new one took its place, once for each thread.
            if self.ledger.queued < self.queued_max() {
                events.push(Event::SpawnFailedForAccepted { is_newest_queued: false });
            }
        }
        events.push(Event::AdmitPatiently);
        if self.ledger.queued > 0 {
            events.push(Event::Overdue);
        }
        if self.ledger.idle > 0 {
            events.push(Event::IdleExpired);
        }
        if !self.ledger.closed {
            events.push(Event::Close);
        }
        if self.rescuing > 0 {
            events.extend([Event::RescueStarted, Event::RescueFailed]);
        }
        events
    }

    fn after(&self, event: Event) -> Self {
        let mut model = self.clone();
        match event {
            Event::Admit(urgency) => model.admit(urgency),
            Event::AdmitPatiently => model.admit_patiently(),
            Event::Overdue => model.overdue(),
            Event::Started(urgency) => model.started(urgency),
            Event::SpawnFailed(urgency) => model.spawn_failed(urgency),
            Event::StartedForAccepted => {
                model.for_accepted -= 1;
                model.started(Urgency::Ordinary);
            }
            Event::SpawnFailedForAccepted { is_newest_queued } => {
                model.spawn_failed_for_accepted(is_newest_queued);
            }
            Event::Finished(urgency) => model.finished(urgency),
            Event::IdleExpired => model.idle_expired(),
            Event::Close => model.close(),
            Event::RescueStarted => model.rescue_started(),
            Event::RescueFailed => model.rescue_failed(),
        }
        model.has_waited &= model.ledger.queued > 0;
        model
    }

    fn admit(&mut self, urgency: Urgency) {
        let before = self.ledger.clone();
        let admission = self.ledger.admit(urgency, false);
        check_admission(&before, urgency, admission);
        self.note_exchange(before.queued, urgency, admission);
        self.apply(urgency, admission);
    }

    /// Records that the thread is started for the oldest queued task, and the new one waits.
    fn note_exchange(&mut self, queued: usize, urgency: Urgency, admission: Admission) {
        let exchanges = queued > 0 && urgency == Urgency::Ordinary;
        self.for_accepted += usize::from(exchanges && admission == Admission::Spawn);
    }

    /// The most tasks that wait: those that were accepted return to a queue that is full again.
    fn queued_max(&self) -> usize {
        self.ledger.limits.queue_capacity + self.ledger.limits.threads_max
    }

    fn admit_patiently(&mut self) {
        let before = self.ledger.clone();
        let admission = self.ledger.admit(Urgency::Ordinary, true);
        let Ledger { limits, workers, idle, urgent, queued, closed } = before;
        let may_wait = !closed && workers > urgent + idle && queued < limits.queue_capacity;
        assert_eq!(
            admission == Admission::Queue,
            may_wait,
            "a worker will come, and there is room"
        );
        if may_wait {
            assert_eq!(self.ledger.queued, queued + 1);
            self.has_waited = true;
        } else {
            check_admission(&before, Urgency::Ordinary, admission);
        }
        self.note_exchange(queued, Urgency::Ordinary, admission);
        self.apply(Urgency::Ordinary, admission);
    }

    fn overdue(&mut self) {
        let before = self.ledger.clone();
        let admission = self.ledger.overdue();
        assert_eq!(
            admission == Admission::Queue,
            before.is_short(),
            "a worker is woken if one is available"
        );
        if admission != Admission::Queue {
            assert_eq!(self.ledger.queued + 1, before.queued);
            self.for_accepted += usize::from(admission == Admission::Spawn);
            self.apply(Urgency::Ordinary, admission);
        }
    }

    fn started(&mut self, urgency: Urgency) {
        self.starting[urgency as usize] -= 1;
        self.busy[urgency as usize] += 1;
    }

    fn spawn_failed(&mut self, urgency: Urgency) {
        self.starting[urgency as usize] -= 1;
        self.has_failed = true;
        let admission = self.ledger.spawn_failed(urgency);
        assert!(
            !matches!(admission, Admission::Spawn | Admission::Closed),
            "a failed start is not retried"
        );
        self.apply(urgency, admission);
        self.rescuing += usize::from(self.ledger.rescue());
    }

    fn spawn_failed_for_accepted(&mut self, is_newest_queued: bool) {
        self.starting[Urgency::Ordinary as usize] -= 1;
        self.for_accepted -= 1;
        self.has_failed = true;
        let queued = self.ledger.queued;
        let admission = self.ledger.spawn_failed_for_accepted();
        assert!(matches!(admission, Admission::Wake | Admission::Queue), "it was accepted");
        self.apply(Urgency::Ordinary, admission);
        if admission == Admission::Queue {
            assert_eq!(self.ledger.queued, queued + 1);
            let withdraws = is_newest_queued && self.ledger.withdraw();
            assert_eq!(self.ledger.queued, queued + usize::from(!withdraws));
        }
        self.rescuing += usize::from(self.ledger.rescue());
    }

    fn finished(&mut self, urgency: Urgency) {
        self.busy[urgency as usize] -= 1;
        let mut before = self.ledger.clone();
        before.release(urgency);
        let next = self.ledger.finished(urgency);
        if before.queued > 0 {
            let is_of_the_reserve = before.workers - before.urgent > before.limits.threads_max;
            let is_alone = before.workers == before.urgent + 1;
            let takes = !is_of_the_reserve || is_alone;
            assert_eq!(next == Next::TakeQueued, takes, "the reserve is kept: {before:?}");
        }
        match next {
            Next::TakeQueued => self.busy[Urgency::Ordinary as usize] += 1,
            Next::Idle | Next::Retire => {}
        }
    }

    fn idle_expired(&mut self) {
        let before = self.ledger.clone();
        match self.ledger.idle_expired() {
            Some(Next::TakeQueued) => {
                assert_eq!(self.ledger.queued + 1, before.queued);
                self.busy[Urgency::Ordinary as usize] += 1;
            }
            Some(next) => {
                assert_eq!((next, before.queued), (Next::Retire, 0));
                assert!(before.workers > before.limits.threads_min);
            }
            None => assert!(before.workers <= before.limits.threads_min),
        }
    }

    fn close(&mut self) {
        self.busy[Urgency::Ordinary as usize] += self.ledger.close();
        self.rescuing += usize::from(self.ledger.rescue());
    }

    fn rescue_started(&mut self) {
        self.rescuing -= 1;
        self.busy[Urgency::Ordinary as usize] += 1;
    }

    fn rescue_failed(&mut self) {
        self.rescuing -= 1;
        self.has_failed_again = true;
        self.ledger.rescue_failed();
    }

    fn apply(&mut self, urgency: Urgency, admission: Admission) {
        match admission {
            Admission::Wake => self.busy[urgency as usize] += 1,
            Admission::Spawn => self.starting[urgency as usize] += 1,
            Admission::Queue => {
                assert_eq!(urgency, Urgency::Ordinary, "an urgent task never waits");
            }
            Admission::Refuse | Admission::Closed => {}
        }
    }

    fn check(&self) {
        let Ledger { limits, workers, idle, urgent, queued, closed } = self.ledger;
        let [busy, leading] = self.busy;
        let [starting, starting_urgent] = self.starting;
        assert_eq!(
            workers,
            idle + busy + leading + starting + starting_urgent + self.rescuing,
            "every worker is counted once"
        );
        assert_eq!(urgent, leading + starting_urgent);
        assert!(workers <= limits.threads_max + limits.urgent_reserve);
        assert!(queued <= if self.has_failed { self.queued_max() } else { limits.queue_capacity });
        assert!(
            idle == 0 || queued == 0 || self.has_waited,
            "no worker sleeps while a task waits that must not wait"
        );
        let comes_back = busy + starting + self.rescuing > 0;
        assert!(
            queued == 0 || comes_back || self.has_failed_again || self.has_failed,
            "a worker will come for the queued tasks"
        );
        assert!(
            idle == 0 || workers - urgent <= limits.threads_max,
            "a worker of the reserve ends before it goes idle"
        );
        assert!(idle == 0 || !closed, "no worker sleeps in a closed pool");
        if queued > 0 && !self.has_failed && !self.has_waited {
            let is_full = workers - urgent >= limits.threads_max
                || workers >= limits.threads_max + limits.urgent_reserve;
            assert!(is_full, "a task waits only when no thread may be started");
        }
        if queued > 0 && !self.has_failed_again {
            assert!(workers > urgent, "a worker comes for the task");
        }
    }

    /// Ends all tasks. A closed pool must then be empty.
    fn check_end(&self) {
        let mut model = self.clone();
        if !model.ledger.closed {
            model = model.after(Event::Close);
        }
        let is_progress = |event: &Event| {
            matches!(
                event,
                Event::Started(_)
                    | Event::StartedForAccepted
                    | Event::RescueStarted
                    | Event::Finished(_)
            )
        };
        while let Some(event) = model.possible_events().into_iter().find(is_progress) {
            model = model.after(event);
        }
        assert_eq!(model.ledger.workers, 0, "a closed pool ends: {self:?}");
        // A last attempt may have failed after the close, when no worker comes any more.
        let may_strand = self.ledger.closed && self.has_failed_again;
        assert!(
            model.ledger.queued == 0 || may_strand,
            "a closed pool runs all accepted tasks: {self:?}"
        );
    }
}

/// Checks the admission of a task that waits only if no worker is available.
fn check_admission(before: &Ledger, urgency: Urgency, admission: Admission) {
    let Ledger { limits, workers, idle, urgent, queued, closed } = *before;
    let has_reserve = workers < limits.threads_max + limits.urgent_reserve;
    let may_spawn = match urgency {
        Urgency::Ordinary => has_reserve && workers - urgent < limits.threads_max,
        Urgency::Urgent => has_reserve,
    };
    let no_worker_to_be_had = idle == 0 && !may_spawn;
    match admission {
        Admission::Closed => assert!(closed),
        Admission::Wake => assert!(idle > 0),
        Admission::Spawn => assert!(idle == 0 && may_spawn),
        Admission::Queue => assert!(no_worker_to_be_had && workers > urgent),
        Admission::Refuse => {
            let may_not_wait = urgency == Urgency::Urgent || workers == urgent;
            assert!(no_worker_to_be_had && (may_not_wait || queued >= limits.queue_capacity));
        }
    }
}

#[test]
fn every_reachable_state_is_sound() {
    let mut states = 0;
    for threads_max in 1..=3 {
        for threads_min in 0..=threads_max.min(2) {
            for urgent_reserve in 0..=2 {
                for queue_capacity in 0..=2 {
                    states +=
                        walk(Limits { threads_min, threads_max, urgent_reserve, queue_capacity });
                }
            }
        }
    }
    assert!(states > 10_000, "too few states: {states}");
}

fn walk(limits: Limits) -> usize {
    let mut seen = HashSet::from([Model::new(limits)]);
    let mut pending = VecDeque::from([Model::new(limits)]);
    while let Some(model) = pending.pop_front() {
        model.check();
        model.check_end();
        for event in model.possible_events() {
            let next = model.after(event);
            if seen.insert(next.clone()) {
                pending.push_back(next);
            }
        }
    }
    seen.len()
}

#[test]
fn nothing_is_overdue_in_an_empty_queue() {
    let limits = Limits { threads_min: 0, threads_max: 2, urgent_reserve: 0, queue_capacity: 2 };
    let mut ledger = Ledger::new(limits);
    assert_eq!((ledger.overdue(), ledger.workers(), ledger.queued()), (Admission::Queue, 0, 0));
}
