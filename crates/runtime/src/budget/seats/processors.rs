//! How many of the threads that have a seat may be ready to run at the same time.
//!
//! A thread that waits costs other requests next to nothing. A thread that computes takes its turn
//! on the processors beside the event loops and all other threads: with hundreds of them, each
//! request of the server stands in line for a processor. So the seats of routes that compute count
//! against a second, smaller budget, except for those whose threads were seen to wait. A seat that
//! was taken since then counts as one that computes. So a route whose calls do both grows by what
//! is left of the budget from one look to the next, until enough of its threads are ready to keep
//! the processors busy.

use std::thread;

use crate::execution::key::ExecutionKey;

/// This many threads per processor may be ready to run. One would do if none of them ever waited,
/// and each one more keeps an event loop waiting for some 3 ms longer.
const PER_PROCESSOR: usize = 4;

/// Each route may have this many ready threads regardless of other routes, until twice the maximum
/// of all routes are ready.
const LEAST: usize = 2;

/// Stands for a route that does not count.
const NOT_COUNTED: usize = usize::MAX;

/// The seats of routes that compute.
#[derive(Debug)]
pub(super) struct Processors {
    ready_max: usize,
    /// How many threads are ready to run, as far as it is known.
    ready: usize,
    /// How many threads of each route wait, or [`NOT_COUNTED`].
    waiting: Box<[usize]>,
    /// The number of routes that count.
    counted: usize,
}

/// What a route that computes may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Computing {
    /// How many more threads may be ready to run.
    pub(super) spare: usize,
    /// How many of the `taken` threads of the route are ready to run.
    pub(super) ready: usize,
    pub(super) taken: usize,
}

impl Processors {
    pub(super) fn of_this_machine() -> Self {
        Self::new(thread::available_parallelism().map_or(1, usize::from))
    }

    pub(super) fn new(processors: usize) -> Self {
        Self {
            ready_max: processors.saturating_mul(PER_PROCESSOR),
            ready: 0,
            waiting: vec![NOT_COUNTED; ExecutionKey::COUNT].into(),
            counted: 0,
        }
    }

    /// Returns whether so many threads are ready that one more might be in the way of others.
    pub(super) fn are_busy_with(&self, ready: usize) -> bool {
        ready > self.ready_max / 2
    }

    /// Returns whether the route counts.
    #[inline]
    pub(super) fn counts(&self, key: ExecutionKey) -> bool {
        self.waiting[key.index()] != NOT_COUNTED
    }

    /// Returns the routes that count.
    pub(super) fn routes(&self) -> Vec<ExecutionKey> {
        if self.counted == 0 {
            return Vec::new();
        }
        (0..ExecutionKey::COUNT).map(ExecutionKey::at).filter(|key| self.counts(*key)).collect()
    }

    /// Sets how many of the `taken` threads of a route wait, or that the route does not count.
    pub(super) fn set_waiting(&mut self, key: ExecutionKey, waiting: Option<usize>, taken: usize) {
        self.ready -= self.ready_of(key, taken);
        self.counted -= usize::from(self.counts(key));
        self.waiting[key.index()] = waiting.unwrap_or(NOT_COUNTED);
        self.counted += usize::from(self.counts(key));
        self.ready += self.ready_of(key, taken);
    }

    /// Records that a route now has `taken` seats, one more than before.
    #[inline]
    pub(super) fn note_taken(&mut self, key: ExecutionKey, taken: usize) {
        self.ready += usize::from(taken > self.waiting[key.index()]);
    }

    /// Records that a route now has `taken` seats, one less than before.
    #[inline]
    pub(super) fn note_released(&mut self, key: ExecutionKey, taken: usize) {
        self.ready -= usize::from(taken >= self.waiting[key.index()]);
    }

    /// Returns what a route with `taken` seats may have, or `None` if it has no bound.
    #[inline]
    pub(super) fn for_route(&self, key: ExecutionKey, taken: usize) -> Option<Computing> {
        if !self.counts(key) {
            return None;
        }
        let ready = self.ready_of(key, taken);
        if ready < LEAST && self.ready < 2 * self.ready_max {
            return None;
        }
        Some(Computing { spare: self.ready_max.saturating_sub(self.ready), ready, taken })
    }

    #[inline]
    fn ready_of(&self, key: ExecutionKey, taken: usize) -> usize {
        taken.saturating_sub(self.waiting[key.index()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ExecutionKey = ExecutionKey::at(1);
    const OTHER: ExecutionKey = ExecutionKey::at(2);

    fn take(processors: &mut Processors, key: ExecutionKey, taken: std::ops::Range<usize>) {
        taken.for_each(|taken| processors.note_taken(key, taken + 1));
    }

    fn spare(processors: &Processors, key: ExecutionKey, taken: usize) -> Option<usize> {
        processors.for_route(key, taken).map(|computing| computing.spare)
    }

    #[test]
    fn only_routes_that_compute_have_a_bound() {
        let mut processors = Processors::new(2);
        take(&mut processors, ONE, 0..500);
        assert_eq!(processors.for_route(ONE, 500), None);
        processors.set_waiting(OTHER, Some(0), 0);
        assert_eq!(processors.for_route(ONE, 500), None);
        assert_eq!(spare(&processors, OTHER, 2), Some(2 * PER_PROCESSOR), "the others wait");
        assert_eq!(processors.for_route(OTHER, LEAST - 1), None, "each route has a few");
    }

    #[test]
    fn many_routes_that_compute_do_not_have_two_threads_each() {
        let mut processors = Processors::new(2);
        let mut taken = 0;
        for route in (0..100).map(ExecutionKey::at) {
            processors.set_waiting(route, Some(0), 0);
            for own in 0..LEAST {
                let may_take = processors.for_route(route, own).is_none_or(|it| it.spare > 0);
                if may_take {
                    processors.note_taken(route, own + 1);
                    taken += 1;
                }
            }
        }
        assert_eq!(taken, 2 * 2 * PER_PROCESSOR);
    }

    #[test]
    fn threads_that_wait_do_not_count_and_new_ones_do_until_they_are_seen_to() {
        let mut processors = Processors::new(2);
        processors.set_waiting(ONE, Some(0), 0);
        take(&mut processors, ONE, 0..8);
        assert_eq!(spare(&processors, ONE, 8), Some(0));
        processors.set_waiting(ONE, Some(7), 8);
        take(&mut processors, ONE, 8..9);
        let computing = Computing { spare: 6, ready: 2, taken: 9 };
        assert_eq!(processors.for_route(ONE, 9), Some(computing));
        take(&mut processors, ONE, 9..15);
        assert_eq!(spare(&processors, ONE, 15), Some(0));
        assert_eq!(spare(&processors, OTHER, 15), None);
    }

    #[test]
    fn a_thread_that_waits_may_always_be_replaced() {
        let mut processors = Processors::new(2);
        processors.set_waiting(ONE, Some(0), 0);
        take(&mut processors, ONE, 0..8);
        take(&mut processors, OTHER, 0..10);
        processors.set_waiting(OTHER, Some(9), 10);
        assert_eq!((spare(&processors, ONE, 8), spare(&processors, OTHER, 11)), (Some(0), Some(0)));
        processors.note_released(OTHER, 9);
        processors.note_released(OTHER, 8);
        assert_eq!(processors.for_route(OTHER, 8), None, "nobody else needs what it had");
    }

    #[test]
    fn what_one_route_computes_the_others_cannot() {
        let mut processors = Processors::new(2);
        processors.set_waiting(ONE, Some(0), 0);
        processors.set_waiting(OTHER, Some(0), 0);
        take(&mut processors, ONE, 0..6);
        assert_eq!(spare(&processors, OTHER, 2), Some(2));
        processors.set_waiting(ONE, None, 6);
        assert_eq!((spare(&processors, OTHER, 2), processors.routes()), (Some(8), vec![OTHER]));
        processors.set_waiting(ONE, Some(1), 6);
        assert_eq!(spare(&processors, OTHER, 2), Some(3));
        (0..6).rev().for_each(|taken| processors.note_released(ONE, taken));
        assert_eq!(processors.ready, 0);
    }

    #[test]
    fn a_route_that_had_all_seats_before_it_counts_has_none_to_spare() {
        let mut processors = Processors::new(2);
        take(&mut processors, ONE, 0..455);
        processors.set_waiting(ONE, Some(5), 455);
        assert_eq!(spare(&processors, ONE, 455), Some(0));
        (12..455).rev().for_each(|taken| processors.note_released(ONE, taken));
        assert_eq!(spare(&processors, ONE, 12), Some(1));
    }
}
