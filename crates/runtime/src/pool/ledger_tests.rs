//! Walks every state that small pools can reach.

use std::collections::{HashSet, VecDeque};

use super::{Admission, Ledger, Limits, Next, Urgency};

/// A ledger, and what the rest of the pool would be doing meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    ledger: Ledger,
    /// Workers at work, or claimed, by urgency.
    busy: [usize; 2],
    /// Threads that are being started, by urgency.
    starting: [usize; 2],
    /// Whether a thread could not be started so far: then tasks may wait although threads are
    /// missing.
    has_failed: bool,
    /// Threads that are being started for tasks that would wait for ever.
    rescuing: usize,
    /// Whether even such a start has failed.
    has_failed_again: bool,
    /// Whether a task waits though a worker could have been had for it.
    has_waited: bool,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Admit(Urgency),
    /// An ordinary task that can wait for a worker that comes back.
    AdmitPatiently,
    /// The oldest task in the queue has waited for too long.
    Overdue,
    Started(Urgency),
    SpawnFailed(Urgency),
    Finished(Urgency),
    IdleExpired,
    Close,
    RescueStarted,
    RescueFailed,
}

const URGENCIES: [Urgency; 2] = [Urgency::Ordinary, Urgency::Urgent];

impl World {
    fn new(limits: Limits) -> Self {
        Self {
            ledger: Ledger::new(limits),
            busy: [0; 2],
            starting: [0; 2],
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
            if self.starting[urgency as usize] > 0 {
                events.extend([Event::Started(urgency), Event::SpawnFailed(urgency)]);
            }
            if self.busy[urgency as usize] > 0 {
                events.push(Event::Finished(urgency));
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
        let mut world = self.clone();
        match event {
            Event::Admit(urgency) => {
                let admission = world.ledger.admit(urgency, false);
                self.check_admission(urgency, admission);
                world.apply(urgency, admission);
            }
            Event::AdmitPatiently => {
                let admission = world.ledger.admit(Urgency::Ordinary, true);
                if admission == Admission::Queue {
                    assert!(
                        self.ledger.workers > self.ledger.urgent + self.ledger.idle,
                        "one will come"
                    );
                } else {
                    self.check_admission(Urgency::Ordinary, admission);
                }
                world.has_waited |= admission == Admission::Queue;
                world.apply(Urgency::Ordinary, admission);
            }
            Event::Overdue => {
                let admission = world.ledger.overdue();
                assert_eq!(
                    admission == Admission::Queue,
                    self.ledger.is_short(),
                    "help comes if there is any"
                );
                if admission != Admission::Queue {
                    assert_eq!(world.ledger.queued + 1, self.ledger.queued);
                    world.apply(Urgency::Ordinary, admission);
                }
            }
            Event::Started(urgency) => {
                world.starting[urgency as usize] -= 1;
                world.busy[urgency as usize] += 1;
            }
            Event::SpawnFailed(urgency) => {
                world.starting[urgency as usize] -= 1;
                world.has_failed = true;
                let admission = world.ledger.spawn_failed(urgency);
                assert!(
                    !matches!(admission, Admission::Spawn | Admission::Closed),
                    "not tried again"
                );
                world.apply(urgency, admission);
                world.rescuing += usize::from(world.ledger.rescue());
            }
            Event::Finished(urgency) => {
                world.busy[urgency as usize] -= 1;
                match world.ledger.finished(urgency) {
                    Next::TakeQueued => world.busy[Urgency::Ordinary as usize] += 1,
                    Next::Idle | Next::Retire => {}
                }
            }
            Event::IdleExpired => match world.ledger.idle_expired() {
                Some(Next::TakeQueued) => world.busy[Urgency::Ordinary as usize] += 1,
                Some(next) => {
                    assert_eq!(next, Next::Retire);
                    assert!(self.ledger.workers > self.ledger.limits.threads_min);
                }
                None => assert!(self.ledger.workers <= self.ledger.limits.threads_min),
            },
            Event::Close => {
                world.busy[Urgency::Ordinary as usize] += world.ledger.close();
                world.rescuing += usize::from(world.ledger.rescue());
            }
            Event::RescueStarted => {
                world.rescuing -= 1;
                world.busy[Urgency::Ordinary as usize] += 1;
            }
            Event::RescueFailed => {
                world.rescuing -= 1;
                world.has_failed_again = true;
                world.ledger.rescue_failed();
            }
        }
        world.has_waited &= world.ledger.queued > 0;
        world
    }

    fn apply(&mut self, urgency: Urgency, admission: Admission) {
        match admission {
            Admission::Wake => self.busy[urgency as usize] += 1,
            Admission::Spawn => self.starting[urgency as usize] += 1,
            Admission::Queue => assert_eq!(urgency, Urgency::Ordinary, "nothing urgent waits"),
            Admission::Refuse | Admission::Closed => {}
        }
    }

    fn check_admission(&self, urgency: Urgency, admission: Admission) {
        let Ledger { limits, workers, idle, urgent, queued, closed } = self.ledger;
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
                assert!(no_worker_to_be_had && (may_not_wait || queued == limits.queue_capacity));
            }
        }
    }

    fn check(&self) {
        let Ledger { limits, workers, idle, urgent, queued, closed } = self.ledger;
        let [busy, leading] = self.busy;
        let [starting, starting_urgent] = self.starting;
        assert_eq!(
            workers,
            idle + busy + leading + starting + starting_urgent + self.rescuing,
            "everybody is counted once"
        );
        assert_eq!(urgent, leading + starting_urgent);
        assert!(workers <= limits.threads_max + limits.urgent_reserve);
        assert!(queued <= limits.queue_capacity);
        assert!(
            idle == 0 || queued == 0 || self.has_waited,
            "nobody sleeps while a task waits that could not do so"
        );
        let comes_back = busy + starting + self.rescuing > 0;
        assert!(
            queued == 0 || comes_back || self.has_failed_again || self.has_failed,
            "somebody will come for what waits"
        );
        assert!(
            idle == 0 || workers - urgent <= limits.threads_max,
            "the reserve is given back before it idles"
        );
        assert!(idle == 0 || !closed, "nobody sleeps in a closed pool");
        if queued > 0 && !self.has_failed && !self.has_waited {
            let is_full = workers - urgent >= limits.threads_max
                || workers >= limits.threads_max + limits.urgent_reserve;
            assert!(is_full, "a task waits only when no thread may be started");
        }
        if queued > 0 && !self.has_failed_again {
            assert!(workers > urgent, "somebody comes for the task");
        }
    }

    /// Everybody finishes; then a closed pool is empty.
    fn check_end(&self) {
        let mut world = self.clone();
        if !world.ledger.closed {
            world = world.after(Event::Close);
        }
        let is_progress = |event: &Event| {
            matches!(event, Event::Started(_) | Event::RescueStarted | Event::Finished(_))
        };
        while let Some(event) = world.possible_events().into_iter().find(is_progress) {
            world = world.after(event);
        }
        assert_eq!(world.ledger.workers, 0, "a closed pool ends: {self:?}");
        // A last attempt may have failed after the close, when nobody comes any more.
        let may_strand = self.ledger.closed && self.has_failed_again;
        assert!(
            world.ledger.queued == 0 || may_strand,
            "a closed pool runs what it took: {self:?}"
        );
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
    assert!(states > 10_000, "the walk has become a stroll: {states} states");
}

fn walk(limits: Limits) -> usize {
    let mut seen = HashSet::from([World::new(limits)]);
    let mut pending = VecDeque::from([World::new(limits)]);
    while let Some(world) = pending.pop_front() {
        world.check();
        world.check_end();
        for event in world.possible_events() {
            let next = world.after(event);
            if seen.insert(next.clone()) {
                pending.push_back(next);
            }
        }
    }
    seen.len()
}
