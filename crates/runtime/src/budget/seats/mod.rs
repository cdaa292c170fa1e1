//! The seats of the pool: one per thread, shared by all routes. A request needs a seat to run on a
//! thread.
//!
//! A route may take a seat while it has fewer than [`SHARE`] times the free seats. This is the rule
//! of dynamic thresholds, which switches use for shared buffers. One slow route has at most eight
//! of nine seats, and two slow routes have eight of seventeen each. The rest is free for other
//! routes. So no route takes all threads, and no limit per route has to be configured. A request
//! that gets no seat waits in the queue of its route if it can be served in [time](backlog). The
//! queues are served in turns.
//!
//! A request that [uses](crate::Permits) a counted resource needs a permit beside its seat. It
//! waits for both in the same queue.
//!
//! One lock guards everything. It is held for counts and pushes only: requests are returned and
//! then run, refused or dropped outside. `README.md` beside this file explains why no request is
//! left waiting.

mod backlog;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Weak;
use std::time::{Duration, Instant};

use self::backlog::Backlog;
use crate::budget::permits::{NoWaiter, Permit, PermitWaiter, Permits};
use crate::execution::key::ExecutionKey;
use crate::sorted::insert_sorted;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A route may have this many times the free seats. With eight, a ninth of the seats is left for
/// the others.
const SHARE: usize = 8;

/// How many routes a refusal names as those that hold the threads.
const HOLDERS_MAX: usize = 3;

/// The number of seats that are reserved for vital requests. The checks of a load balancer and of a
/// supervisor fit in at the same time. A vital route that hangs takes no more than these threads
/// beyond those of the others.
pub(crate) const VITAL_SEATS: usize = 8;

/// A request that asks for a seat, and may need a permit too.
pub(crate) trait SeatRequest {
    /// Returns the permits that it uses, if it has no permit yet.
    fn permits(&self) -> Option<&Permits> {
        None
    }

    /// Stores its permit.
    fn hold(&mut self, permit: Permit) {
        drop(permit);
    }
}

/// The seats, and the requests that wait for one.
pub(crate) struct Seats<T> {
    seats_max: usize,
    waiting_max: usize,
    wait_max: Duration,
    /// The start of the nanosecond clock.
    started_at: Instant,
    state: Mutex<State<T>>,
    /// Notified when a permit is free that a request waits for.
    waiter: Weak<dyn PermitWaiter>,
    /// The number of waiting requests, for [`Seats::waiting`].
    waiting: AtomicUsize,
    /// Whether any of them waits for a seat, for [`Seats::is_short`].
    is_short: AtomicBool,
}

struct State<T> {
    taken: usize,
    /// The taken seats of vital requests, which are not counted in `taken`.
    vital: usize,
    waiting: usize,
    /// Whether a waiting route had no seat to spare when it was last checked. The other waiting
    /// routes wait for permits.
    is_short: bool,
    routes: HashMap<ExecutionKey, RouteQueue<T>>,
    /// The routes with waiting requests. The next one to serve is in front.
    turns: VecDeque<ExecutionKey>,
    is_closed: bool,
}

/// One route: its seats and its waiting requests.
struct RouteQueue<T> {
    taken: usize,
    waiting: VecDeque<QueuedRequest<T>>,
    backlog: Backlog,
}

struct QueuedRequest<T> {
    item: T,
    since: u64,
}

/// The result of asking for a seat.
#[derive(Debug)]
pub(crate) enum Entered<T> {
    /// The request has a seat until [`Seats::leave`], and its permit.
    Seated(T),
    /// The request waits. [`Seats::leave`], [`Seats::next`] or [`Seats::expired`] will return it.
    Waiting,
    Refused(T, Full),
}

/// The reason why there is no seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// The seats of the route.
    pub(crate) taken: usize,
    /// The taken seats of all routes.
    pub(crate) taken_in_all: usize,
    pub(crate) seats_max: usize,
    /// The waiting requests of the route.
    pub(crate) waiting: usize,
    /// How long one more request would have waited, if that is known.
    pub(crate) wait: Option<Duration>,
    /// The permits that the request needs beside a seat.
    pub(crate) permits: Option<Permits>,
}

impl<T: SeatRequest> Seats<T> {
    /// Returns `seats_max` seats. At most `waiting_max` requests may wait for them, each for
    /// `wait_max`.
    pub(crate) fn new(seats_max: usize, waiting_max: usize, wait_max: Duration) -> Self {
        let state = State {
            taken: 0,
            vital: 0,
            waiting: 0,
            is_short: false,
            routes: HashMap::new(),
            turns: VecDeque::new(),
            is_closed: false,
        };
        Self {
            seats_max,
            waiting_max,
            wait_max,
            started_at: Instant::now(),
            state: Mutex::new(state),
            waiter: Weak::<NoWaiter>::new(),
            waiting: AtomicUsize::new(0),
            is_short: AtomicBool::new(false),
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
        let State { taken, waiting, is_short, routes, turns, is_closed, .. } = &mut *state;
        let route = routes.entry(key).or_insert_with(|| RouteQueue::new(self.wait_max));
        let has_seat = may_take(route.taken, *taken, self.seats_max);
        if route.waiting.is_empty() && has_seat {
            if has_permit(&mut item, |permits| permits.take_or_register(&self.waiter)) {
                route.backlog.reset();
                route.taken += 1;
                *taken += 1;
                return Entered::Seated(item);
            }
            if route.taken == 0 {
                // Others hold the permits, so the rate of this route does not say when its turn
                // comes.
                route.backlog.reset();
            }
        }
        let now = self.now();
        let behind = route.waiting.len();
        if *is_closed
            || *waiting >= self.waiting_max
            || !route.backlog.may_wait(now, behind, route.taken)
        {
            let full = self.full(route, *taken, now, item.permits().cloned());
            return Entered::Refused(item, full);
        }
        if behind == 0 {
            turns.push_back(key);
        }
        route.waiting.push_back(QueuedRequest { item, since: now });
        *waiting += 1;
        *is_short |= !has_seat;
        self.publish(&state);
        Entered::Waiting
    }

    /// Takes a seat for a task that cannot wait. Returns whether there was one.
    pub(crate) fn try_enter(&self, key: ExecutionKey) -> bool {
        let mut state = self.state.lock();
        let taken = state.taken;
        let route = state.routes.entry(key).or_insert_with(|| RouteQueue::new(self.wait_max));
        let may = route.waiting.is_empty() && may_take(route.taken, taken, self.seats_max);
        if may {
            route.taken += 1;
            state.taken += 1;
        } else {
            state.forget(key);
        }
        may
    }

    /// Takes one of the seats for vital requests. Returns whether there was one.
    pub(crate) fn enter_vital(&self) -> bool {
        let vital = &mut self.state.lock().vital;
        let may = *vital < VITAL_SEATS;
        *vital += usize::from(may);
        may
    }

    /// Releases one of the seats for vital requests. No request waits for them.
    pub(crate) fn leave_vital(&self) {
        self.state.lock().vital -= 1;
    }

    /// Takes a seat even if none is free, for a task that can no longer be refused.
    pub(crate) fn force(&self, key: ExecutionKey) {
        let mut state = self.state.lock();
        state.routes.entry(key).or_insert_with(|| RouteQueue::new(self.wait_max)).taken += 1;
        state.taken += 1;
    }

    /// Exchanges a seat of one route for a seat of another. Returns `false` if the other route may
    /// not take one or has waiting requests.
    pub(crate) fn change(&self, from: ExecutionKey, to: ExecutionKey) -> bool {
        let mut state = self.state.lock();
        let taken = state.taken - 1;
        let route = state.routes.entry(to).or_insert_with(|| RouteQueue::new(self.wait_max));
        if !route.waiting.is_empty() || !may_take(route.taken, taken, self.seats_max) {
            state.forget(to);
            return false;
        }
        route.taken += 1;
        state.release(from);
        true
    }

    /// Releases a seat. Returns a request that now has one, with its route. The caller must then
    /// call [`next`](Self::next) until it returns `None`.
    pub(crate) fn leave(&self, key: ExecutionKey) -> Option<(ExecutionKey, T)> {
        let mut state = self.state.lock();
        state.taken -= 1;
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

    /// Removes the requests that have waited for too long. Also returns when to check again.
    pub(crate) fn expired(&self) -> (Vec<T>, Option<Duration>) {
        let mut expired = Vec::new();
        if self.waiting() == 0 {
            return (expired, None);
        }
        let mut next: Option<u64> = None;
        let mut state = self.state.lock();
        let wait_max = nanoseconds(self.wait_max);
        let now = self.now();
        let State { waiting, routes, turns, .. } = &mut *state;
        turns.retain(|key| {
            let Some(route) = routes.get_mut(key) else { return false };
            let late =
                route.waiting.iter().take_while(|waiting| now >= waiting.since + wait_max).count();
            expired.extend(route.waiting.drain(..late).map(|waiting| waiting.item));
            let left = route.waiting.front().map(|first| first.since + wait_max - now);
            next = next.into_iter().chain(left).min();
            left.is_some()
        });
        *waiting -= expired.len();
        self.publish(&state);
        (expired, next.map(Duration::from_nanos))
    }

    /// Returns the reason why this request of the route waits.
    pub(crate) fn why(&self, key: ExecutionKey, item: &T) -> Full {
        let mut state = self.state.lock();
        let taken = state.taken;
        let route = state.routes.entry(key).or_insert_with(|| RouteQueue::new(self.wait_max));
        let full = self.full(route, taken, self.now(), item.permits().cloned());
        state.forget(key);
        full
    }

    /// Returns the routes that have the most seats, with their numbers of seats, the largest first.
    pub(crate) fn holders(&self) -> Vec<(ExecutionKey, usize)> {
        let state = self.state.lock();
        let taken = state.routes.iter().map(|(key, route)| (*key, route.taken));
        let mut holders = Vec::new();
        for holder in taken.filter(|(_, taken)| *taken > 0) {
            insert_sorted(&mut holders, holder, HOLDERS_MAX, |(key, taken)| {
                (Reverse(*taken), key.index())
            });
        }
        holders
    }

    /// Refuses to queue requests from now on. Returns the waiting ones.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting = 0;
        state.turns.clear();
        self.publish(&state);
        state
            .routes
            .values_mut()
            .flat_map(|route| route.waiting.drain(..))
            .map(|waiting| waiting.item)
            .collect()
    }

    fn seat_next(&self, state: &mut State<T>) -> Option<(ExecutionKey, T)> {
        let mut is_short = false;
        for _ in 0..state.turns.len() {
            let key = state.turns.pop_front()?;
            let Some(route) = state.routes.get_mut(&key) else { continue };
            let Some(first) = route.waiting.front_mut() else { continue };
            let has_seat = may_take(route.taken, state.taken, self.seats_max);
            if !has_seat
                || !has_permit(&mut first.item, |permits| permits.take_in_turn(&self.waiter))
            {
                is_short |= !has_seat;
                state.turns.push_back(key);
                continue;
            }
            let Some(first) = route.waiting.pop_front() else { continue };
            route.backlog.served(self.now());
            route.taken += 1;
            if route.waiting.is_empty() {
                // No request of the route waits any more. The next wait will have another cause.
                route.backlog.reset();
            } else {
                state.turns.push_back(key);
            }
            state.taken += 1;
            state.waiting -= 1;
            self.publish(state);
            return Some((key, first.item));
        }
        state.is_short = is_short;
        self.publish(state);
        None
    }

    /// Updates the values that threads read without the lock. Compares first, because each store
    /// invalidates the cache line of all threads.
    fn publish(&self, state: &State<T>) {
        if self.waiting.load(Ordering::Relaxed) != state.waiting {
            self.waiting.store(state.waiting, Ordering::Relaxed);
        }
        let is_short = state.is_short && state.waiting > 0;
        if self.is_short.load(Ordering::Relaxed) != is_short {
            self.is_short.store(is_short, Ordering::Relaxed);
        }
    }

    fn full(
        &self,
        route: &RouteQueue<T>,
        taken_in_all: usize,
        now: u64,
        permits: Option<Permits>,
    ) -> Full {
        let waiting = route.waiting.len();
        let wait = route.backlog.wait_for(now, waiting).map(Duration::from_nanos);
        Full { taken: route.taken, taken_in_all, seats_max: self.seats_max, waiting, wait, permits }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.started_at.elapsed())
    }
}

impl<T> State<T> {
    /// Releases a seat of a route.
    fn release(&mut self, key: ExecutionKey) {
        if let Some(route) = self.routes.get_mut(&key) {
            route.taken -= 1;
        }
        self.forget(key);
    }

    /// Removes the entry of a route without seats and waiting requests.
    fn forget(&mut self, key: ExecutionKey) {
        if self.routes.get(&key).is_some_and(|route| route.taken == 0 && route.waiting.is_empty()) {
            self.routes.remove(&key);
        }
    }
}

impl<T> RouteQueue<T> {
    fn new(wait_max: Duration) -> Self {
        Self { taken: 0, waiting: VecDeque::new(), backlog: Backlog::new(nanoseconds(wait_max)) }
    }
}

/// Returns whether a request has the permit that it needs. Takes one if necessary.
fn has_permit<T: SeatRequest>(item: &mut T, take: impl FnOnce(&Permits) -> Option<Permit>) -> bool {
    let Some(permits) = item.permits() else { return true };
    let Some(permit) = take(permits) else { return false };
    item.hold(permit);
    true
}

/// Returns whether a route with `taken` seats may take one more.
const fn may_take(taken: usize, taken_in_all: usize, seats_max: usize) -> bool {
    taken < seats_max.saturating_sub(taken_in_all).saturating_mul(SHARE)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, taken_in_all, seats_max, waiting, .. } = self;
        write!(
            f,
            "the route has {taken} of {seats_max} threads, {taken_in_all} are taken, {waiting} of \
             its requests wait"
        )?;
        match &self.permits {
            Some(permits) => {
                write!(
                    f,
                    ", {} of {} permits \"{}\" are free",
                    permits.available(),
                    permits.count(),
                    permits.name()
                )
            }
            None => Ok(()),
        }
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
