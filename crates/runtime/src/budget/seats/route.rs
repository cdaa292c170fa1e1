//! One route: its seats and its waiting requests.

use super::SeatRequest;
use super::backlog::Backlog;
use super::counts::Counts;
use crate::budget::clients::ClientId;
use crate::budget::fair_queue::{FairQueue, Obstacle, Place};
use crate::execution::key::ExecutionKey;

/// A queue is searched for late requests at most this many times within the maximum wait, because
/// each search visits all waiting requests.
const LOOKS: u64 = 64;

/// One route: its seats and its waiting requests.
pub(super) struct RouteQueue<T> {
    pub(super) taken: usize,
    waiting: FairQueue<QueuedRequest<T>>,
    pub(super) backlog: Backlog,
    /// No request is late before this time.
    look_at: u64,
}

struct QueuedRequest<T> {
    item: T,
    late_at: u64,
}

impl<T: SeatRequest> RouteQueue<T> {
    pub(super) fn new(wait_max: u64) -> Self {
        Self { taken: 0, waiting: FairQueue::new(), backlog: Backlog::new(wait_max), look_at: 0 }
    }

    /// Counts one more seat.
    #[inline]
    pub(super) fn take_seat(&mut self, key: ExecutionKey, counts: &mut Counts) {
        self.taken += 1;
        counts.note_taken(key, self.taken);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns how many requests the client with the most has.
    pub(super) fn depth(&self) -> usize {
        self.waiting.depth()
    }

    /// Returns how many requests of the client wait.
    pub(super) fn len_of(&self, client: Option<ClientId>) -> usize {
        self.waiting.len_of(client)
    }

    /// Returns how many requests are served before one more of a client with `own` requests.
    pub(super) fn len_before(&self, own: usize) -> usize {
        self.waiting.len_before(own)
    }

    pub(super) fn push(&mut self, client: Option<ClientId>, item: T, late_at: u64) {
        self.look_at = if self.is_empty() { late_at } else { self.look_at.min(late_at) };
        self.waiting.push(client, QueuedRequest { item, late_at });
    }

    /// Returns the turn of the first request that nothing keeps from a seat.
    pub(super) fn find(&mut self, obstacle: impl Fn(&T) -> Option<Obstacle>) -> Option<Place> {
        self.waiting.find(|queued| obstacle(&queued.item))
    }

    pub(super) fn get_mut(&mut self, turn: Place) -> Option<&mut T> {
        self.waiting.get_mut(turn).map(|queued| &mut queued.item)
    }

    pub(super) fn take(&mut self, turn: Place) -> Option<T> {
        self.waiting.take(turn).map(|queued| queued.item)
    }

    /// Removes the last request of the client with the most, to make room for another client.
    pub(super) fn evict(&mut self) -> Option<T> {
        self.waiting.evict(|queued| !queued.item.has_begun()).map(|queued| queued.item)
    }

    /// Removes the requests that have waited for too long. Returns when to look again, if any are
    /// left.
    pub(super) fn remove_late(
        &mut self,
        now: u64,
        wait_max: u64,
        removed: &mut Vec<T>,
    ) -> Option<u64> {
        if now >= self.look_at && !self.is_empty() {
            let is_late = |queued: &QueuedRequest<T>| queued.late_at <= now;
            if self.waiting.iter().any(is_late) {
                let mut late = Vec::new();
                self.waiting.remove_if(&is_late, &mut late);
                removed.extend(late.into_iter().map(|queued| queued.item));
            }
            let next = self.waiting.iter().map(|queued| queued.late_at).min();
            self.look_at = next.unwrap_or(0).max(now.saturating_add(wait_max / LOOKS));
        }
        (!self.is_empty()).then_some(self.look_at)
    }

    /// Removes all requests.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.waiting.clear().into_iter().map(|queued| queued.item)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_same_client_count_for_its_place() {
        let mut route = RouteQueue::new(640);
        let client = Some(ClientId::V4([192, 0, 2, 1].into()));
        (0..3_u32).for_each(|number| route.push(client, number, 1000));
        assert_eq!([0, 1, 3].map(|own| route.len_before(own)), [1, 2, 3]);
    }

    #[test]
    fn a_request_is_late_at_its_time_whatever_came_after_it() {
        const WAIT_MAX: u64 = 640;
        let mut route = RouteQueue::new(WAIT_MAX);
        for (number, late_at) in [(1_u32, 1000), (2, 1200), (3, 1100)] {
            route.push(None, number, late_at);
        }
        let mut late = Vec::new();
        assert_eq!(route.remove_late(999, WAIT_MAX, &mut late), Some(1000));
        assert!(late.is_empty());
        assert_eq!(route.remove_late(1000, WAIT_MAX, &mut late), Some(1100));
        assert_eq!(late, [1]);
        assert_eq!(route.remove_late(1200, WAIT_MAX, &mut late), None);
        assert_eq!(late, [1, 2, 3]);
    }
}
