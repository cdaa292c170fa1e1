//! The counts of requests per route. Every request is counted, so threads count on shards of their
//! own: two cores never wait for the same cache line.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use filoplume_runtime::Timing;

use super::histogram::{Histogram, Snapshot, bucket_of, nanos};

/// How many different statuses of a route are counted on a shard. Further ones are counted
/// together, with those of server errors apart: clients can cause seven others.
const STATUSES: usize = 7;

/// The status that stands for all further ones below 500.
pub(crate) const OTHER_STATUS: u16 = 0;

/// The status that stands for all further ones of 500 and above. It is above all others, so that
/// `status >= 500` is true of it.
pub(crate) const OTHER_SERVER_ERROR: u16 = u16::MAX;

/// Bits of the count in a slot. The status is above it.
const COUNT_BITS: u32 = 48;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// The maximum number of shards. More threads share them.
const SHARDS_MAX: usize = 16;

/// The counts of all routes.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Shard after shard, each with all routes.
    on_shards: Box<[OnShard]>,
    /// A power of two, less one.
    last_shard: usize,
    times: Box<[OnceLock<Box<Times>>]>,
}

/// The counts of one route on one shard, in cache lines of their own. An ordinary request uses the
/// first line only.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct OnShard {
    begun: AtomicU64,
    /// Status and count. A slot that was never used is zero.
    statuses: [AtomicU64; STATUSES],
    others: AtomicU64,
    other_server_errors: AtomicU64,
}

/// The times of one route, of the requests that were measured.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) total: Histogram,
    pub(crate) phases: [OnceLock<Box<Histogram>>; Timing::PHASES],
}

/// The counts of one route at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteCounts {
    /// Requests that were passed to the app.
    pub(crate) begun: u64,
    /// Requests that have a response, by status.
    pub(crate) statuses: Vec<(u16, u64)>,
}

impl RouteCounts {
    pub(crate) fn ended(&self) -> u64 {
        self.statuses.iter().map(|(_, count)| count).sum()
    }

    /// Returns how many requests are being answered.
    pub(crate) fn active(&self) -> u64 {
        self.begun.saturating_sub(self.ended())
    }

    pub(crate) fn add(&mut self, status: u16, count: u64) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, sum)) => *sum += count,
            None => self.statuses.push((status, count)),
        }
    }
}

impl Counts {
    pub(crate) fn new(routes: usize) -> Self {
        let threads = thread::available_parallelism().map_or(2, usize::from);
        // Threads of the pool count requests as well, and run at the same time as the loops.
        let shards = (threads * 2).next_power_of_two().min(SHARDS_MAX);
        Self {
            on_shards: (0..shards * routes).map(|_| OnShard::default()).collect(),
            last_shard: shards - 1,
            times: (0..routes).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Counts a request that begins. Its end is counted on the result, by the same thread.
    #[inline]
    pub(crate) fn begin(&self, route: usize) -> Option<&OnShard> {
        let counts = self.of_this_thread(route)?;
        counts.begun.fetch_add(1, Ordering::Relaxed);
        Some(counts)
    }

    /// Adds the times of a measured request, which stands for so many, to those of its route and
    /// of `all`.
    pub(crate) fn measured(&self, route: usize, timing: &Timing, stands_for: u32, all: &Histogram) {
        let total = nanos(timing.total());
        let bucket = bucket_of(total);
        all.add_to(bucket, total, stands_for);
        let Some(times) = self.times.get(route) else { return };
        let times = times.get_or_init(Box::default);
        times.total.add_to(bucket, total, stands_for);
        for (histogram, (_, time)) in times.phases.iter().zip(timing.phases()) {
            if !time.is_zero() {
                histogram.get_or_init(Box::default).add(time, stands_for);
            }
        }
    }

    pub(crate) fn routes(&self) -> usize {
        self.times.len()
    }

    pub(crate) fn read(&self, route: usize) -> RouteCounts {
        let mut counts = RouteCounts::default();
        for on_shard in self.of_route(route) {
            for slot in &on_shard.statuses {
                let slot = slot.load(Ordering::Relaxed);
                if slot != 0 {
                    let status = u16::try_from(slot >> COUNT_BITS).unwrap_or(OTHER_STATUS);
                    counts.add(status, slot & COUNT_MASK);
                }
            }
            let others = [
                (OTHER_STATUS, &on_shard.others),
                (OTHER_SERVER_ERROR, &on_shard.other_server_errors),
            ];
            for (status, count) in others {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    counts.add(status, count);
                }
            }
        }
        // Read after the ends, so that no request seems to have ended before it began.
        counts.begun =
            self.of_route(route).map(|on_shard| on_shard.begun.load(Ordering::Relaxed)).sum();
        counts.statuses.sort_unstable();
        counts
    }

    /// Returns the times of a route; `None` if none of its requests was measured.
    pub(crate) fn times(&self, route: usize) -> Option<&Times> {
        self.times.get(route)?.get().map(|times| &**times)
    }

    /// Returns the counts of a route on all shards.
    fn of_route(&self, route: usize) -> impl Iterator<Item = &OnShard> {
        // A number beyond the last route has no counts.
        let routes = self.times.len();
        self.on_shards.iter().skip(route).step_by(routes.max(1)).filter(move |_| route < routes)
    }

    #[inline]
    fn of_this_thread(&self, route: usize) -> Option<&OnShard> {
        let routes = self.times.len();
        let shard = number_of_this_thread() & self.last_shard;
        self.on_shards.get(shard * routes + route).filter(|_| route < routes)
    }
}

/// Returns the number of the current thread, in the order in which threads asked.
#[inline]
fn number_of_this_thread() -> usize {
    thread_local! {
        /// `usize::MAX` until the thread has a number.
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    #[cold]
    fn next() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number);
        number
    }
    match NUMBER.get() {
        usize::MAX => next(),
        number => number,
    }
}

impl OnShard {
    /// Counts a request that has its response.
    #[inline]
    pub(crate) fn end(&self, status: u16) {
        let wanted = u64::from(status);
        for slot in &self.statuses {
            let found = slot.load(Ordering::Relaxed);
            if found >> COUNT_BITS == wanted && found != 0 {
                slot.fetch_add(1, Ordering::Relaxed);
                return;
            }
            if found == 0 && self.claim(slot, wanted) {
                return;
            }
        }
        self.end_other(status);
    }

    /// Counts a request whose status has no slot, because others have taken all of them.
    #[cold]
    fn end_other(&self, status: u16) {
        let others = if status < 500 { &self.others } else { &self.other_server_errors };
        others.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the first request with a status in a free slot. Returns `false` if another thread has
    /// taken the slot for another status.
    #[cold]
    fn claim(&self, slot: &AtomicU64, status: u64) -> bool {
        let first = status << COUNT_BITS | 1;
        match slot.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(found) if found >> COUNT_BITS == status => {
                slot.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }
}

impl Times {
    /// Returns the times of a phase; `None` if no measured request spent time in it.
    pub(crate) fn phase(&self, index: usize) -> Option<Snapshot> {
        self.phases.get(index)?.get().map(|histogram| histogram.read())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn threads_lose_no_count() {
        let counts = Arc::new(Counts::new(3));
        let threads: Vec<_> = (0..20)
            .map(|thread| {
                let counts = Arc::clone(&counts);
                thread::spawn(move || {
                    for request in 0..1000_u16 {
                        // Ten statuses, which is more than there are slots.
                        counts.begin(1).unwrap().end(200 + (request + thread) % 10);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let read = counts.read(1);
        assert_eq!((read.begun, read.ended(), read.active()), (20_000, 20_000, 0));
        // Which statuses have a slot of their own may differ between the shards.
        assert!(read.statuses.iter().any(|(status, _)| *status != OTHER_STATUS), "{read:?}");
        assert_eq!(counts.read(0), RouteCounts::default());
    }

    #[test]
    fn a_request_is_active_between_its_begin_and_its_end() {
        let counts = Counts::new(1);
        counts.begin(0);
        counts.begin(0).unwrap().end(404);
        let read = counts.read(0);
        assert_eq!((read.active(), read.statuses), (1, vec![(404, 1)]));
        counts.begin(0).unwrap().end(200);
        assert_eq!(counts.read(0).statuses, [(200, 1), (404, 1)], "in the order of the statuses");
        // Routes that do not exist are ignored.
        assert!(counts.begin(1).is_none());
    }

    /// Clients can take all slots of a route before the first server error.
    #[test]
    fn server_errors_without_a_slot_are_told_from_other_statuses() {
        let counts = Counts::new(1);
        let end = |status| counts.begin(0).unwrap().end(status);
        [200, 400, 401, 404, 413, 415, 422, 429].into_iter().for_each(end);
        [500, 503, 599].into_iter().for_each(end);
        let read = counts.read(0);
        assert_eq!((read.begun, read.active()), (11, 0));
        let server_errors = read.statuses.iter().filter(|(status, _)| *status >= 500);
        assert_eq!(server_errors.map(|(_, count)| count).sum::<u64>(), 3, "{read:?}");
        assert_eq!(read.statuses.first(), Some(&(OTHER_STATUS, 1)));
        assert_eq!(read.statuses.last(), Some(&(OTHER_SERVER_ERROR, 3)));
    }

    #[test]
    fn the_counts_of_an_ordinary_request_share_a_cache_line() {
        use std::mem::{offset_of, size_of};
        assert_eq!((offset_of!(OnShard, begun), offset_of!(OnShard, statuses)), (0, 8));
        assert_eq!((offset_of!(OnShard, others), size_of::<OnShard>()), (64, 128));
    }

    /// Another thread has claimed the slot between the look at it and the claim.
    #[test]
    fn a_slot_that_another_thread_has_claimed_counts_if_it_has_the_status() {
        let counts = OnShard::default();
        let slot = AtomicU64::new(200 << COUNT_BITS | 5);
        assert!(counts.claim(&slot, 200));
        assert_eq!(slot.load(Ordering::Relaxed), 200 << COUNT_BITS | 6);
        assert!(!counts.claim(&slot, 404));
        assert_eq!(slot.load(Ordering::Relaxed), 200 << COUNT_BITS | 6);
    }
}
