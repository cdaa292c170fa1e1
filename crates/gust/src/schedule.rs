//! Computes when each request is due, from its number alone.

use std::time::Duration;

use crate::units::{Nanos, SECOND, nanos};

/// The schedule of requests at a constant rate, which may grow from zero during a ramp.
///
/// Each time is computed from the number of the request, not from the time of the request before.
/// So rounding errors do not add up, and a late request does not delay others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The time between two requests at the full rate, in nanoseconds.
    interval: f64,
    /// The length of the ramp, in nanoseconds.
    ramp: f64,
}

impl Schedule {
    pub(crate) fn new(per_second: f64, ramp: Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "104 days of nanoseconds are exact")]
        Self { interval: SECOND as f64 / per_second, ramp: nanos(ramp) as f64 }
    }

    /// Returns when request number `index` is due. During the ramp, n(t) = rate t² / (2 ramp).
    pub(crate) fn due(&self, index: u64) -> Nanos {
        #[expect(clippy::cast_precision_loss, reason = "exact for 9 * 10^15 requests")]
        let index = index as f64;
        let in_ramp = self.ramp / self.interval / 2.0;
        let at = if index < in_ramp {
            (2.0 * self.ramp * index * self.interval).sqrt()
        } else {
            self.ramp + (index - in_ramp) * self.interval
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates"
        )]
        let at = at as Nanos;
        at
    }

    /// Returns the number of requests that are due before `at`.
    pub(crate) fn count_before(&self, at: Nanos) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "104 days of nanoseconds are exact")]
        let at = at as f64;
        let count = if at < self.ramp {
            at * at / (2.0 * self.ramp * self.interval)
        } else {
            (at - self.ramp / 2.0) / self.interval
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates"
        )]
        let count = count.ceil() as u64;
        count
    }
}

/// The share of one thread in a schedule: every `of`-th request, so that the requests of all
/// threads together are spread evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    schedule: Schedule,
    next: u64,
    of: u64,
}

impl Share {
    pub(crate) fn new(schedule: Schedule, index: usize, of: usize) -> Self {
        Self { schedule, next: index as u64, of: of as u64 }
    }

    /// Returns when the next request is due.
    pub(crate) fn next_due(&self) -> Nanos {
        self.schedule.due(self.next)
    }

    /// Returns the number of requests of this share that are due before `at` and were not started.
    pub(crate) fn overdue(&self, at: Nanos) -> u64 {
        self.schedule.count_before(at).saturating_sub(self.next).div_ceil(self.of)
    }

    /// Records that the next request was started.
    pub(crate) fn advance(&mut self) {
        self.next += self.of;
    }
}

/// A rate limit, for example of connects. Unused time is lost and does not allow a later burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    interval: Nanos,
    /// The longer interval before `slow_until`, in nanoseconds.
    slow_interval: Nanos,
    slow_until: Nanos,
    next: Nanos,
}

impl Pace {
    /// Returns the limit for one of `of` threads, or no limit for `None`. The first times of the
    /// threads are spread evenly.
    pub(crate) fn new(per_second: Option<f64>, index: usize, of: usize) -> Self {
        let single = per_second.map_or(0.0, |rate| 1e9 / rate);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a float saturates, and threads are few"
        )]
        let (interval, next) = ((single * of as f64) as Nanos, (single * index as f64) as Nanos);
        Self { interval, slow_interval: interval, slow_until: 0, next }
    }

    /// Leaves `others` per second of this limit to others until `until`, over all of the `of`
    /// threads. If nothing remains, no time before the next one after `until` is free.
    pub(crate) fn share_with(&mut self, per_second: f64, others: f64, of: usize, until: Nanos) {
        let rest = per_second - others;
        if rest <= 0.0 {
            self.skip_to(until);
            return;
        }
        self.slow_interval = Self::new(Some(rest), 0, of).interval;
        self.slow_until = until;
    }

    /// Marks all times up to `at` as used.
    fn skip_to(&mut self, at: Nanos) {
        self.next = self.next.max(at.saturating_add(self.interval));
    }

    /// Takes and returns the next free time, `now` or later.
    pub(crate) fn take(&mut self, now: Nanos) -> Nanos {
        let at = self.next.max(now);
        let soonest = at.saturating_add(self.interval);
        let slow = at.saturating_add(self.slow_interval).min(self.slow_until);
        self.next = soonest.max(slow);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_RAMP: Duration = Duration::ZERO;

    #[test]
    fn what_is_skipped_frees_no_time_that_was_taken() {
        let mut pace = Pace::new(Some(1.0), 0, 1);
        assert_eq!([0, 0, 0].map(|now| pace.take(now)), [0, SECOND, 2 * SECOND]);
        pace.skip_to(0);
        assert_eq!(pace.take(0), 3 * SECOND);
        pace.skip_to(10 * SECOND);
        assert_eq!(pace.take(0), 11 * SECOND);
    }

    #[test]
    fn a_shared_pace_has_its_whole_rate_when_the_others_have_ended() {
        let second = |pace: &mut Pace| pace.take(0) / SECOND;
        let mut pace = Pace::new(Some(1.0), 0, 1);
        pace.share_with(1.0, 0.75, 1, 10 * SECOND);
        assert_eq!([(); 5].map(|()| second(&mut pace)), [0, 4, 8, 10, 11]);
        let mut pace = Pace::new(Some(1.0), 0, 1);
        pace.share_with(1.0, 1.0, 1, 10 * SECOND);
        assert_eq!([(); 2].map(|()| second(&mut pace)), [11, 12]);
    }

    #[test]
    fn a_constant_rate_is_even() {
        let schedule = Schedule::new(20_000.0, NO_RAMP);
        assert_eq!(
            [0, 1, 2, 20_000].map(|index| schedule.due(index)),
            [0, 50_000, 100_000, SECOND]
        );
    }

    #[test]
    fn rounding_does_not_add_up() {
        let schedule = Schedule::new(3.0, NO_RAMP);
        assert_eq!(schedule.due(1), 333_333_333);
        assert_eq!(schedule.due(3_000_000), 1_000_000 * SECOND);
    }

    #[test]
    fn a_ramp_grows_to_the_rate() {
        let schedule = Schedule::new(1000.0, Duration::from_secs(10));
        // A quarter of the requests of the ramp fall into its first half.
        assert_eq!(schedule.due(0), 0);
        assert_eq!(schedule.due(1250), 5 * SECOND);
        assert_eq!(schedule.due(3200), 8 * SECOND);
        assert_eq!(schedule.due(5000), 10 * SECOND);
        assert_eq!(schedule.due(6000), 11 * SECOND);
        assert!((0..6000).all(|index| schedule.due(index) < schedule.due(index + 1)));
        assert_eq!(
            [5, 10, 11].map(|second| schedule.count_before(second * SECOND)),
            [1250, 5000, 6000]
        );
    }

    #[test]
    fn threads_share_a_schedule_evenly() {
        let schedule = Schedule::new(1000.0, NO_RAMP);
        let mut due = Vec::new();
        for index in 0..3 {
            let mut share = Share::new(schedule, index, 3);
            for _ in 0..4 {
                due.push(share.next_due());
                share.advance();
            }
        }
        due.sort_unstable();
        let late = Share::new(schedule, 1, 3);
        assert_eq!([0, 1_000_000, 1_000_001, 10_000_000].map(|at| late.overdue(at)), [0, 0, 1, 3]);
        assert_eq!(due, (0..12).map(|index| index * 1_000_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_pace_does_not_allow_a_burst_after_a_break() {
        let mut pace = Pace::new(Some(1000.0), 1, 2);
        assert_eq!(pace.take(0), 1_000_000);
        assert_eq!(pace.take(0), 3_000_000);
        assert_eq!(pace.take(50_000_000), 50_000_000);
        assert_eq!(pace.take(50_000_000), 52_000_000);
        let mut free = Pace::new(None, 1, 2);
        assert_eq!([free.take(5), free.take(5)], [5, 5]);
    }
}
