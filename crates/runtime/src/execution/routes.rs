//! What is known of all routes, shared by the loops and threads of one server.
//!
//! A request reads one number of its route here. Everything else is touched by looks only, one call
//! in sixteen at most.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::key::{Execution, ExecutionKey, Route};
use super::metrics::{RouteMetrics, Runs, Why};
use super::policy::{ALWAYS, NEVER_CALLED, OnLoop, Others, Place, Shared, Took};

/// What a dispatch is taken to cost before one was measured.
const PRICE_AT_FIRST: Duration = Duration::from_micros(10);

/// The bounds of what is believed of a measured price: below, other threads pay the rest of it;
/// above, the leader was preempted.
const PRICE_MIN: Duration = Duration::from_micros(5);
const PRICE_MAX: Duration = Duration::from_micros(40);

/// The longest path that is kept as the name of a route.
const NAME_CHARS_MAX: usize = 64;

/// A request, as far as its route's name goes.
pub(crate) trait Called {
    /// The number that the service gave to the route.
    fn route(&self) -> Option<u32>;
    fn path(&self) -> &str;
}

/// The routes of one server.
#[derive(Debug)]
pub(crate) struct Routes {
    /// [`Shared::others_max`] of each. Apart from the rest, which looks change often.
    others_max: Box<[AtomicU32]>,
    entries: Box<[Entry]>,
    /// What the loop pays for a dispatch, and the thread that takes it, on average.
    price_ns: AtomicU32,
}

/// What is known of one route.
#[derive(Debug, Default)]
struct Entry {
    known: Mutex<Known>,
    /// Whether a call that is long has waited, as close looks have it: then there is no need to
    /// look at each.
    waits: AtomicBool,
    /// [`Shared::is_counting`], to be looked at without the lock.
    is_counting: AtomicBool,
    on_loops: Counted,
    on_pool: Counted,
}

/// Calls, and what the measured ones say of all of them.
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

impl Routes {
    pub(crate) fn new() -> Self {
        Self {
            others_max: (0..ExecutionKey::COUNT).map(|_| AtomicU32::new(NEVER_CALLED)).collect(),
            entries: (0..ExecutionKey::COUNT).map(|_| Entry::default()).collect(),
            price_ns: AtomicU32::new(ns(PRICE_AT_FIRST)),
        }
    }

    /// Whether a call of this route runs on the loop that has read its request. The first one gives
    /// the route its name.
    #[inline]
    pub(crate) fn runs_here(
        &self,
        route: Route,
        called: Option<&dyn Called>,
        others: impl FnOnce() -> Others,
    ) -> bool {
        match route.execution {
            Execution::Learned => {
                let others_max = self.others_max[route.key.index()].load(Ordering::Relaxed);
                others_max == ALWAYS || self.runs_here_slow(route.key, called, others_max, others)
            }
            Execution::Inline => true,
            Execution::Dispatched => false,
        }
    }

    #[cold]
    fn runs_here_slow(
        &self,
        key: ExecutionKey,
        called: Option<&dyn Called>,
        others_max: u32,
        others: impl FnOnce() -> Others,
    ) -> bool {
        if others_max == NEVER_CALLED {
            if let Some(called) = called {
                self.name(key, called);
            }
            return true;
        }
        others_max > 0 && is_alone(others(), others_max)
    }

    /// Whether calls of this route may hold their thread for long.
    pub(crate) fn may_block(&self, route: Route) -> bool {
        !self.runs_here(route, None, || Others { are_ready: true, per_second: u32::MAX })
    }

    /// Whether no call of the route was seen.
    #[inline]
    pub(crate) fn is_new(&self, key: ExecutionKey) -> bool {
        self.others_max[key.index()].load(Ordering::Relaxed) == NEVER_CALLED
    }

    /// Keeps how a route is called, for those who read the metrics.
    #[cold]
    pub(crate) fn name(&self, key: ExecutionKey, called: &dyn Called) {
        let is_new = &self.others_max[key.index()];
        let _ = is_new.compare_exchange(NEVER_CALLED, ALWAYS, Ordering::Relaxed, Ordering::Relaxed);
        let mut known = self.entries[key.index()].known.lock();
        if known.name.is_none() {
            known.name = Some(match called.route() {
                Some(number) => Name::Number(number),
                None => Name::Path(called.path().chars().take(NAME_CHARS_MAX).collect()),
            });
        }
    }

    /// A loop has looked at a call that ran on it. Returns how that changed where the route runs.
    #[cold]
    #[inline(never)]
    pub(crate) fn looked_on_loop(
        &self,
        key: ExecutionKey,
        on_loop: &mut OnLoop,
        took: Took,
        others: Others,
    ) -> Option<Place> {
        let entry = &self.entries[key.index()];
        let calls = u64::from(on_loop.calls_per_look());
        entry.on_loops.add(calls, took);
        let price = self.price();
        if self.others_max[key.index()].load(Ordering::Relaxed) < NEVER_CALLED {
            // It ran here because its loop was idle.
            on_loop.looked(took, Others::default(), price);
            return self.judge(key, took, price).then_some(Place::Loop);
        }
        if on_loop.looked(took, others, price) {
            on_loop.start_over();
            let held = took.held().unwrap_or(took.wall);
            let why = match took.waited {
                Some(waited) if waited * 2 > held => Why::Waited(waited),
                _ => Why::Computed(held),
            };
            return self.leave(key, held, why).then_some(Place::Pool);
        }
        None
    }

    /// The watchdog has taken a loop from a call of this route. Returns whether the route leaves
    /// the loops because of that.
    pub(crate) fn caught(&self, key: ExecutionKey, on_loop: &mut OnLoop, held: Duration) -> bool {
        // A route of the pool ran here because the loop was idle: nothing more is needed to know
        // it.
        let is_known = self.others_max[key.index()].load(Ordering::Relaxed) < NEVER_CALLED;
        if !on_loop.caught(held, self.price()) && !is_known {
            return false;
        }
        on_loop.start_over();
        self.leave(key, held, Why::Caught)
    }

    /// The watchdog found a call of this route at work for too long, and no thread for its loop.
    pub(crate) fn stuck(&self, key: ExecutionKey, held: Duration) -> bool {
        self.leave(key, held, Why::Caught)
    }

    /// A thread of the pool has measured a call, one of so many. Returns whether it brought the
    /// route back to the loops.
    #[cold]
    pub(crate) fn looked_on_pool(&self, key: ExecutionKey, took: Took, calls: u64) -> bool {
        let entry = &self.entries[key.index()];
        entry.on_pool.add(calls, took);
        if let Some(waits) = took.waits() {
            entry.waits.store(waits, Ordering::Relaxed);
        }
        self.judge(key, took, self.price())
    }

    /// A thread of the pool has run a call that took this long. Returns whether that brought the
    /// route back to the loops.
    #[inline]
    pub(crate) fn ran_on_pool(&self, key: ExecutionKey, took: Took) -> bool {
        let entry = &self.entries[key.index()];
        let is_quick = took.held_on_pool().is_some_and(|held| held.is_zero());
        // A call that waited tells something only if others before it were quick.
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

    fn judge(&self, key: ExecutionKey, took: Took, price: Duration) -> bool {
        self.with_policy(key, |policy, calls| policy.looked(took, price, calls))
    }

    /// Lets the policy of a route judge a call, and says so if that brings the route back.
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
            tracing::debug!(route = ?name, "a route is quick again: its calls run on the event loops");
        }
        is_back
    }

    fn leave(&self, key: ExecutionKey, held: Duration, why: Why) -> bool {
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
        let name = known.name.clone().filter(|_| is_new);
        drop(known);
        self.publish(key, others_max);
        if is_new {
            tracing::debug!(
                route = ?name,
                ?why,
                "a route holds the event loops: its calls run on the pool"
            );
        }
        is_new
    }

    fn publish(&self, key: ExecutionKey, others_max: u32) {
        let place = &self.others_max[key.index()];
        // Looked at first: a store takes the line from every loop.
        if place.load(Ordering::Relaxed) != others_max {
            place.store(others_max, Ordering::Relaxed);
        }
    }

    /// What a dispatch costs on this machine.
    pub(crate) fn price(&self) -> Duration {
        Duration::from_nanos(u64::from(self.price_ns.load(Ordering::Relaxed)))
    }

    /// A leader has measured what a dispatch took from its loop. The thread that takes over pays as
    /// much again. A lost update costs nothing: the next one follows.
    pub(crate) fn note_dispatch(&self, took: Duration) {
        let price = (took * 2).clamp(PRICE_MIN, PRICE_MAX);
        let before = self.price();
        self.price_ns.store(ns((before * 7 + price) / 8), Ordering::Relaxed);
    }

    /// What is known of the routes that were called. `name_of` knows those with a number.
    /// What a route is called, if any of its calls was looked at.
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
        let sum = |of: fn(&Counted) -> &AtomicU64| {
            of(&self.on_loops).load(Ordering::Relaxed) + of(&self.on_pool).load(Ordering::Relaxed)
        };
        Some(RouteMetrics {
            name,
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
    /// Adds a call that stands for this many.
    fn add(&self, calls: u64, took: Took) {
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
