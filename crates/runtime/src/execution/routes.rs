//! The measurements of all routes, shared by the loops and threads of one server.
//!
//! A request reads one number of its route here. Everything else is accessed only for sampled
//! calls, at most one in sixteen.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::key::{Execution, ExecutionKey, Route};
use super::looks::{COMPUTES_MIN, Share};
use super::metrics::{RouteMetrics, Runs, Why};
use super::policy::{ALWAYS, CallTimes, NEVER_CALLED, OnLoop, Others, Place, Shared};

/// The assumed price of a dispatch before one was measured.
const PRICE_AT_FIRST: Duration = Duration::from_micros(10);

/// The bounds of a measured price. A lower measurement does not include what other threads pay. A
/// higher one includes time in which the leader was preempted.
const PRICE_MIN: Duration = Duration::from_micros(5);
const PRICE_MAX: Duration = Duration::from_micros(40);

/// The maximum length of a path that is kept as the name of a route.
const NAME_CHARS_MAX: usize = 64;

/// The parts of a request that name its route.
pub(crate) trait RouteSource {
    /// Returns the number that the service gave to the route.
    fn route(&self) -> Option<u32>;
    fn path(&self) -> &str;
}

/// The routes of one server.
#[derive(Debug)]
pub(crate) struct Routes {
    /// [`Shared::others_max`] of each route. Separate from the rest, which samples change often.
    others_max: Box<[AtomicU32]>,
    entries: Box<[Entry]>,
    /// The average price of a dispatch for the loop and for the thread that takes over.
    price_ns: AtomicU32,
}

/// The state of one route.
#[derive(Debug, Default)]
struct Entry {
    known: Mutex<Known>,
    /// Whether long calls wait, according to the last close samples. If so, it is not necessary to
    /// sample every call.
    waits: AtomicBool,
    /// [`Shared::is_counting`], readable without the lock.
    is_counting: AtomicBool,
    on_loops: Counted,
    on_pool: Counted,
    /// The average computing time of a call in microseconds, plus one. 0 if it is not known.
    ran_us: AtomicU32,
    /// A [`Share`].
    ready: AtomicU8,
}

/// The number of calls, and the extrapolated times of the measured ones.
#[derive(Debug, Default)]
struct Counted {
    calls: AtomicU64,
    computing_ns: AtomicU64,
    waiting_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    policy: Shared,
    name: Option<Name>,
    since: Option<Instant>,
    why: Why,
}

#[derive(Clone, Debug)]
enum Name {
    Number(u32),
    /// The path of the first request.
    Path(Box<str>),
}

/// A route whose calls run on the pool from now on.
#[derive(Debug)]
pub(crate) struct Left {
    route: Option<Name>,
    why: Why,
}

impl Left {
    /// Logs it. The program's code runs, which may block: no loop may wait for it without a leader.
    pub(crate) fn tell(self) {
        let Self { route, why } = self;
        tracing::debug!(?route, ?why, "a route holds the event loops: its calls run on the pool");
    }
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self {
            others_max: (0..ExecutionKey::COUNT).map(|_| AtomicU32::new(NEVER_CALLED)).collect(),
            entries: (0..ExecutionKey::COUNT).map(|_| Entry::default()).collect(),
            price_ns: AtomicU32::new(ns(PRICE_AT_FIRST)),
        }
    }

    /// Returns whether a call of this route runs on the loop that has read its request. The first
    /// call names the route.
    #[inline]
    pub(crate) fn runs_here(
        &self,
        route: Route,
        source: Option<&dyn RouteSource>,
        others: impl FnOnce() -> Others,
    ) -> bool {
        match route.execution {
            Execution::Learned => {
                let others_max = self.others_max[route.key.index()].load(Ordering::Relaxed);
                others_max == ALWAYS || self.runs_here_slow(route.key, source, others_max, others)
            }
            Execution::Inline => true,
            Execution::Dispatched => false,
        }
    }

    #[cold]
    fn runs_here_slow(
        &self,
        key: ExecutionKey,
        source: Option<&dyn RouteSource>,
        others_max: u32,
        others: impl FnOnce() -> Others,
    ) -> bool {
        if others_max == NEVER_CALLED {
            if let Some(source) = source {
                self.name(key, source);
            }
            return true;
        }
        others_max > 0 && is_alone(others(), others_max)
    }

    /// Returns whether calls of this route may hold their thread for long.
    pub(crate) fn may_block(&self, route: Route) -> bool {
        !self.runs_here(route, None, || Others { are_ready: true, per_second: u32::MAX })
    }

    /// Returns whether the route was never called.
    #[inline]
    pub(crate) fn is_new(&self, key: ExecutionKey) -> bool {
        self.others_max[key.index()].load(Ordering::Relaxed) == NEVER_CALLED
    }

    /// Stores the name of a route for the metrics.
    #[cold]
    pub(crate) fn name(&self, key: ExecutionKey, source: &dyn RouteSource) {
        let place = &self.others_max[key.index()];
        let _ = place.compare_exchange(NEVER_CALLED, ALWAYS, Ordering::Relaxed, Ordering::Relaxed);
        let mut known = self.entries[key.index()].known.lock();
        if known.name.is_none() {
            known.name = Some(match source.route() {
                Some(number) => Name::Number(number),
                None => Name::Path(source.path().chars().take(NAME_CHARS_MAX).collect()),
            });
        }
    }

    /// Counts a call that has begun on a loop. A sample stands for the calls between it and the
    /// last one. A call that would have been measured in any case stands for itself only, even if
    /// it is a sample, because all calls of its kind are counted.
    pub(crate) fn count_on_loop(&self, key: ExecutionKey, stands_for: u32, took: CallTimes) {
        self.entries[key.index()].on_loops.add(stands_for.into(), took);
    }

    /// As [`count_on_loop`](Self::count_on_loop), for a call on the pool.
    pub(crate) fn count_on_pool(&self, key: ExecutionKey, stands_for: u32, took: CallTimes) {
        self.entries[key.index()].on_pool.add(stands_for.into(), took);
    }

    /// Records a sample of a call on a loop. Returns the new place of the route if it moved.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_on_loop(
        &self,
        key: ExecutionKey,
        on_loop: &mut OnLoop,
        took: CallTimes,
        others: Others,
    ) -> Option<Place> {
        let price = self.price();
        if self.others_max[key.index()].load(Ordering::Relaxed) < NEVER_CALLED {
            // The call ran here because the loop was idle.
            on_loop.record(took, Others::default(), price);
            return self.judge(key, took, price).then_some(Place::Loop);
        }
        if on_loop.record(took, others, price) {
            on_loop.start_over();
            let held = took.held().unwrap_or(took.wall);
            let why = match took.waited {
                Some(waited) if waited * 2 > held => Why::Waited(waited),
                _ => Why::Computed(held),
            };
            return self.leave(key, held, why).map(Left::tell).map(|()| Place::Pool);
        }
        None
    }

    /// Records that the watchdog has taken a loop from a call of this route. Returns what to tell
    /// if the route leaves the loops because of that.
    pub(crate) fn caught(
        &self,
        key: ExecutionKey,
        on_loop: &mut OnLoop,
        held: Duration,
    ) -> Option<Left> {
        // A route on the pool ran here because the loop was idle. One catch is enough for it.
        let is_known = self.others_max[key.index()].load(Ordering::Relaxed) < NEVER_CALLED;
        if !on_loop.caught(held, self.price()) && !is_known {
            return None;
        }
        on_loop.start_over();
        self.leave(key, held, Why::Caught)
    }

    /// Records that a call of this route ran for too long on a loop, and that the watchdog found no
    /// thread to take over the loop.
    pub(crate) fn stuck(&self, key: ExecutionKey, held: Duration) -> Option<Left> {
        self.leave(key, held, Why::Caught)
    }

    /// Records a sample of a call on the pool. Returns whether the route returns to the loops.
    #[cold]
    pub(crate) fn record_on_pool(&self, key: ExecutionKey, took: CallTimes) -> bool {
        let entry = &self.entries[key.index()];
        if let Some(waits) = took.waits() {
            entry.waits.store(waits, Ordering::Relaxed);
        }
        self.judge(key, took, self.price())
    }

    /// Records the duration of a call on the pool. Returns whether the route returns to the loops.
    #[inline]
    pub(crate) fn ran_on_pool(&self, key: ExecutionKey, took: CallTimes) -> bool {
        let entry = &self.entries[key.index()];
        let is_quick = took.held_on_pool().is_some_and(|held| held.is_zero());
        // A call that waited is informative only if earlier calls were quick.
        let tells = is_quick || entry.waits.load(Ordering::Relaxed);
        if !tells || !(is_quick || entry.is_counting.load(Ordering::Relaxed)) {
            return false;
        }
        self.count(key, if is_quick { Duration::ZERO } else { took.wall })
    }

    #[inline(never)]
    fn count(&self, key: ExecutionKey, held: Duration) -> bool {
        let price = self.price();
        self.with_policy(key, |policy, calls| policy.count(held, price, calls))
    }

    fn judge(&self, key: ExecutionKey, took: CallTimes, price: Duration) -> bool {
        self.with_policy(key, |policy, calls| policy.record(took, price, calls))
    }

    /// Lets the policy of a route evaluate a call, and logs if the route returns to the loops.
    fn with_policy(&self, key: ExecutionKey, judge: impl FnOnce(&mut Shared, u64) -> bool) -> bool {
        let entry = &self.entries[key.index()];
        let calls_on_loops = entry.on_loops.calls.load(Ordering::Relaxed);
        let mut known = entry.known.lock();
        let is_back = judge(&mut known.policy, calls_on_loops);
        if is_back {
            known.changes(Why::Quick);
        }
        let others_max = known.policy.others_max(self.price());
        let is_counting = known.policy.is_counting();
        let name = known.name.clone().filter(|_| is_back);
        drop(known);
        self.publish(key, others_max);
        if entry.is_counting.load(Ordering::Relaxed) != is_counting {
            entry.is_counting.store(is_counting, Ordering::Relaxed);
        }
        if is_back {
            tracing::debug!(
                route = ?name,
                "a route is quick again: its calls run on the event loops"
            );
        }
        is_back
    }

    /// Records how long a call has computed, if that was measured. Returns whether it was the first
    /// one of the route, and computed rather than waited.
    pub(crate) fn note_ran(&self, key: ExecutionKey, took: CallTimes) -> bool {
        let Some(ran) = took.ran else { return false };
        let entry = &self.entries[key.index()];
        let us = u32::try_from(ran.as_micros()).unwrap_or(u32::MAX).min(u32::MAX / 16);
        let known = entry.ran_us.load(Ordering::Relaxed).checked_sub(1);
        let now = known.map_or(us, |known| known - known / 8 + us / 8);
        // A lost update is harmless, because the next one follows.
        entry.ran_us.store(now + 1, Ordering::Relaxed);
        let computes = |us: u32| Duration::from_micros(us.into()) >= COMPUTES_MIN;
        // After the first call, looks are more reliable than a single call.
        if !computes(now) || known.is_some() {
            return false;
        }
        let share = Share::of(ran, took.waited.unwrap_or_default());
        self.set_ready(key, share);
        share.is_large()
    }

    /// Returns whether calls of a route compute for so long that they are in the way of others.
    /// `None` if that is not known.
    pub(crate) fn computes(&self, key: ExecutionKey) -> Option<bool> {
        let us = self.entries[key.index()].ran_us.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_micros(us.into()) >= COMPUTES_MIN)
    }

    /// Returns the share of their time in which the calls of a route are ready to run.
    pub(crate) fn ready(&self, key: ExecutionKey) -> Share {
        Share(self.entries[key.index()].ready.load(Ordering::Relaxed))
    }

    pub(crate) fn set_ready(&self, key: ExecutionKey, share: Share) {
        self.entries[key.index()].ready.store(share.0, Ordering::Relaxed);
    }

    fn leave(&self, key: ExecutionKey, held: Duration, why: Why) -> Option<Left> {
        let entry = &self.entries[key.index()];
        let calls_on_loops = entry.on_loops.calls.load(Ordering::Relaxed);
        let mut known = entry.known.lock();
        let is_new = known.policy.leave(held, calls_on_loops);
        if why == Why::Caught {
            known.policy.caught();
        }
        if is_new {
            known.changes(why);
        }
        let others_max = known.policy.others_max(self.price());
        let left = is_new.then(|| Left { route: known.name.clone(), why });
        drop(known);
        self.publish(key, others_max);
        left
    }

    fn publish(&self, key: ExecutionKey, others_max: u32) {
        let place = &self.others_max[key.index()];
        // Compares first, because a store invalidates the cache line of every loop.
        if place.load(Ordering::Relaxed) != others_max {
            place.store(others_max, Ordering::Relaxed);
        }
    }

    /// Returns how many calls of a route have ended on loops, except for recent ones.
    pub(crate) fn calls_on_loops(&self, key: ExecutionKey) -> u64 {
        self.entries[key.index()].on_loops.calls.load(Ordering::Relaxed)
    }

    /// Returns the price of a dispatch on this machine.
    pub(crate) fn price(&self) -> Duration {
        Duration::from_nanos(u64::from(self.price_ns.load(Ordering::Relaxed)))
    }

    /// Records the time that a dispatch took on a loop. The thread that takes over pays the same
    /// again. A lost update is harmless, because the next one follows.
    pub(crate) fn note_dispatch(&self, took: Duration) {
        let price = (took * 2).clamp(PRICE_MIN, PRICE_MAX);
        let before = self.price();
        self.price_ns.store(ns((before * 7 + price) / 8), Ordering::Relaxed);
    }

    /// Returns the number of a route that has one, if any of its calls was sampled.
    pub(crate) fn number_of(&self, key: ExecutionKey) -> Option<u32> {
        match self.entries[key.index()].known.lock().name {
            Some(Name::Number(number)) => Some(number),
            _ => None,
        }
    }

    /// Returns the name of a route if any of its calls was sampled. `name_of` returns the names of
    /// numbered routes.
    pub(crate) fn name_of(
        &self,
        key: ExecutionKey,
        name_of: &dyn Fn(u32) -> Option<String>,
    ) -> Option<String> {
        self.entries[key.index()].name(name_of)
    }

    pub(crate) fn read(&self, name_of: &dyn Fn(u32) -> Option<String>) -> Vec<RouteMetrics> {
        self.entries.iter().filter_map(|entry| entry.read(name_of)).collect()
    }
}

impl Entry {
    fn name(&self, name_of: &dyn Fn(u32) -> Option<String>) -> Option<String> {
        Some(match self.known.lock().name.as_ref()? {
            Name::Number(number) => name_of(*number).unwrap_or_else(|| format!("route {number}")),
            Name::Path(path) => path.to_string(),
        })
    }

    fn read(&self, name_of: &dyn Fn(u32) -> Option<String>) -> Option<RouteMetrics> {
        let name = self.name(name_of)?;
        let known = self.known.lock();
        let number = match &known.name {
            Some(Name::Number(number)) => Some(*number),
            _ => None,
        };
        let sum = |of: fn(&Counted) -> &AtomicU64| {
            of(&self.on_loops).load(Ordering::Relaxed) + of(&self.on_pool).load(Ordering::Relaxed)
        };
        Some(RouteMetrics {
            name,
            number,
            calls: sum(|counted| &counted.calls),
            computing: Duration::from_nanos(sum(|counted| &counted.computing_ns)),
            waiting: Duration::from_nanos(sum(|counted| &counted.waiting_ns)),
            runs: match known.policy.place() {
                Place::Loop => Runs::OnLoop,
                Place::Pool => Runs::OnPool,
            },
            since: known.since,
            why: known.why,
        })
    }
}

impl Known {
    fn changes(&mut self, why: Why) {
        self.since = Some(Instant::now());
        self.why = why;
    }
}

impl Counted {
    /// Adds a call that stands for this many calls.
    fn add(&self, calls: u64, took: CallTimes) {
        let times = |time: Duration| {
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(calls)
        };
        self.calls.fetch_add(calls, Ordering::Relaxed);
        let waited = took.waited.unwrap_or_default();
        self.computing_ns.fetch_add(times(took.ran.unwrap_or(took.wall)), Ordering::Relaxed);
        if !waited.is_zero() {
            self.waiting_ns.fetch_add(times(waited), Ordering::Relaxed);
        }
    }
}

fn is_alone(others: Others, others_max: u32) -> bool {
    !others.are_ready && others.per_second <= others_max
}

fn ns(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
