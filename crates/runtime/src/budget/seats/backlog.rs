//! How many requests of one route may wait for a seat: as many as will be served in time.
//!
//! A bound by number refuses what could be served in 40 ms, or keeps clients waiting for minutes:
//! it depends on how fast the route is. So the bound is a time, and the route's own rate over the
//! last seconds makes a number of it. Nothing is refused before the rate is known; what waits for
//! too long meanwhile is answered by [`Seats::expired`](super::Seats::expired).
//!
//! If more comes than can be served for longer, the longest wait makes nobody faster: it only makes
//! everybody wait as long. So it is halved with each [`STEP`] in which something was refused, down
//! to one round of the seats, which keeps them all busy. It comes back as fast when nothing is
//! refused any more. CoDel was the other candidate: it also shortens the line of a crowd that could
//! all be served within the bound. Nanoseconds in, decisions out: no clock and no lock.

/// The rate is that of so many steps.
const STEPS: usize = 8;

/// The longest wait is never shorter than this while requests are refused, in nanoseconds: threads
/// that come back in bursts find something to do.
const WAIT_MIN: u64 = 20_000_000;

/// What is known of a route for which nobody asks is forgotten after so many times the longest
/// wait.
const KNOWN_FOR: u64 = 8;

/// A rate is believed after two steps if it is of so many requests.
const MANY: u64 = 64;

/// What is known about the requests of a route that wait.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    /// The longest time that a request may wait.
    wait_max: u64,
    /// The same while there is more than can be served.
    wait: u64,
    /// Since when the route has had all its seats.
    since: Option<u64>,
    /// The step at hand, counted from `since`.
    step: u64,
    /// Requests that left the line for a seat, by step.
    served: [u64; STEPS],
    has_refused: bool,
    /// When a request last asked to wait.
    asked_at: u64,
}

impl Backlog {
    pub(super) const fn new(wait_max: u64) -> Self {
        // No step is of no time.
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

    /// The route has a seat to spare, or all that waited have one: what was known is of another
    /// time.
    pub(super) fn reset(&mut self) {
        if self.since.is_some() {
            *self = Self::new(self.wait_max);
        }
    }

    /// Whether one more request may wait behind `waiting` others of a route that has `seats` seats.
    pub(super) fn may_wait(&mut self, now: u64, waiting: usize, seats: usize) -> bool {
        if waiting == 0
            && now.saturating_sub(self.asked_at) > self.wait_max.saturating_mul(KNOWN_FOR)
        {
            self.reset();
        }
        self.asked_at = now;
        self.go_on(now);
        let may = self.waiting_max(now, seats).is_none_or(|most| (waiting as u64) < most);
        self.has_refused |= !may;
        may
    }

    /// A request has left the line for a seat.
    pub(super) fn served(&mut self, now: u64) {
        self.go_on(now);
        self.served[self.place()] += 1;
    }

    /// How long a request would wait behind `waiting` others, if that is known.
    pub(super) fn wait_for(&self, now: u64, waiting: usize) -> Option<u64> {
        let (served, time) = self.rate(now)?;
        time.saturating_mul((waiting as u64).saturating_add(1)).checked_div(served)
    }

    fn waiting_max(&self, now: u64, seats: usize) -> Option<u64> {
        let (served, time) = self.rate(now)?;
        let within = |wait: u64| served.saturating_mul(wait) / time.max(1);
        Some(within(self.wait).max(seats as u64).min(within(self.wait_max)))
    }

    /// How many were served in how much time, if that says anything.
    fn rate(&self, now: u64) -> Option<(u64, u64)> {
        let age = now.saturating_sub(self.since?);
        let served = self.served.iter().sum();
        if age >= self.wait_max {
            // The step at hand is not over.
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

    /// Ends the steps that are over.
    fn go_on(&mut self, now: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const WAIT_MAX: u64 = 2_000 * MS;

    /// A route whose requests arrive and are served at these rates per second. Returns the backlog,
    /// how many wait at the end, how many were refused, and the longest wait of those that were
    /// taken in the last second.
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
                    line.push_back(now)
                } else {
                    refused += 1
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
    fn a_crowd_that_is_served_in_time_is_not_refused() {
        let mut backlog = Backlog::new(WAIT_MAX);
        // 10,000 clients that come back as soon as they are served, 25,000 a second.
        for request in 0..200_000_u64 {
            let now = request * 40_000;
            backlog.served(now);
            assert!(backlog.may_wait(now, 9_500, 455), "after {request}");
        }
    }

    #[test]
    fn what_would_wait_for_too_long_is_refused() {
        let (backlog, waiting, refused, _) = run(4_000, 1_100, 1_000, 10);
        assert!(waiting <= 2_000, "{waiting} wait where 1,000 are served in a second");
        assert!(refused < 400, "{refused}");
        assert!(backlog.wait_for(4_000 * MS, waiting).is_some_and(|wait| wait <= WAIT_MAX));
    }

    #[test]
    fn a_lasting_overload_shortens_the_wait_to_a_round_of_the_seats_and_keeps_them_busy() {
        for times in [3, 10] {
            let (_, waiting, _, longest) = run(10_000, times * 1_000, 1_000, 10);
            assert!((10..=25).contains(&waiting), "{waiting}");
            assert!(longest <= 26 * MS, "{longest} ns where 10 seats are given in 10 ms");
        }
    }

    #[test]
    fn a_route_that_hangs_takes_no_more_once_that_is_known() {
        let mut backlog = Backlog::new(WAIT_MAX);
        assert!(backlog.may_wait(0, 0, 455));
        assert!(backlog.may_wait(1_999 * MS, 10, 455));
        assert!(!backlog.may_wait(2_000 * MS, 0, 455));
        backlog.reset();
        assert!(backlog.may_wait(2_001 * MS, 0, 455), "it has come back");
    }

    #[test]
    fn what_was_known_long_ago_refuses_nobody() {
        let mut backlog = Backlog::new(WAIT_MAX);
        assert!(backlog.may_wait(0, 0, 0));
        assert!(backlog.may_wait(3_600_000 * MS, 0, 0), "nothing was served, and nobody has asked");
        assert!(!backlog.may_wait(3_602_000 * MS, 0, 0), "somebody has, and was not served");
    }

    #[test]
    fn calls_that_end_together_are_no_standstill() {
        // 100 seats, and each second all are free again at once.
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
    fn the_wait_comes_back_when_nothing_is_refused_any_more() {
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
    fn a_clock_that_stands_still_or_a_wait_of_nothing_breaks_nothing() {
        let mut backlog = Backlog::new(0);
        for now in [0, 0, 1, 1, u64::MAX] {
            let _ = backlog.may_wait(now, 1, 1);
            backlog.served(now);
            let _ = backlog.wait_for(now, usize::MAX);
        }
    }
}
