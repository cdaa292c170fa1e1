//! Measures how fast space has become free in the last half minute, to estimate when a refused
//! content would fit. This type gets times and returns times; only its owner has a clock.

use std::time::Duration;

/// The rate is measured over this many steps.
const STEPS: usize = 8;

/// The length of a step. Contents in files are freed when their handlers have read them, which
/// often takes seconds.
const STEP: Duration = Duration::from_secs(4);

/// The length of all steps but the current one.
const COMPLETED: Duration = Duration::from_secs(STEP.as_secs() * (STEPS as u64 - 1));

/// The longest time that a client is asked to wait. The current rate says little about later.
const RETRY_AFTER_MAX: u64 = 60;

/// The bytes that were freed, by step.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    steps: [u64; STEPS],
    /// The current step, counted from the start of the clock.
    step: u64,
}

impl Freed {
    pub(crate) fn note(&mut self, bytes: u64, now: Duration) {
        self.advance(now);
        self.steps[place(self.step)] += bytes;
    }

    /// Returns in how many seconds this many bytes will be free, at least 1. Returns 1 if nothing
    /// became free in the last half minute, because the rate is then unknown.
    pub(crate) fn retry_after(&mut self, bytes: u64, now: Duration) -> u64 {
        self.advance(now);
        let freed: u64 = self.steps.iter().sum();
        let measured = now.min(COMPLETED + step_of(now)).as_millis().max(1);
        let milliseconds = u128::from(bytes) * measured;
        let Some(wait) = milliseconds.checked_div(u128::from(freed)) else { return 1 };
        u64::try_from(wait / 1000).map_or(RETRY_AFTER_MAX, |wait| (wait + 1).min(RETRY_AFTER_MAX))
    }

    /// Ends the completed steps.
    fn advance(&mut self, now: Duration) {
        let step = now.as_secs() / STEP.as_secs();
        for ended in self.step..step.min(self.step + STEPS as u64) {
            self.steps[place(ended + 1)] = 0;
        }
        self.step = self.step.max(step);
    }
}

fn place(step: u64) -> usize {
    usize::try_from(step % STEPS as u64).unwrap_or(0)
}

/// Returns how much of the current step has passed.
fn step_of(now: Duration) -> Duration {
    Duration::from_millis(u64::try_from(now.as_millis() % STEP.as_millis()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_follows_the_rate_of_the_last_half_minute() {
        let mut freed = Freed::default();
        assert_eq!(freed.retry_after(1 << 30, Duration::ZERO), 1, "nothing is known");
        // A megabyte per second.
        for second in 0..100 {
            freed.note(1_000_000, Duration::from_secs(second));
        }
        let now = Duration::from_secs(100);
        assert!((9..=13).contains(&freed.retry_after(10_000_000, now)));
        assert_eq!(freed.retry_after(1, now), 1);
        assert_eq!(freed.retry_after(u64::MAX, now), 60, "it is bounded");
        // Now it is ten times as fast, and soon only the new rate counts.
        for second in 100..140 {
            freed.note(10_000_000, Duration::from_secs(second));
        }
        assert!((9..=13).contains(&freed.retry_after(100_000_000, Duration::from_secs(140))));
        assert_eq!(freed.retry_after(1 << 30, Duration::from_secs(200)), 1, "long ago");
    }

    #[test]
    fn a_time_that_was_read_before_that_of_another_thread_loses_nothing() {
        let mut freed = Freed::default();
        freed.note(1000, Duration::from_secs(40));
        freed.note(0, Duration::from_secs(39));
        assert_eq!(freed.retry_after(1000, Duration::from_secs(40)), 29);
    }
}
