//! The time as one thread sees it: read once a batch, and the `Date` field made once a second.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use filoplume_http1::Date;

/// The time of the batch at hand. Every thread that serves has its own.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Instant,
    date: Date,
    date_ends: Instant,
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) jumps: Option<std::sync::Arc<crate::faults::Jumps>>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let (date, valid) = date_at(SystemTime::now());
        Self {
            now,
            date,
            date_ends: now + valid,
            #[cfg(all(test, target_os = "linux"))]
            jumps: None,
        }
    }

    /// Reads the system's clock; until the next call [`now`](Self::now) stands still.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        #[cfg(all(test, target_os = "linux"))]
        if let Some(jumps) = self.jumps.clone() {
            return self.refresh_at(jumps.now(), || jumps.wall());
        }
        self.refresh_at(Instant::now(), SystemTime::now);
    }

    /// The wall clock is asked for the date and nothing else: it may jump, and no deadline moves with it.
    #[inline]
    fn refresh_at(&mut self, now: Instant, wall: impl FnOnce() -> SystemTime) {
        self.now = now;
        if self.now >= self.date_ends {
            let (date, valid) = date_at(wall());
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

/// The date, and for how long it stays true: a second at most.
fn date_at(time: SystemTime) -> (Date, Duration) {
    let into_second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    (Date::new(time), Duration::from_nanos(u64::from(1_000_000_000 - into_second)))
}

/// The longest timeout, a century: it stands for what no clock can say.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

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
        let earned = Duration::from_secs(self.moved / self.bytes_per_second_min).min(TIMEOUT_MAX);
        self.started + self.grace + earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_wall_clock_that_jumps_moves_the_date_within_a_second_and_nothing_else() {
        let mut clock = Clock::new();
        let mut now = clock.now();
        let wall = SystemTime::now();
        for jumped in [wall + DAY * 400, wall - DAY * 400, UNIX_EPOCH - DAY, wall + DAY * 365 * 9000, wall] {
            now += Duration::from_secs(1);
            clock.refresh_at(now, || jumped);
            assert_eq!(clock.date(), &Date::new(jumped));
            assert_eq!(clock.now(), now);
            assert!(clock.date_ends > now && clock.date_ends <= now + Duration::from_secs(1));
        }
    }

    #[test]
    fn the_date_is_not_made_anew_before_its_second_is_over() {
        let mut clock = Clock::new();
        let started = clock.now();
        clock.refresh_at(started + Duration::from_secs(1), || UNIX_EPOCH + Duration::from_millis(9_400));
        let ends = started + Duration::from_millis(1_600);
        assert_eq!(clock.date_ends, ends);
        clock.refresh_at(ends - Duration::from_nanos(1), || unreachable!("the date is still true"));
        clock.refresh_at(ends, || UNIX_EPOCH + DAY);
        assert_eq!(clock.date(), &Date::new(UNIX_EPOCH + DAY));
    }

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
