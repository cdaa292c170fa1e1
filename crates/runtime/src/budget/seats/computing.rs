//! Routes whose calls compute: how many threads they may have, and when they wait for processor
//! time.

use super::Seats;
use super::counts::Counts;
#[cfg(all(test, not(loom)))]
use super::processors::Processors;
use super::request::SeatRequest;
use super::route::RouteQueue;
use super::share::{Client, Free, client_may_take, route_may_take, seat_obstacle};
use super::state::State;
use crate::execution::key::ExecutionKey;
use crate::sync::atomic::Ordering;

/// While the processors are not busy, each look allows a route one more thread for this many that
/// it has, in addition to those that may compute.
const GROWTH: usize = 8;

/// What was seen of the threads of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) key: ExecutionKey,
    /// How many are ready to run.
    pub(crate) threads: usize,
    /// Whether its calls compute more than they wait. When such a route is called again, it may not
    /// begin with all threads at once.
    pub(crate) mostly_computes: bool,
}

impl<T: SeatRequest> Seats<T> {
    #[cfg(all(test, not(loom)))]
    pub(super) fn on_processors(self, processors: usize) -> Self {
        self.state.lock().counts.processors = Processors::new(processors);
        self
    }

    /// Returns whether requests of this route wait for processor time, or did a moment ago. A
    /// thread that goes on with another request of the route would overtake them.
    pub(crate) fn is_limited(&self, key: ExecutionKey) -> bool {
        // Relaxed: a thread that sees a new value late checks again after its next request.
        self.is_limited.load(Ordering::Relaxed) && {
            let state = self.state.lock();
            state.counts.processors.counts(key)
                && state.routes.get(&key).is_some_and(|route| !route.is_empty())
        }
    }

    /// Returns whether a thread that goes on with a request of this route would overtake requests
    /// that wait for a seat.
    #[inline]
    pub(crate) fn would_overtake(&self, key: ExecutionKey) -> bool {
        self.is_short() || self.is_limited(key)
    }

    /// Returns whether requests of any route wait for processor time.
    pub(crate) fn are_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Lets a route begin with few threads, because its calls probably compute.
    pub(crate) fn presume_computing(&self, key: ExecutionKey) {
        let mut state = self.state.lock();
        let State { counts, routes, .. } = &mut *state;
        if !counts.processors.counts(key) {
            let taken = routes.get(&key).map_or(0, |route| route.taken);
            counts.processors.set_waiting(key, Some(0), taken);
        }
    }

    /// Returns the routes that compute. `None` if there are none and so few seats are taken that it
    /// does not matter which routes compute.
    pub(crate) fn computing(&self) -> Option<Vec<ExecutionKey>> {
        let state = self.state.lock();
        let processors = &state.counts.processors;
        let routes = processors.routes();
        (!routes.is_empty() || processors.are_busy_with(state.taken)).then_some(routes)
    }

    /// Records how many threads of these routes are ready to run. Returns whether waiting requests
    /// may have seats because of that. If so, [`next`](Self::next) must be called.
    pub(crate) fn note_ready(&self, seen: &[Ready]) -> bool {
        let mut state = self.state.lock();
        let State { counts, routes, .. } = &mut *state;
        let processors = &mut counts.processors;
        let are_busy = processors.are_busy_with(seen.iter().map(|seen| seen.threads).sum());
        for &Ready { key, threads, mostly_computes } in seen {
            let route = routes.get(&key);
            let taken = route.map_or(0, |route| route.taken);
            let is_counted = mostly_computes
                || are_busy && threads > 0
                || processors.counts(key) && route.is_some_and(|route| !route.is_empty());
            // Without this, a route whose calls wait again would get its threads one by one.
            let more = if are_busy { 0 } else { taken / GROWTH };
            let waiting = is_counted.then(|| taken.saturating_sub(threads) + more);
            processors.set_waiting(key, waiting, taken);
        }
        state.is_limited && state.waiting + state.begun > 0
    }

    /// Returns whether a request of this client lacks only processor time: it may not have one of
    /// the `free` seats of a route, but could have one if no call computed.
    pub(super) fn lacks_processor(
        &self,
        route: &RouteQueue<T>,
        counts: &Counts,
        key: ExecutionKey,
        free: usize,
        client: Client<'_>,
    ) -> bool {
        let taken = route.taken;
        self.would_have_seat(taken, counts, key, free, |free| client_may_take(client, key, free))
    }

    /// As [`lacks_processor`](Self::lacks_processor), for the requests that wait: whether any of
    /// them could have the seat.
    pub(super) fn queue_lacks_processor(
        &self,
        route: &mut RouteQueue<T>,
        counts: &Counts,
        key: ExecutionKey,
        free: usize,
    ) -> bool {
        let taken = route.taken;
        self.would_have_seat(taken, counts, key, free, |free| {
            route.find(|item| seat_obstacle(item, key, free)).is_some()
        })
    }

    fn would_have_seat(
        &self,
        taken: usize,
        counts: &Counts,
        key: ExecutionKey,
        free: usize,
        mut may_client: impl FnMut(Free) -> bool,
    ) -> bool {
        let free = counts.free_for(key, taken, free);
        if free.computing.is_none() {
            return false;
        }
        let kept = counts.rest.kept_from(key);
        let mut may_take =
            |free| route_may_take(taken, free, kept, self.seats_max) && may_client(free);
        !may_take(free) && may_take(Free { computing: None, ..free })
    }
}
