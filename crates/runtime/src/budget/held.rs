//! What the connections of one client hold together, or those of its network.

#[cfg(feature = "spool")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much is held of each resource that all clients share.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Threads that wait for clients.
    pub(crate) threads: AtomicUsize,
    pub(crate) descriptors: AtomicUsize,
    /// Bytes of the memory budget.
    pub(crate) memory: AtomicUsize,
    /// Bytes that the program's code takes for requests, as estimates. Changes under the lock of
    /// [`Estimates`](super::estimates::Estimates).
    pub(super) estimates: AtomicUsize,
    /// Bytes of contents that wait in files.
    #[cfg(feature = "spool")]
    pub(crate) spooled: AtomicU64,
    /// Seats of all routes.
    pub(crate) seats: AtomicUsize,
    pub(crate) vital_seats: AtomicUsize,
}

/// Counts one more for a client, which may have `max`, and for its network, if it has one, which
/// may have `network_max`. Returns `false`, and counts nothing, if either has its maximum.
pub(crate) fn try_count(
    (own, max): (&AtomicUsize, usize),
    network: Option<(&AtomicUsize, usize)>,
) -> bool {
    if !is_one_more(own, max) {
        return false;
    }
    let has_place = network.is_none_or(|(count, max)| is_one_more(count, max));
    if !has_place {
        own.fetch_sub(1, Ordering::Relaxed);
    }
    has_place
}

/// Counts one more, unless there are already `max`.
fn is_one_more(count: &AtomicUsize, max: usize) -> bool {
    let more = |count| (count < max).then_some(count + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_network_refuses_does_not_count_for_the_client() {
        let (own, network) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let take = |max| try_count((&own, max), Some((&network, 2)));
        assert!(take(9) && take(9));
        assert!((0..20).all(|_| !take(9)));
        assert_eq!((own.load(Ordering::Relaxed), network.load(Ordering::Relaxed)), (2, 2));
        network.store(0, Ordering::Relaxed);
        assert!(!take(2), "the client has its maximum");
        assert_eq!((own.load(Ordering::Relaxed), network.load(Ordering::Relaxed)), (2, 0));
    }
}
