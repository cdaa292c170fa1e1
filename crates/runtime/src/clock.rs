//! The time as one thread sees it. The clock is read once per batch, and the `Date` field is
//! formatted once per second.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use filoplume_http1::Date;

/// The time of the current batch. Each serving thread has its own.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Instant,
    /// The timeout that was last requested, and when it ends.
    ends: Cell<(Duration, Instant)>,
    date: Date,
    date_ends: Instant,
    #[cfg(all(test, target_os = "linux"))]
    jumps: Option<std::sync::Arc<crate::faults::Jumps>>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let (date, valid) = date_at(SystemTime::now());
        Self {
            now,
            ends: Cell::new((Duration::ZERO, now)),
            date,
            date_ends: now + valid,
            #[cfg(all(test, target_os = "linux"))]
            jumps: None,
        }
    }

    /// Lets a test move this clock. A thread that begins to serve sees all earlier jumps: a time
    /// without them would be in the past, and deadlines would be lost.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn jump_with(&mut self, jumps: Option<&std::sync::Arc<crate::faults::Jumps>>) {
        self.jumps = jumps.cloned();
        self.refresh();
    }

    /// Reads the system's clock. [`now`](Self::now) returns this time until the next call.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        #[cfg(all(test, target_os = "linux"))]
        if let Some(jumps) = self.jumps.clone() {
            return self.refresh_at(jumps.now(), || jumps.wall());
        }
        self.refresh_at(Instant::now(), SystemTime::now);
    }

    /// The wall clock is used for the date only. It may jump, so no deadline depends on it.
    #[inline]
    fn refresh_at(&mut self, now: Instant, wall: impl FnOnce() -> SystemTime) {
        self.now = now;
        self.ends.set((Duration::ZERO, now));
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

    /// Returns when a timeout that begins now ends. Nearly all requests of a batch use the same
    /// timeout, so the result is cached.
    #[inline]
    pub(crate) fn after(&self, timeout: Duration) -> Instant {
        let (last, ends) = self.ends.get();
        if last == timeout {
            return ends;
        }
        let ends = self.now + timeout;
        self.ends.set((timeout, ends));
        ends
    }

    #[inline]
    pub(crate) fn date(&self) -> &Date {
        &self.date
    }
}

/// Returns the date and how long it stays valid, which is a second at most.
fn date_at(time: SystemTime) -> (Date, Duration) {
    let into_second = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    (Date::new(time), Duration::from_nanos(u64::from(1_000_000_000 - into_second)))
}

/// The longest timeout, a century. It stands for times that an `Instant` cannot represent.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A deadline that only transferred bytes extend. Each byte adds the time that it may take at the
/// minimum pace, but the deadline is never more than `grace` ahead. Early bytes therefore buy time
/// neither for silence nor for a trickle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    usual: ProgressDeadline,
    pressed: ProgressDeadline,
}

/// The grace period while memory or threads are scarce. A peer that is silent for longer, or slower
/// than this pace, loses its connection.
const PRESSED_GRACE: Duration = Duration::from_secs(1);
const PRESSED_BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

impl Pace {
    pub(crate) fn new(started: Instant, grace: Duration, bytes_per_second_min: u64) -> Self {
        let pressed_min = bytes_per_second_min.max(PRESSED_BYTES_PER_SECOND_MIN);
        Self {
            usual: ProgressDeadline::new(started, grace, bytes_per_second_min),
            pressed: ProgressDeadline::new(started, grace.min(PRESSED_GRACE), pressed_min),
        }
    }

    /// Adds the time for `bytes` that were transferred by `now`.
    pub(crate) fn advance(&mut self, bytes: usize, now: Instant) {
        self.usual.advance(bytes, now);
        self.pressed.advance(bytes, now);
    }

    /// Adds time in which nothing could be transferred for a reason that is not the peer's fault.
    pub(crate) fn excuse(&mut self, time: Duration) {
        self.usual.excuse(time);
        self.pressed.excuse(time);
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.usual.at()
    }

    /// Returns the deadline that applies while a resource that this peer holds is scarce.
    pub(crate) fn pressed_deadline(&self) -> Instant {
        self.pressed.at().min(self.usual.at())
    }
}

/// A deadline that transferred bytes extend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressDeadline {
    deadline: Instant,
    grace: Duration,
    bytes_per_second_min: u64,
}

impl ProgressDeadline {
    pub(crate) fn new(started: Instant, grace: Duration, bytes_per_second_min: u64) -> Self {
        Self { deadline: started + grace, grace, bytes_per_second_min }
    }

    /// Requires another pace from now on.
    #[cfg(feature = "spool")]
    pub(crate) fn set_pace(&mut self, bytes_per_second_min: u64) {
        self.bytes_per_second_min = bytes_per_second_min.max(1);
    }

    pub(crate) fn at(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn advance(&mut self, bytes: usize, now: Instant) {
        // A deadline that applies only while something is scarce may have passed long ago. What
        // counts is the pace of the last moments, not a pause before them.
        let start = now.checked_sub(self.grace).map_or(self.deadline, |at| at.max(self.deadline));
        let nanoseconds = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second_min);
        let earned =
            u64::try_from(nanoseconds).map_or(TIMEOUT_MAX, Duration::from_nanos).min(TIMEOUT_MAX);
        // A clock that was read before the start must not shorten the deadline.
        self.deadline = (start + earned).min(now + self.grace).max(self.deadline);
    }

    pub(crate) fn excuse(&mut self, time: Duration) {
        self.deadline += time.min(TIMEOUT_MAX);
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
        for jumped in
            [wall + DAY * 400, wall - DAY * 400, UNIX_EPOCH - DAY, wall + DAY * 365 * 9000, wall]
        {
            now += Duration::from_secs(1);
            clock.refresh_at(now, || jumped);
            assert_eq!(clock.date(), &Date::new(jumped));
            assert_eq!(clock.now(), now);
            assert!(clock.date_ends > now && clock.date_ends <= now + Duration::from_secs(1));
        }
    }

    #[test]
    fn the_date_is_not_formatted_again_before_its_second_is_over() {
        let mut clock = Clock::new();
        let started = clock.now();
        clock.refresh_at(started + Duration::from_secs(1), || {
            UNIX_EPOCH + Duration::from_millis(9_400)
        });
        let ends = started + Duration::from_millis(1_600);
        assert_eq!(clock.date_ends, ends);
        clock.refresh_at(ends - Duration::from_nanos(1), || unreachable!("it is valid"));
        clock.refresh_at(ends, || UNIX_EPOCH + DAY);
        assert_eq!(clock.date(), &Date::new(UNIX_EPOCH + DAY));
    }

    const GRACE: Duration = Duration::from_secs(30);

    #[test]
    fn a_trickle_hardly_extends_the_deadline() {
        let started = Instant::now();
        let mut pace = Pace::new(started, GRACE, 1000);
        let mut now = started;
        while now < pace.deadline() {
            pace.advance(1, now);
            now += Duration::from_secs(1);
        }
        assert_eq!(now, started + Duration::from_secs(31));
    }

    #[test]
    fn a_peer_that_keeps_the_pace_never_reaches_its_deadline() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now, GRACE, 1024);
        for _ in 0..1000 {
            now += Duration::from_secs(10);
            assert!(now < pace.deadline());
            pace.advance(10 * 1024, now);
        }
    }

    #[test]
    fn silence_has_the_same_bound_whatever_was_transferred_before() {
        let started = Instant::now();
        let mut pace = Pace::new(started, GRACE, 1024);
        let now = started + Duration::from_secs(1);
        pace.advance(900_000, now);
        assert_eq!(pace.deadline(), now + GRACE);
        pace.advance(usize::MAX, now);
        assert_eq!(pace.deadline(), now + GRACE);
        // A burst does not buy time for a trickle.
        pace.advance(1, now + GRACE / 2);
        assert!(pace.deadline() < now + GRACE + Duration::from_millis(1));
    }

    #[test]
    fn a_peer_that_has_paused_is_soon_within_the_pressed_pace_again() {
        let started = Instant::now();
        let mut pace = Pace::new(started, GRACE, 1024);
        let twice = usize::try_from(PRESSED_BYTES_PER_SECOND_MIN * 2 / 10).unwrap();
        let tenth = Duration::from_millis(100);
        let mut now = started + Duration::from_secs(20);
        let mut is_late = Vec::new();
        for _ in 0..20 {
            now += tenth;
            pace.advance(twice, now);
            is_late.push(pace.pressed_deadline() <= now);
        }
        assert!(is_late[0], "a burst does not make up for the pause");
        assert!(!is_late[12..].contains(&true), "{is_late:?}");
        // A trickle stays too slow.
        now += GRACE;
        for _ in 0..100 {
            now += tenth;
            pace.advance(1000, now);
            assert!(pace.pressed_deadline() <= now);
        }
    }

    #[test]
    fn excused_time_extends_the_deadline() {
        let started = Instant::now();
        let mut pace = Pace::new(started, GRACE, 1024);
        pace.excuse(Duration::from_secs(100));
        assert_eq!(pace.deadline(), started + GRACE + Duration::from_secs(100));
        pace.advance(0, started);
        assert_eq!(
            pace.deadline(),
            started + GRACE + Duration::from_secs(100),
            "the deadline never moves back"
        );
    }
}
