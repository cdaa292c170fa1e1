//! How many seats the route with the most must leave to the others: as many as they had recently.
//!
//! A route that begins to hang holds each seat that it gets, so it would catch each seat that
//! another route releases for a moment between two requests. This module gets nanoseconds and
//! returns numbers: it has no clock and no lock.

use super::share::ROUTE_SHARE;
use crate::execution::key::ExecutionKey;

/// How long seats are kept for the routes that had them, in nanoseconds: at least this long, and
/// less than twice as long.
pub(super) const KEPT_FOR: u64 = 1_000_000_000;

/// The route with the most seats, and what the rest of the routes have together.
#[derive(Debug)]
pub(super) struct Rest {
    largest: Option<ExecutionKey>,
    largest_has: usize,
    has: usize,
    /// The most that the rest had in this period, and in the one before.
    most: usize,
    most_before: usize,
    period_began: u64,
}

impl Rest {
    pub(super) const fn new() -> Self {
        Self { largest: None, largest_has: 0, has: 0, most: 0, most_before: 0, period_began: 0 }
    }

    /// Records that a route now has `taken` seats, one more than before.
    #[inline]
    pub(super) fn note_taken(&mut self, key: ExecutionKey, taken: usize) {
        if self.largest == Some(key) {
            self.largest_has = taken;
        } else if taken > self.largest_has {
            self.has = self.has + 1 + self.largest_has - taken;
            (self.largest, self.largest_has) = (Some(key), taken);
        } else {
            self.has += 1;
        }
        self.most = self.most.max(self.has);
    }

    /// Records that a route has one seat less.
    #[inline]
    pub(super) fn note_released(&mut self, key: ExecutionKey) {
        if self.largest == Some(key) {
            self.largest_has -= 1;
        } else {
            self.has -= 1;
        }
    }

    /// Returns the route with the most seats, and how many it has.
    pub(super) fn largest(&self) -> (Option<ExecutionKey>, usize) {
        (self.largest, self.largest_has)
    }

    /// Returns how many seats this route must leave free. A route with fewer than another one must
    /// leave none.
    #[inline]
    pub(super) fn kept_from(&self, key: ExecutionKey) -> usize {
        if self.largest == Some(key) { self.kept() } else { 0 }
    }

    /// Returns how many seats the route with the most must leave free.
    #[inline]
    pub(super) fn kept(&self) -> usize {
        let most = self.most.max(self.most_before);
        // The others may take the seats that are kept for them only while an eighth as many stay
        // free, so these are kept as well.
        most - self.has + most / ROUTE_SHARE
    }

    /// Ends the period if it is over. Returns whether it was.
    pub(super) fn renew(&mut self, now: u64) -> bool {
        let age = now.saturating_sub(self.period_began);
        if age < KEPT_FOR {
            return false;
        }
        // After a longer time it is not known how much of the maximum is recent.
        self.most_before = if age < 2 * KEPT_FOR { self.most } else { self.has };
        self.most = self.has;
        self.period_began = now;
        true
    }

    /// Returns when the period ends.
    pub(super) fn period_ends(&self) -> u64 {
        self.period_began.saturating_add(KEPT_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seats by route, whose changes are recorded.
    struct Routes {
        rest: Rest,
        taken: [usize; 8],
    }

    impl Routes {
        fn new() -> Self {
            Self { rest: Rest::new(), taken: [0; 8] }
        }

        fn take(&mut self, route: usize, count: usize) -> &mut Self {
            for _ in 0..count {
                self.taken[route] += 1;
                self.rest.note_taken(ExecutionKey::at(route), self.taken[route]);
            }
            self.check()
        }

        fn release(&mut self, route: usize, count: usize) -> &mut Self {
            for _ in 0..count {
                self.taken[route] -= 1;
                self.rest.note_released(ExecutionKey::at(route));
            }
            self.check()
        }

        fn check(&mut self) -> &mut Self {
            let all: usize = self.taken.iter().sum();
            assert_eq!(self.rest.has + self.rest.largest_has, all);
            let largest = self.rest.largest.map_or(0, ExecutionKey::index);
            assert_eq!(self.rest.largest_has, self.taken[largest]);
            self
        }

        fn kept_from(&self, route: usize) -> usize {
            self.rest.kept_from(ExecutionKey::at(route))
        }
    }

    #[test]
    fn what_others_had_is_kept_from_the_route_with_the_most() {
        let mut routes = Routes::new();
        routes.take(1, 20).take(2, 30);
        assert_eq!((routes.kept_from(1), routes.kept_from(2)), (0, 2), "they have their seats");
        routes.release(1, 15);
        assert_eq!((routes.kept_from(1), routes.kept_from(2)), (0, 15 + 2));
        routes.take(3, 10);
        assert_eq!(routes.kept_from(2), 5 + 2, "whoever of the others has them");
        routes.take(1, 5);
        assert_eq!(routes.rest.kept(), 20 / ROUTE_SHARE);
    }

    #[test]
    fn routes_that_take_turns_need_what_they_have_at_the_same_time() {
        let mut routes = Routes::new();
        routes.take(1, 4);
        for other in 2..8 {
            routes.take(other, 1).release(other, 1);
        }
        assert_eq!(routes.kept_from(1), 1);
    }

    #[test]
    fn another_route_may_become_the_one_with_the_most() {
        let mut routes = Routes::new();
        routes.take(1, 10).take(2, 11);
        assert_eq!(routes.kept_from(2), 10 / ROUTE_SHARE);
        routes.release(2, 11).take(1, 1);
        assert_eq!((routes.rest.largest_has, routes.rest.has), (11, 0));
        assert_eq!(routes.kept_from(1), 10 + 10 / ROUTE_SHARE);
    }

    #[test]
    fn what_was_needed_is_kept_for_one_to_two_periods() {
        let mut routes = Routes::new();
        routes.take(1, 8).take(2, 3).release(2, 3);
        assert!(!routes.rest.renew(KEPT_FOR - 1));
        assert!(routes.rest.renew(KEPT_FOR));
        assert_eq!((routes.kept_from(1), routes.rest.period_ends()), (3, 2 * KEPT_FOR));
        assert!(!routes.rest.renew(2 * KEPT_FOR - 1));
        assert!(routes.rest.renew(2 * KEPT_FOR));
        assert_eq!(routes.rest.kept(), 0);
        routes.take(2, 3).release(2, 3);
        assert!(routes.rest.renew(4 * KEPT_FOR));
        assert_eq!(routes.kept_from(1), 0, "it may be old");
    }
}
