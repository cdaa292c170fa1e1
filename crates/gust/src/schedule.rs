//! When each request is due. Pure: a number of a request in, a moment out.

use std::time::Duration;

use crate::units::{Nanos, SECOND, nanos};

/// Requests at a constant rate, which may begin at nothing and grow for a while.
///
/// Every moment is computed from the request's number, not from the moment before: rounding never
/// adds up, and a late request makes no other one late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Nanoseconds between two requests at the full rate.
    interval: f64,
    /// Nanoseconds in which the rate grows.
    ramp: f64,
}

impl Schedule {
    pub(crate) fn new(per_second: f64, ramp: Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "104 days of nanoseconds are exact")]
        Self { interval: SECOND as f64 / per_second, ramp: nanos(ramp) as f64 }
    }

    /// When request number `index` is due. While the rate grows, n(t) = rate t² / (2 ramp).
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

    /// How many requests are due before a moment.
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

/// The share of one thread in a schedule: every `of`-th request, so that all threads together keep
/// the rate evenly.
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

    /// When the next request is due.
    pub(crate) fn next_due(&self) -> Nanos {
        self.schedule.due(self.next)
    }

    /// How many requests of this share are due before a moment and were not begun.
    pub(crate) fn overdue(&self, at: Nanos) -> u64 {
        self.schedule.count_before(at).saturating_sub(self.next).div_ceil(self.of)
    }

    /// The next request was begun.
    pub(crate) fn advance(&mut self) {
        self.next += self.of;
    }
}

/// Spreads what must not come too often, such as connects. Time that was not used is lost: no burst
/// makes up for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    interval: Nanos,
    next: Nanos,
}

impl Pace {
    /// `None` is no limit. The first ones of `of` threads follow each other evenly.
    pub(crate) fn new(per_second: Option<f64>, index: usize, of: usize) -> Self {
        let single = per_second.map_or(0.0, |rate| 1e9 / rate);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a float saturates, and threads are few"
        )]
        Self { interval: (single * of as f64) as Nanos, next: (single * index as f64) as Nanos }
    }

    /// Everything before a moment is taken.
    pub(crate) fn skip_to(&mut self, at: Nanos) {
        self.next = self.next.max(at.saturating_add(self.interval));
    }

    /// Takes the next moment, now or later.
    pub(crate) fn take(&mut self, now: Nanos) -> Nanos {
        let at = self.next.max(now);
        self.next = at.saturating_add(self.interval);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_RAMP: Duration = Duration::ZERO;

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
    fn a_pace_saves_nothing_up() {
        let mut pace = Pace::new(Some(1000.0), 1, 2);
        assert_eq!(pace.take(0), 1_000_000);
        assert_eq!(pace.take(0), 3_000_000);
        assert_eq!(pace.take(50_000_000), 50_000_000);
        assert_eq!(pace.take(50_000_000), 52_000_000);
        let mut free = Pace::new(None, 1, 2);
        assert_eq!([free.take(5), free.take(5)], [5, 5]);
    }
}
