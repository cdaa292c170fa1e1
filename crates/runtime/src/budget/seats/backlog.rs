//! How many requests of one route may wait for a seat: as many as can be served in time.
//!
//! A bound by number would refuse requests that could be served in 40 ms, or keep clients waiting
//! for minutes, because the right number depends on how fast the route is. So the bound is a time,
//! and the route's own rate over the last seconds turns it into a number. Nothing is refused before
//! the rate is known. Until then, requests that wait for too long are answered by
//! [`Seats::expired`](super::Seats::expired).
//!
//! During a lasting overload a long wait serves no client faster; it only makes all clients wait.
//! So the wait is halved after each step in which a request was refused, down to one round of
//! the seats, which keeps them all busy. It doubles again after each step without a refusal. CoDel
//! was the alternative, but it also shortens the queue of a burst that could be served completely
//! within the bound. This module gets nanoseconds and returns decisions: it has no clock and no
//! lock.

use std::time::Duration;

/// The rate is measured over this many steps.
const STEPS: usize = 8;

/// The minimum of the shortened wait in nanoseconds. Threads that become free in bursts then still
/// find requests.
const WAIT_MIN: u64 = 20_000_000;

/// The measurements of a route without requests are dropped after this many times the maximum wait.
const KNOWN_FOR: u64 = 8;

/// After two steps a rate is used if it is based on this many requests.
const MANY: u64 = 64;

/// The measurements of the waiting requests of one route.
#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    /// The maximum time that a request may wait.
    wait_max: u64,
    /// The maximum wait during an overload.
    wait: u64,
    /// The start of the measurement: since then the route has used all its seats.
    since: Option<u64>,
    /// The current step, counted from `since`.
    step: u64,
    /// The requests that left the queue for a seat, by step.
    served: [u64; STEPS],
    has_refused: bool,
    /// When a request last asked to wait.
    asked_at: u64,
}

impl Backlog {
    pub(crate) const fn new(wait_max: u64) -> Self {
        // A step must not have a length of zero.
        let wait_max = if wait_max < STEPS as u64 { STEPS as u64 } else { wait_max };
        Self {
            wait_max,
            wait: wait_max,
            since: None,
            step: 0,
            served: [0; STEPS],
            has_refused: false,
            asked_at: 0,
        }
    }

    /// Drops the measurements, because the route has a seat to spare or no request waits any more.
    pub(crate) fn reset(&mut self) {
        if self.since.is_some() {
            *self = Self::new(self.wait_max);
        }
    }

    /// Returns whether one more request may wait behind `waiting` others of a route with `seats`
    /// seats. If not, the route is overloaded.
    pub(crate) fn may_wait(&mut self, now: u64, waiting: usize, seats: usize) -> bool {
        let may = self.has_time(now, waiting, seats);
        self.has_refused |= !may;
        may
    }

    /// As [`may_wait`](Self::may_wait), for a request whose client has others in the queue. The
    /// client's own backlog may be the only reason for a refusal, which is then no sign of an
    /// overload.
    pub(super) fn has_time(&mut self, now: u64, waiting: usize, seats: usize) -> bool {
        if waiting == 0
            && now.saturating_sub(self.asked_at) > self.wait_max.saturating_mul(KNOWN_FOR)
        {
            self.reset();
        }
        self.asked_at = now;
        self.advance(now);
        self.waiting_max(now, seats).is_none_or(|most| (waiting as u64) < most)
    }

    /// Records that a request left the queue for a seat.
    pub(crate) fn served(&mut self, now: u64) {
        self.advance(now);
        self.served[self.place()] += 1;
    }

    /// Returns how long a request would wait behind `waiting` others, if that is known.
    pub(crate) fn wait_for(&self, now: u64, waiting: usize) -> Option<u64> {
        let (served, time) = self.rate(now)?;
        time.saturating_mul((waiting as u64).saturating_add(1)).checked_div(served)
    }

    fn waiting_max(&self, now: u64, seats: usize) -> Option<u64> {
        let (served, time) = self.rate(now)?;
        let within = |wait: u64| served.saturating_mul(wait) / time.max(1);
        Some(within(self.wait).max(seats as u64).min(within(self.wait_max)))
    }

    /// Returns how many requests were served in how much time, if there is enough data.
    fn rate(&self, now: u64) -> Option<(u64, u64)> {
        let age = now.saturating_sub(self.since?);
        let served = self.served.iter().sum();
        if age >= self.wait_max {
            // The current step is not complete.
            return Some((served, self.wait_max - self.step_len() + age % self.step_len()));
        }
        (served >= MANY && age >= 2 * self.step_len()).then_some((served, age))
    }

    const fn step_len(&self) -> u64 {
        self.wait_max / STEPS as u64
    }

    fn place(&self) -> usize {
        usize::try_from(self.step % STEPS as u64).unwrap_or(0)
    }

    /// Ends the completed steps.
    fn advance(&mut self, now: u64) {
        let since = *self.since.get_or_insert(now);
        let step = now.saturating_sub(since) / self.step_len();
        for _ in self.step..step.min(self.step.saturating_add(STEPS as u64)) {
            self.wait = if self.has_refused {
                (self.wait / 2).max(WAIT_MIN.min(self.wait_max))
            } else {
                self.wait.saturating_mul(2).min(self.wait_max)
            };
            self.has_refused = false;
            self.step += 1;
            let place = self.place();
            self.served[place] = 0;
        }
        self.step = step;
    }
}

/// Returns a time in nanoseconds, which is what this module counts in.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const WAIT_MAX: u64 = 2_000 * MS;

    /// Simulates a route whose requests arrive and are served at these rates per second. Returns
    /// the backlog, the number of waiting requests at the end, the number of refused ones, and the
    /// longest wait of the requests that were accepted in the last second.
    fn run(ms: u64, arrivals: u64, served: u64, seats: usize) -> (Backlog, usize, u64, u64) {
        let mut backlog = Backlog::new(WAIT_MAX);
        let (mut line, mut refused, mut longest) = (std::collections::VecDeque::new(), 0, 0);
        let (mut come, mut gone) = (0, 0);
        for now in (0..ms * 10).map(|tenth| tenth * MS / 10) {
            come += arrivals;
            gone += served;
            while come >= 10_000 {
                come -= 10_000;
                if backlog.may_wait(now, line.len(), seats) {
                    line.push_back(now);
                } else {
                    refused += 1;
                }
            }
            while gone >= 10_000 {
                gone -= 10_000;
                let Some(at) = line.pop_front() else { continue };
                backlog.served(now);
                if now >= (ms - 1_000) * MS {
                    longest = longest.max(now - at);
                }
            }
        }
        (backlog, line.len(), refused, longest)
    }

    #[test]
    fn nothing_is_refused_before_the_rate_is_known() {
        let mut backlog = Backlog::new(WAIT_MAX);
        assert!((0..10_000).all(|waiting| backlog.may_wait(5 * MS, waiting, 16)));
        assert_eq!(backlog.wait_for(6 * MS, 10_000), None);
    }

    #[test]
    fn a_burst_that_is_served_in_time_is_not_refused() {
        let mut backlog = Backlog::new(WAIT_MAX);
        // 10,000 clients that send again as soon as they are served, 25,000 requests per second.
        for request in 0..200_000_u64 {
            let now = request * 40_000;
            backlog.served(now);
            assert!(backlog.may_wait(now, 9_500, 455), "after {request}");
        }
    }

    #[test]
    fn a_request_that_would_wait_for_too_long_is_refused() {
        let (backlog, waiting, refused, _) = run(4_000, 1_100, 1_000, 10);
        assert!(waiting <= 2_000, "{waiting} wait although 1,000 are served per second");
        assert!(refused < 400, "{refused}");
        assert!(backlog.wait_for(4_000 * MS, waiting).is_some_and(|wait| wait <= WAIT_MAX));
    }

    #[test]
    fn a_lasting_overload_shortens_the_wait_to_a_round_of_the_seats_and_keeps_them_busy() {
        for times in [3, 10] {
            let (_, waiting, _, longest) = run(10_000, times * 1_000, 1_000, 10);
            assert!((10..=25).contains(&waiting), "{waiting}");
            assert!(longest <= 26 * MS, "{longest} ns although 10 seats become free in 10 ms");
        }
    }

    #[test]
    fn a_route_that_hangs_accepts_no_more_once_its_rate_is_known() {
        let mut backlog = Backlog::new(WAIT_MAX);
        assert!(backlog.may_wait(0, 0, 455));
        assert!(backlog.may_wait(1_999 * MS, 10, 455));
        assert!(!backlog.may_wait(2_000 * MS, 0, 455));
        backlog.reset();
        assert!(backlog.may_wait(2_001 * MS, 0, 455), "the route has recovered");
    }

    #[test]
    fn old_measurements_refuse_no_request() {
        let mut backlog = Backlog::new(WAIT_MAX);
        assert!(backlog.may_wait(0, 0, 0));
        assert!(
            backlog.may_wait(3_600_000 * MS, 0, 0),
            "nothing was served, but no request has asked"
        );
        assert!(!backlog.may_wait(3_602_000 * MS, 0, 0), "a request has asked and was not served");
    }

    #[test]
    fn calls_that_end_together_are_not_a_standstill() {
        // 100 seats, which all become free at the same moment of each second.
        let mut backlog = Backlog::new(WAIT_MAX);
        for second in 0..10 {
            for n in 0..100 {
                assert!(
                    backlog.may_wait((second * 1_000 + n * 5) * MS, 60, 100),
                    "{second} s, {n}"
                );
            }
            for _ in 0..100 {
                backlog.served((second * 1_000 + 999) * MS);
            }
        }
    }

    #[test]
    fn the_wait_recovers_when_nothing_is_refused() {
        let (mut backlog, ..) = run(10_000, 3_000, 1_000, 10);
        assert!(backlog.wait <= WAIT_MIN);
        for n in 0..3_000 {
            let now = (10_000 + n) * MS;
            backlog.served(now);
            assert!(backlog.may_wait(now, 5, 10));
        }
        assert_eq!(backlog.wait, WAIT_MAX);
    }

    #[test]
    fn a_clock_that_stands_still_and_a_wait_of_zero_are_harmless() {
        let mut backlog = Backlog::new(0);
        for now in [0, 0, 1, 1, u64::MAX] {
            let _ = backlog.may_wait(now, 1, 1);
            backlog.served(now);
            let _ = backlog.wait_for(now, usize::MAX);
        }
    }
}
