//! The state that the threads of a run share: a clock, a stop flag, and how many requests are left.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::plan::Plan;
use crate::units::{MICROSECOND, Nanos, nanos};

/// Most requests that a thread claims at once.
const CLAIM_MAX: u64 = 256;

/// A clock that counts from the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        nanos(self.0.elapsed())
    }
}

/// Returns when the clock was started, in microseconds since 1970.
fn wall_start(clock: Clock) -> u64 {
    /// A thread that loses its processor between two readings makes one attempt useless.
    const ATTEMPTS: usize = 8;

    let readings = (0..ATTEMPTS).map(|_| {
        let before = clock.now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let after = clock.now();
        (after - before, nanos(wall).saturating_sub(before) / MICROSECOND)
    });
    readings.min().map_or(0, |(_, start)| start)
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    /// When the clock was started, in microseconds since 1970.
    pub(crate) wall_start: u64,
    stop: AtomicBool,
    /// Requests that no thread has claimed. It counts down only if there is a limit.
    left: AtomicU64,
    opened: AtomicU64,
    refused: AtomicU64,
    /// Why the last attempt to connect failed.
    refusal: Mutex<Option<String>>,
    errors: AtomicU64,
}

impl Shared {
    pub(crate) fn new(plan: &Plan) -> Self {
        let clock = Clock::start();
        Self {
            clock,
            wall_start: wall_start(clock),
            stop: AtomicBool::new(false),
            left: AtomicU64::new(plan.end.requests.unwrap_or(u64::MAX)),
            opened: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refusal: Mutex::new(None),
            errors: AtomicU64::new(0),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that no thread has claimed. It is very large if there is no
    /// limit.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn note_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a failed attempt to connect. If every connection has failed, the run stops, because
    /// there is nothing to measure.
    pub(crate) fn note_refused(&self, plan: &Plan, reason: String) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if self.opened.load(Ordering::Relaxed) > 0 {
            return;
        }
        if let Ok(mut last) = self.refusal.lock() {
            *last = Some(reason);
        }
        if refused >= plan.connections as u64 {
            self.stop();
        }
    }

    /// Returns why no connection could be opened, or `None` if at least one was opened.
    pub(crate) fn refusal(&self) -> Option<String> {
        if self.opened.load(Ordering::Relaxed) > 0 {
            return None;
        }
        self.refusal.lock().ok().and_then(|last| last.clone())
    }

    /// Adds to the errors of all threads, and stops the run if there are too many.
    pub(crate) fn note_errors(&self, plan: &Plan, count: u64) {
        if count == 0 {
            return;
        }
        let errors = self.errors.fetch_add(count, Ordering::Relaxed) + count;
        if plan.errors_max.is_some_and(|errors_max| errors > errors_max) {
            self.stop();
        }
    }
}

/// The requests that one thread may still send. Threads claim requests in portions that become
/// smaller, so that all of them finish at about the same time.
#[derive(Debug)]
pub(crate) struct Budget {
    claimed: u64,
    is_limited: bool,
    /// The end of the warm-up.
    counts_from: Nanos,
    threads: u64,
}

impl Budget {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            claimed: 0,
            is_limited: plan.end.requests.is_some(),
            counts_from: nanos(plan.warmup),
            threads: plan.threads as u64,
        }
    }

    /// Takes one request that is sent now, if one is left. Requests of the warm-up do not count, so
    /// they use up nothing.
    #[inline]
    pub(crate) fn take(&mut self, shared: &Shared, now: Nanos) -> bool {
        if !self.is_limited || now < self.counts_from {
            return true;
        }
        if self.claimed == 0 {
            self.claim(shared);
        }
        let is_left = self.claimed > 0;
        self.claimed -= u64::from(is_left);
        is_left
    }

    /// Returns whether no request is left, without taking one.
    pub(crate) fn is_used_up(&self, shared: &Shared) -> bool {
        self.is_limited && self.claimed == 0 && shared.left.load(Ordering::Relaxed) == 0
    }

    /// Returns the requests that were claimed and not taken, at the end of the thread.
    pub(crate) fn give_back(&mut self, shared: &Shared) {
        if self.is_limited {
            shared.left.fetch_add(std::mem::take(&mut self.claimed), Ordering::Relaxed);
        }
    }

    fn claim(&mut self, shared: &Shared) {
        let portion = |left: u64| (left / (self.threads * 4)).clamp(1, CLAIM_MAX).min(left);
        let taken = shared
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - portion(left)));
        self.claimed = taken.map_or(0, portion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    #[test]
    fn one_error_more_than_are_allowed_ends_a_run() {
        let plan = args::plan(":1 --max-errors 2").unwrap();
        let shared = Shared::new(&plan);
        shared.note_errors(&plan, 1);
        shared.note_errors(&plan, 1);
        assert!(!shared.is_stopped());
        shared.note_errors(&plan, 0);
        assert!(!shared.is_stopped());
        shared.note_errors(&plan, 1);
        assert!(shared.is_stopped());
        let plan = args::plan(":1").unwrap();
        let shared = Shared::new(&plan);
        shared.note_errors(&plan, 1000);
        assert!(!shared.is_stopped(), "any number is allowed");
    }

    #[test]
    fn a_run_ends_if_all_connections_are_refused_and_none_was_opened() {
        let plan = args::plan(":1 -c 3").unwrap();
        let (shared, other) = (Shared::new(&plan), Shared::new(&plan));
        for attempt in 1..=3 {
            assert!(!shared.is_stopped() && !other.is_stopped());
            shared.note_refused(&plan, format!("reason {attempt}"));
            other.note_refused(&plan, "busy".to_owned());
            if attempt == 1 {
                other.note_opened();
            }
        }
        assert!(shared.is_stopped() && !other.is_stopped());
        assert_eq!((shared.refusal().as_deref(), other.refusal()), (Some("reason 3"), None));
    }

    #[test]
    fn no_thread_takes_all_requests_of_a_run() {
        for (requests, threads, most) in [(100, 2, 12), (1_000_000, 2, 256), (3, 4, 1)] {
            let plan = args::plan(&format!(":1 -n {requests} -t {threads} -c 4")).unwrap();
            let shared = Shared::new(&plan);
            let (mut first, mut second) = (Budget::new(&plan), Budget::new(&plan));
            assert!(first.take(&shared, 0) && second.take(&shared, 0));
            let claimed = |budget: &Budget| budget.claimed + 1;
            assert!(claimed(&first) <= most && claimed(&second) <= most, "{requests}");
            let mut taken = 2;
            for budget in [&mut first, &mut second] {
                while budget.take(&shared, 0) {
                    taken += 1;
                }
            }
            assert_eq!(taken, requests, "each is taken once");
        }
    }

    #[test]
    fn a_thread_has_requests_left_while_it_has_claimed_some() {
        let plan = args::plan(":1 -n 9 -t 1").unwrap();
        let shared = Shared::new(&plan);
        let (mut first, mut second) = (Budget::new(&plan), Budget::new(&plan));
        assert!(first.take(&shared, 0));
        assert_eq!(first.claimed, 1, "it has claimed two");
        while second.take(&shared, 0) {}
        assert!(second.is_used_up(&shared) && !first.is_used_up(&shared));
        assert!(first.take(&shared, 0) && first.is_used_up(&shared));
    }

    #[test]
    fn requests_of_the_warm_up_use_up_nothing() {
        let plan = args::plan(":1 -n 2 --warmup 1s -t 1").unwrap();
        let (shared, mut budget) = (Shared::new(&plan), Budget::new(&plan));
        let second = nanos(plan.warmup);
        let taken = [0, second - 1, 1, second, second + 1, second + 2];
        let taken = taken.map(|now| budget.take(&shared, now));
        assert_eq!(taken, [true, true, true, true, true, false]);
        assert!(budget.is_used_up(&shared));
    }
}
