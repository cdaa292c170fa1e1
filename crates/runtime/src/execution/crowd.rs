//! Decides whether connections may each have a thread for a while: a lease.
//!
//! A thread on a lease waits for the next request of one connection. That is the cheapest way to
//! serve it as long as the thread is needed anyway. The number of needed threads is known: it is
//! the rate of calls times the duration of each. If many connections each wait only a little,
//! leases would hold many times as many threads, and every request would wake another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// This many leases per processor do no harm, whether they are needed or not.
const LEASES_PER_PROCESSOR: usize = 32;

/// Leases begin while there are at most this many times as many connections as needed threads. The
/// bound up to which they continue is higher, so that connections that come and go do not switch
/// all leases on and off.
const NEEDED_MAX_TO_BEGIN: usize = 2;
const NEEDED_MAX_TO_GO_ON: usize = 3;

/// The minimum time over which the number of needed threads is measured.
pub(crate) const WINDOW: Duration = Duration::from_millis(50);

/// The connections whose requests block, and the number of threads that they need.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// The number of leases that do no harm.
    least: usize,
    connections: AtomicUsize,
    /// The number of threads that calls needed in the last window.
    needed: AtomicUsize,
    /// The total duration of calls on the pool, in nanoseconds.
    busy_ns: AtomicU64,
    may_lease: AtomicBool,
}

/// A connection whose requests block. Dropping it removes it from the count.
#[derive(Debug)]
pub(crate) struct Member(Arc<Crowd>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crowd {
    pub(crate) fn new(processors: usize) -> Self {
        Self {
            least: processors * LEASES_PER_PROCESSOR,
            connections: AtomicUsize::new(0),
            needed: AtomicUsize::new(0),
            busy_ns: AtomicU64::new(0),
            may_lease: AtomicBool::new(true),
        }
    }

    /// Counts one more connection whose requests block, until the returned value is dropped.
    pub(crate) fn join(self: &Arc<Self>) -> Member {
        let connections = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        // If many connections arrive at once, they must not all get leases before the window ends.
        if connections > self.least && self.may_lease() {
            self.decide();
        }
        Member(Arc::clone(self))
    }

    /// Adds to the total duration of calls on the pool.
    pub(crate) fn add_busy(&self, time: Duration) {
        self.busy_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the total duration of calls on the pool, in nanoseconds.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    /// Ends a window in which calls took `busy_ns` in total.
    pub(crate) fn end_window(&self, busy_ns: u64, window: Duration) {
        let needed =
            usize::try_from(u128::from(busy_ns) / window.as_nanos().max(1)).unwrap_or(usize::MAX);
        self.needed.store(needed, Ordering::Relaxed);
        self.decide();
    }

    fn decide(&self) {
        let needed = self.needed.load(Ordering::Relaxed);
        let connections = self.connections.load(Ordering::Relaxed);
        let may_lease = may_lease(self.may_lease(), connections, needed, self.least);
        if may_lease != self.may_lease() {
            tracing::debug!(
                connections,
                needed,
                may_lease,
                "connections that block, and threads that they need"
            );
            self.may_lease.store(may_lease, Ordering::Relaxed);
        }
    }

    /// Returns whether a connection may have a lease.
    #[inline]
    pub(crate) fn may_lease(&self) -> bool {
        self.may_lease.load(Ordering::Relaxed)
    }
}

fn may_lease(did_before: bool, connections: usize, needed: usize, least: usize) -> bool {
    let times = if did_before { NEEDED_MAX_TO_GO_ON } else { NEEDED_MAX_TO_BEGIN };
    connections <= least.max(needed.saturating_mul(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_connections_may_have_leases() {
        for needed in [0, 1, 1000] {
            assert!(may_lease(false, 64, needed, 64));
        }
    }

    #[test]
    fn many_connections_may_have_leases_if_they_need_most_of_the_threads() {
        // 400 connections whose calls wait for 10 ms, and then for 100 us.
        assert!(may_lease(false, 400, 350, 64));
        assert!(!may_lease(true, 400, 20, 64));
    }

    #[test]
    fn connections_that_come_and_go_do_not_switch_leases_on_and_off() {
        assert!(!may_lease(false, 201, 100, 64));
        assert!(may_lease(false, 200, 100, 64));
        assert!(may_lease(true, 300, 100, 64));
        assert!(!may_lease(true, 301, 100, 64));
    }

    #[test]
    fn the_needed_threads_are_the_busy_time_divided_by_the_window() {
        let crowd = Arc::new(Crowd::new(2));
        let _first: Vec<Member> = (0..64).map(|_| crowd.join()).collect();
        assert!(crowd.may_lease());
        let others: Vec<Member> = (0..36).map(|_| crowd.join()).collect();
        assert!(!crowd.may_lease(), "100 connections, and their need is unknown");
        crowd.end_window(10 * 50_000_000, Duration::from_millis(50));
        assert!(!crowd.may_lease(), "100 connections, 10 threads");
        crowd.end_window(60 * 50_000_000, Duration::from_millis(50));
        assert!(crowd.may_lease(), "60 threads");
        drop(others);
        crowd.end_window(0, Duration::from_millis(50));
        assert!(crowd.may_lease(), "64 connections");
    }
}
