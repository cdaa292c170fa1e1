//! A limit on the stories per second: a flood of failures must not cost more than its responses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::stories::StoryKind;

/// All routes share 100 stories per second. After a quiet time up to 50 may follow at once.
const SHARED: Rate = Rate { every: Duration::from_millis(10), burst: 50 };

/// The stories that each route may note of each kind in any case, whatever other routes use up.
const OWN: Rate = Rate { every: Duration::from_secs(1), burst: 5 };

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// The average time between two stories.
    every: Duration,
    /// How many may follow each other at once.
    burst: u32,
}

/// Decides whether a story may be noted now.
#[derive(Debug)]
pub(super) struct Pace {
    started: Instant,
    shared: Paced,
    /// By route and kind.
    own: Box<[[Paced; StoryKind::COUNT]]>,
}

/// When all stories so far would have been noted at an even pace, in microseconds after the start.
#[derive(Debug, Default)]
struct Paced(AtomicU64);

impl Pace {
    pub(super) fn new(routes: usize) -> Self {
        Self {
            started: Instant::now(),
            shared: Paced::default(),
            own: (0..routes).map(|_| Default::default()).collect(),
        }
    }

    /// Returns whether a story may be noted now. If several threads ask at the same moment, only
    /// one of them may.
    pub(super) fn may_note(&self, route: usize, kind: StoryKind) -> bool {
        self.may_note_at(route, kind, self.started.elapsed())
    }

    fn may_note_at(&self, route: usize, kind: StoryKind, now: Duration) -> bool {
        let own = self.own.get(route).map(|kinds| &kinds[kind.index()]);
        own.is_some_and(|own| own.take(OWN, now)) || self.shared.take(SHARED, now)
    }
}

impl Paced {
    fn take(&self, rate: Rate, now: Duration) -> bool {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let paced_us = self.0.load(Ordering::Relaxed);
        let next_us = paced_us.max(us(now)).saturating_add(us(rate.every));
        next_us <= us(now + rate.every * rate.burst)
            && self
                .0
                .compare_exchange(paced_us, next_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_noted_at_an_even_pace() {
        let pace = Pace::new(2);
        let flood = |ms: u64| pace.may_note_at(0, StoryKind::Failed, Duration::from_millis(ms));
        let noted = (0..1000).filter(|ms| flood(*ms)).count();
        assert_eq!(noted, 5 + 50 + 99);
        let noted = (0..1000).filter(|_| flood(60_000)).count();
        assert_eq!(noted, 5 + 50);
    }

    #[test]
    fn a_flood_leaves_the_other_routes_and_kinds_their_own_pace() {
        let pace = Pace::new(2);
        let second = Duration::from_secs(1);
        let noted =
            |route, kind, at| (0..1000).filter(|_| pace.may_note_at(route, kind, at)).count();
        assert_eq!(noted(0, StoryKind::Failed, second), 5 + 50);
        assert_eq!(noted(0, StoryKind::Slow, second), 5);
        assert_eq!(noted(1, StoryKind::Failed, second), 5);
        // A route that does not exist has only the shared pace.
        assert_eq!(noted(2, StoryKind::Slow, second), 0);
        assert_eq!(noted(2, StoryKind::Slow, second * 2), 50);
    }
}
