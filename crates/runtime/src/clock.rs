//! The time as one thread sees it: read once a batch, and the `Date` field made once a second.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use filoplume_http1::Date;

/// The time of the batch at hand. Every thread that serves has its own.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Instant,
    date: Date,
    date_ends: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let (date, valid) = current_date();
        Self { now, date, date_ends: now + valid }
    }

    /// Reads the system's clock; until the next call [`now`](Self::now) stands still.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        self.now = Instant::now();
        if self.now >= self.date_ends {
            let (date, valid) = current_date();
            self.date = date;
            self.date_ends = self.now + valid;
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    #[inline]
    pub(crate) fn date(&self) -> &Date {
        &self.date
    }
}

/// The date, and for how long it stays true.
fn current_date() -> (Date, Duration) {
    let time = SystemTime::now();
    let into_second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    (Date::new(time), Duration::from_nanos(u64::from(1_000_000_000 - into_second)))
}

/// A deadline that moves only with the bytes that move: who sends or takes a byte a second runs
/// into it, who keeps the pace does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    started: Instant,
    grace: Duration,
    bytes_per_second_min: u64,
    moved: u64,
}

impl Pace {
    pub(crate) fn new(started: Instant, grace: Duration, bytes_per_second_min: u64) -> Self {
        Self { started, grace, bytes_per_second_min, moved: 0 }
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes as u64);
    }

    pub(crate) fn deadline(&self) -> Instant {
        let earned = Duration::from_secs(self.moved / self.bytes_per_second_min);
        self.started + self.grace + earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_earns_no_time() {
        let started = Instant::now();
        let mut pace = Pace::new(started, Duration::from_secs(30), 1024);
        for _ in 0..1000 {
            pace.advance(1);
        }
        assert_eq!(pace.deadline(), started + Duration::from_secs(30));
        pace.advance(1024 * 60);
        assert_eq!(pace.deadline(), started + Duration::from_secs(90));
    }
}
