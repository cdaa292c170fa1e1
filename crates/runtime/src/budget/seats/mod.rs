//! The seats of the pool: one per thread, shared by all routes. A request needs a seat to run on a
//! thread.
//!
//! A route may take a seat while it has fewer than eight times the free seats. This is the rule of
//! dynamic thresholds, which switches use for shared buffers. One slow route has at most eight of
//! nine seats, and two slow routes have eight of seventeen each. The rest is free for other routes.
//! So no route takes all threads, and no limit per route has to be configured. A route with half of
//! the seats or more must leave the others as many as they [had recently](rest). A request that
//! gets no seat waits in the queue of its route if it can be served in [time](backlog). The queues
//! are served in turns, and so are the clients within each queue.
//!
//! The same rule, with a smaller share, holds for each counted client in a route: one client has at
//! most two thirds of the seats there, and eight of nine seats in all routes together.
//!
//! A request that [uses](crate::Permits) a counted resource needs a permit in addition to its seat.
//! It waits for both in the same queue.
//!
//! One lock guards everything. It is held for counts and pushes only: requests are returned and
//! then run, refused or dropped outside. `README.md` beside this file explains why no request is
//! left waiting.

#[cfg(all(test, not(loom)))]
mod at_once_tests;
pub(crate) mod backlog;
#[cfg(all(test, not(loom)))]
mod client_tests;
mod computing;
#[cfg(all(test, not(loom)))]
mod computing_tests;
mod counts;
mod full;
#[cfg(all(test, loom))]
mod models;
mod processors;
mod report;
mod request;
mod rest;
mod route;
mod share;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::Weak;
use std::time::{Duration, Instant};

use self::backlog::nanoseconds;
pub(crate) use self::computing::Ready;
pub(crate) use self::full::Full;
use self::processors::Processors;
use self::request::has_permit;
pub(crate) use self::request::{Lacks, SeatRequest};
use self::route::RouteQueue;
use self::share::{
    Client, Free, client_may_take, count_released, count_taken, kind_of, release_vital,
    route_may_take, seat_obstacle, take_vital,
};
use self::state::State;
use crate::budget::fair_queue::Obstacle;
use crate::budget::permits::{NoWaiter, PermitWaiter, ShareOf};
use crate::execution::key::ExecutionKey;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A request that can no longer be refused is returned after this many times the maximum wait, so
/// that its owner can check whether its client is still there.
const BEGUN_WAITS: u64 = 8;

/// How many routes a refusal names as those that hold the threads.
const HOLDERS_MAX: usize = 3;

/// The number of seats that are reserved for vital requests. The checks of a load balancer and of a
/// supervisor fit in at the same time. Beyond these threads, a vital route that hangs takes no more
/// than other routes may.
pub(crate) const VITAL_SEATS: usize = 8;

/// The seats, and the requests that wait for one.
pub(crate) struct Seats<T> {
    seats_max: usize,
    waiting_max: usize,
    /// The maximum wait in nanoseconds.
    wait_max: u64,
    /// The start of the nanosecond clock.
    started_at: Instant,
    state: Mutex<State<T>>,
    /// Notified when a permit is free that a request waits for.
    waiter: Weak<dyn PermitWaiter>,
    /// The number of waiting requests, for [`Seats::waiting`].
    waiting: AtomicUsize,
    /// Whether any of them waits for a seat, for [`Seats::is_short`].
    is_short: AtomicBool,
    /// Whether any of them waits for processor time, for [`Seats::is_limited`].
    is_limited: AtomicBool,
}

/// The result of a search for late requests.
#[derive(Debug)]
pub(crate) struct Expired<T> {
    pub(crate) late: Vec<T>,
    /// Whether other requests may have a seat now. If so, [`Seats::next`] must be called.
    pub(crate) has_changed: bool,
    /// When to search again, if any request waits.
    pub(crate) search_in: Option<Duration>,
}

/// The result of asking for a seat.
#[derive(Debug)]
pub(crate) enum Entered<T> {
    /// The request has a seat until [`Seats::leave`], and its permit.
    Seated(T),
    /// The request waits. [`Seats::leave`], [`Seats::next`] or [`Seats::expired`] will return it.
    Waiting,
    /// As `Waiting`. In exchange this request of a client with more waiting requests is refused.
    Replaced(T),
    Refused(T, Full),
}

impl<T: SeatRequest> Seats<T> {
    /// Returns `seats_max` seats. At most `waiting_max` requests may wait for them, each for
    /// `wait_max`.
    pub(crate) fn new(seats_max: usize, waiting_max: usize, wait_max: Duration) -> Self {
        Self {
            seats_max,
            waiting_max,
            wait_max: nanoseconds(wait_max),
            started_at: Instant::now(),
            state: Mutex::new(State::new(Processors::of_this_machine())),
            waiter: Weak::<NoWaiter>::new(),
            waiting: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
            is_limited: AtomicBool::new(false),
        }
    }

    /// Sets the waiter that is notified when a permit is free that a request waits for. It must
    /// then call [`next_locked`](Self::next_locked).
    pub(crate) fn notifying(mut self, waiter: Weak<dyn PermitWaiter>) -> Self {
        self.waiter = waiter;
        self
    }

    /// Asks for a seat for a request of this route.
    pub(crate) fn enter(&self, key: ExecutionKey, mut item: T) -> Entered<T> {
        let mut state = self.state.lock();
        let free = self.free(&mut state);
        let State { taken, counts, routes, .. } = &mut *state;
        let route = routes.entry(key).or_insert_with(|| self.new_route());
        let free = counts.free_for(key, route.taken, free);
        let kept = counts.rest.kept_from(key);
        let may_route = route_may_take(route.taken, free, kept, self.seats_max);
        let has_seat = may_route && client_may_take(item.client(), key, free);
        // Requests of clients that may not have a seat now are overtaken.
        if has_seat && route.find(|other| self.obstacle(other, key, free)).is_none() {
            let waiter = &self.waiter;
            let of = self.route_of_server(key);
            if has_permit(&mut item, of, |permits, taker| permits.take_or_register(waiter, taker)) {
                if route.is_empty() {
                    route.backlog.reset();
                }
                *taken += 1;
                route.take_seat(key, counts);
                count_taken(item.client(), key);
                return Entered::Seated(item);
            }
            if route.taken == 0 {
                // Others hold the permits, so the rate of this route does not say when its turn
                // comes.
                route.backlog.reset();
            }
        }
        let lacks = if self.lacks_processor(route, counts, key, free.all, item.client()) {
            Lacks::Processor
        } else {
            Lacks::of(&item, may_route, has_seat, counts.rest.largest())
        };
        self.wait(&mut state, key, item, has_seat, lacks)
    }

    /// Queues a request, or refuses it. Another one may be refused instead.
    #[cold]
    #[inline(never)]
    fn wait(
        &self,
        state: &mut State<T>,
        key: ExecutionKey,
        mut item: T,
        has_seat: bool,
        lacks: Lacks,
    ) -> Entered<T> {
        let now = self.now();
        let client = item.client().map(|client| client.client());
        let has_begun = item.has_begun();
        let route = state.routes.entry(key).or_insert_with(|| self.new_route());
        let own = route.len_of(client);
        let before = route.len_before(own);
        let has_time = match own {
            _ if has_begun => true,
            0 => route.backlog.may_wait(now, before, route.taken),
            // Requests of the same client are in the way, which says nothing about other clients.
            _ => route.backlog.has_time(now, before, route.taken),
        };
        let mut evicted = None;
        let mut may_wait = has_time && !state.is_closed;
        if may_wait && !item.charge() {
            let full = self.full(route, key, (state.taken, &state.counts), now, &item);
            state.forget(key);
            return Entered::Refused(item, Full { lacks_memory: true, ..full });
        }
        if may_wait && !has_begun && state.waiting >= self.waiting_max {
            evicted = state.make_room(own + 1);
            may_wait = evicted.is_some();
        }
        let State { routes, turns, taken, counts, .. } = state;
        let route = routes.entry(key).or_insert_with(|| self.new_route());
        if !may_wait {
            let full = self.full(route, key, (*taken, counts), now, &item);
            return Entered::Refused(item, full);
        }
        if route.is_empty() {
            turns.push_back(key);
        }
        let waits = self.wait_max.saturating_mul(if has_begun { BEGUN_WAITS } else { 1 });
        item.waits(lacks);
        route.push(client, item, now.saturating_add(waits));
        *state.waiting_of(has_begun) += 1;
        match lacks {
            Lacks::Processor => state.is_limited = true,
            _ => state.is_short |= !has_seat,
        }
        self.publish(state);
        evicted.map_or(Entered::Waiting, Entered::Replaced)
    }

    /// Takes a seat for a task that cannot wait. Returns whether there was one.
    pub(crate) fn try_enter(&self, key: ExecutionKey, client: Client<'_>) -> bool {
        let mut state = self.state.lock();
        let all = self.free(&mut state);
        // The task cannot wait for processor time.
        let free = Free { all, computing: None };
        let State { counts, routes, .. } = &mut *state;
        let route = routes.entry(key).or_insert_with(|| self.new_route());
        let may = (route.is_empty() || self.queue_lacks_processor(route, counts, key, all))
            && route_may_take(route.taken, free, counts.rest.kept_from(key), self.seats_max)
            && client_may_take(client, key, free);
        if may {
            route.take_seat(key, counts);
            state.taken += 1;
            count_taken(client, key);
        } else {
            state.forget(key);
        }
        may
    }

    /// Takes one of the seats for vital requests. Returns whether there was one for this client.
    pub(crate) fn enter_vital(&self, client: Client<'_>) -> bool {
        let mut state = self.state.lock();
        let may = state.vital < VITAL_SEATS && take_vital(client);
        state.vital += usize::from(may);
        may
    }

    /// Releases one of the seats for vital requests. No request waits for them.
    pub(crate) fn leave_vital(&self, client: Client<'_>) {
        let mut state = self.state.lock();
        state.vital -= 1;
        release_vital(client);
    }

    /// Takes a seat even if none is free, for a task that can neither wait nor be refused.
    pub(crate) fn force(&self, key: ExecutionKey, client: Client<'_>) {
        let mut state = self.state.lock();
        let State { counts, routes, .. } = &mut *state;
        routes.entry(key).or_insert_with(|| self.new_route()).take_seat(key, counts);
        state.taken += 1;
        count_taken(client, key);
    }

    /// Exchanges a seat of one route and client for a seat of another. Returns `false` if that
    /// route or client may not take one, or requests of that route wait.
    pub(crate) fn change(
        &self,
        (from, before): (ExecutionKey, Client<'_>),
        (to, client): (ExecutionKey, Client<'_>),
    ) -> bool {
        let mut state = self.state.lock();
        let free = self.free(&mut state) + 1;
        let State { counts, routes, .. } = &mut *state;
        if let Some(route) = routes.get_mut(&from) {
            route.taken -= 1;
            counts.note_released(from, route.taken);
        }
        let route = routes.entry(to).or_insert_with(|| self.new_route());
        let free = counts.free_for(to, route.taken, free);
        let may = route.is_empty()
            && route_may_take(route.taken, free, counts.rest.kept_from(to), self.seats_max)
            && client_may_take(client, to, free);
        if may {
            route.take_seat(to, counts);
            count_taken(client, to);
            count_released(before, from);
        } else if let Some(route) = routes.get_mut(&from) {
            route.take_seat(from, counts);
        }
        state.forget(from);
        state.forget(to);
        may
    }

    /// Releases a seat of this client. Returns a request that now has one, with its route. The
    /// caller must then call [`next`](Self::next) until it returns `None`.
    pub(crate) fn leave(&self, key: ExecutionKey, client: Client<'_>) -> Option<(ExecutionKey, T)> {
        let mut state = self.state.lock();
        state.taken -= 1;
        count_released(client, key);
        state.release(key);
        self.seat_next(&mut state)
    }

    /// Returns a waiting request that now has a seat, with its route.
    pub(crate) fn next(&self) -> Option<(ExecutionKey, T)> {
        if self.waiting() == 0 {
            return None;
        }
        self.next_locked()
    }

    /// As [`next`](Self::next), for a waiter that was notified of a permit. It always takes the
    /// lock, because the request that asked for the permit may still be on its way into its queue
    /// under that lock.
    pub(crate) fn next_locked(&self) -> Option<(ExecutionKey, T)> {
        self.seat_next(&mut self.state.lock())
    }

    /// Returns how many requests wait, or waited a moment ago.
    pub(crate) fn waiting(&self) -> usize {
        // Relaxed: a thread that sees a new value late checks again after its next request.
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns whether a request waits for a seat, or did a moment ago. A thread could release its
    /// seat for such a request, but not for requests that wait for permits.
    pub(crate) fn is_short(&self) -> bool {
        // Relaxed for the same reason.
        self.is_short.load(Ordering::Relaxed)
    }

    /// Removes the requests that have waited for too long. After that, the first request of a queue
    /// may need less than the removed one, and seats may no longer be kept.
    pub(crate) fn expired(&self) -> Expired<T> {
        let mut late = Vec::new();
        if self.waiting() == 0 {
            return Expired { late, has_changed: false, search_in: None };
        }
        let mut next: Option<u64> = None;
        let mut state = self.state.lock();
        let now = self.now();
        let is_renewed = state.counts.rest.renew(now);
        let State { routes, turns, .. } = &mut *state;
        turns.retain(|key| {
            let Some(route) = routes.get_mut(key) else { return false };
            let look_at = route.remove_late(now, self.wait_max, &mut late);
            next = next.into_iter().chain(look_at).min();
            look_at.is_some()
        });
        late.iter().for_each(|item| *state.waiting_of(item.has_begun()) -= 1);
        self.publish(&state);
        let next = next.map(|at| at.min(state.counts.rest.period_ends()));
        Expired {
            has_changed: is_renewed || !late.is_empty(),
            late,
            search_in: next.map(|at| Duration::from_nanos(at.saturating_sub(now))),
        }
    }

    /// Refuses to queue requests from now on. Returns the waiting ones.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut state = self.state.lock();
        state.is_closed = true;
        (state.waiting, state.begun) = (0, 0);
        state.turns.clear();
        self.publish(&state);
        state.routes.values_mut().flat_map(RouteQueue::clear).collect()
    }

    fn seat_next(&self, state: &mut State<T>) -> Option<(ExecutionKey, T)> {
        let (mut is_short, mut is_limited) = (false, false);
        let free = self.free(state);
        for _ in 0..state.turns.len() {
            let key = state.turns.pop_front()?;
            let Some(route) = state.routes.get_mut(&key) else { continue };
            let kept = state.counts.rest.kept_from(key);
            let all = free;
            let free = state.counts.free_for(key, route.taken, all);
            let has_seat = route_may_take(route.taken, free, kept, self.seats_max);
            let mut find = || route.find(|item| self.obstacle(item, key, free));
            let turn = if has_seat { find() } else { None };
            if turn.is_none() && !route.is_empty() {
                let lacks_processor = self.queue_lacks_processor(route, &state.counts, key, all);
                is_limited |= lacks_processor;
                is_short |= !lacks_processor;
            }
            let first = turn.and_then(|turn| route.get_mut(turn));
            let of = self.route_of_server(key);
            let may = first.is_some_and(|first| {
                has_permit(first, of, |permits, taker| permits.take_in_turn(&self.waiter, taker))
            });
            let item = turn.filter(|_| may).and_then(|turn| route.take(turn));
            if !route.is_empty() {
                state.turns.push_back(key);
            }
            let Some(item) = item else { continue };
            route.backlog.served(self.now());
            route.take_seat(key, &mut state.counts);
            if route.is_empty() {
                // No request of the route waits any more. The next wait will have another cause.
                route.backlog.reset();
            }
            state.taken += 1;
            count_taken(item.client(), key);
            *state.waiting_of(item.has_begun()) -= 1;
            self.publish(state);
            return Some((key, item));
        }
        state.is_short = is_short;
        state.is_limited = is_limited;
        self.publish(state);
        None
    }

    /// Returns what keeps a request from one of the `free` seats, and from a permit as soon as one
    /// is free. It is the share of its client or its network, and other clients overtake it.
    fn obstacle(&self, item: &T, key: ExecutionKey, free: Free) -> Option<Obstacle> {
        if let Some(obstacle) = seat_obstacle(item, key, free) {
            return Some(obstacle);
        }
        let client = item.client()?.client();
        Some(match item.permits()?.share_or_register(&self.waiter, client)? {
            ShareOf::Client => Obstacle::Own,
            ShareOf::Network => Obstacle::Network(kind_of(item)),
        })
    }

    /// Updates the values that threads read without the lock. Compares first, because each store
    /// invalidates the cache line of all threads.
    fn publish(&self, state: &State<T>) {
        let waiting = state.waiting + state.begun;
        if self.waiting.load(Ordering::Relaxed) != waiting {
            self.waiting.store(waiting, Ordering::Relaxed);
        }
        let is_short = state.is_short && waiting > 0;
        if self.is_short.load(Ordering::Relaxed) != is_short {
            self.is_short.store(is_short, Ordering::Relaxed);
        }
        let is_limited = state.is_limited && waiting > 0;
        if self.is_limited.load(Ordering::Relaxed) != is_limited {
            self.is_limited.store(is_limited, Ordering::Relaxed);
        }
    }

    fn new_route(&self) -> RouteQueue<T> {
        RouteQueue::new(self.wait_max)
    }

    /// Returns the number of free seats. Looks at the clock if all of them are kept for other
    /// routes.
    #[inline]
    fn free(&self, state: &mut State<T>) -> usize {
        let free = self.seats_max.saturating_sub(state.taken);
        if state.counts.rest.kept() >= free {
            state.counts.rest.renew(self.now());
        }
        free
    }

    fn now(&self) -> u64 {
        nanoseconds(self.started_at.elapsed())
    }
}

impl<T: SeatRequest> fmt::Debug for Seats<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seats")
            .field("seats_max", &self.seats_max)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
