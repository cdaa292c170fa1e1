//! Whether connections may have a thread each for a while: a lease.
//!
//! A thread on a lease waits for the next request of one connection, and that is the cheapest way
//! to serve it, as long as the thread is needed anyway. What is needed is known: the rate of calls
//! times the time that each takes. A crowd of connections that each wait a little would hold many
//! times as many threads, and every request would wake another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// So many threads on a lease do no harm for each processor, needed or not.
const LEASES_PER_PROCESSOR: usize = 32;

/// Leases begin while the crowd is at most so many times what is needed, and go on until it is half
/// as large again: connections that come and go must not turn all of them on and off.
const NEEDED_MAX_TO_BEGIN: usize = 2;
const NEEDED_MAX_TO_GO_ON: usize = 3;

/// The shortest time over which is measured how many threads are needed.
pub(crate) const WINDOW: Duration = Duration::from_millis(50);

/// The connections whose requests block, and the threads that they need.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// Leases that do no harm.
    least: usize,
    connections: AtomicUsize,
    /// Threads that calls needed in the last window.
    needed: AtomicUsize,
    /// The time that calls have taken on the pool, in nanoseconds.
    busy_ns: AtomicU64,
    may_lease: AtomicBool,
}

/// A connection whose requests block.
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

    /// The requests of one more connection block, until what is returned is dropped.
    pub(crate) fn join(self: &Arc<Self>) -> Member {
        let connections = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        // A crowd that comes at once is not let have all its threads until the window ends.
        if connections > self.least && self.may_lease() {
            self.decide();
        }
        Member(Arc::clone(self))
    }

    /// Calls on the pool have taken this time together.
    pub(crate) fn add_busy(&self, time: Duration) {
        self.busy_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }

    /// The time that calls have taken on the pool so far, in nanoseconds.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    /// Ends a window, in which calls have taken so much time.
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
                "connections that block, and threads needed"
            );
            self.may_lease.store(may_lease, Ordering::Relaxed);
        }
    }

    /// Whether a connection may have a thread for itself.
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
    fn a_few_connections_may_have_their_threads() {
        for needed in [0, 1, 1000] {
            assert!(may_lease(false, 64, needed, 64));
        }
    }

    #[test]
    fn a_crowd_may_if_it_needs_most_of_the_threads_anyway() {
        // 400 connections whose calls wait 10 ms, and then 100 us.
        assert!(may_lease(false, 400, 350, 64));
        assert!(!may_lease(true, 400, 20, 64));
    }

    #[test]
    fn connections_that_come_and_go_do_not_turn_it_on_and_off() {
        assert!(!may_lease(false, 201, 100, 64));
        assert!(may_lease(false, 200, 100, 64));
        assert!(may_lease(true, 300, 100, 64));
        assert!(!may_lease(true, 301, 100, 64));
    }

    #[test]
    fn what_is_needed_is_the_time_of_calls_in_the_time_of_the_window() {
        let crowd = Arc::new(Crowd::new(2));
        let _first: Vec<Member> = (0..64).map(|_| crowd.join()).collect();
        assert!(crowd.may_lease());
        let others: Vec<Member> = (0..36).map(|_| crowd.join()).collect();
        assert!(!crowd.may_lease(), "100 connections, and nobody knows what they need");
        crowd.end_window(10 * 50_000_000, Duration::from_millis(50));
        assert!(!crowd.may_lease(), "100 connections, 10 threads");
        crowd.end_window(60 * 50_000_000, Duration::from_millis(50));
        assert!(crowd.may_lease(), "60 threads");
        drop(others);
        crowd.end_window(0, Duration::from_millis(50));
        assert!(crowd.may_lease(), "64 connections");
    }
}
