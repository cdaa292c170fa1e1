//! What the lock of the seats guards.

use std::collections::{HashMap, VecDeque};

use super::counts::Counts;
use super::processors::Processors;
use super::request::SeatRequest;
use super::rest::Rest;
use super::route::RouteQueue;
use crate::execution::key::ExecutionKey;

/// The counts and queues of all routes.
pub(super) struct State<T> {
    pub(super) taken: usize,
    pub(super) counts: Counts,
    /// The taken seats of vital requests, which are not counted in `taken`.
    pub(super) vital: usize,
    /// The waiting requests that could be refused.
    pub(super) waiting: usize,
    /// The waiting requests whose responses have begun. They do not count against the maximum.
    pub(super) begun: usize,
    /// Whether a waiting route had no seat to spare when it was last checked. The other waiting
    /// routes wait for permits or for processor time.
    pub(super) is_short: bool,
    /// Whether a waiting route lacked nothing but processor time when it was last checked.
    pub(super) is_limited: bool,
    pub(super) routes: HashMap<ExecutionKey, RouteQueue<T>>,
    /// The routes with waiting requests. The next one to serve is in front.
    pub(super) turns: VecDeque<ExecutionKey>,
    pub(super) is_closed: bool,
}

impl<T: SeatRequest> State<T> {
    pub(super) fn new(processors: Processors) -> Self {
        Self {
            taken: 0,
            counts: Counts { rest: Rest::new(), processors },
            vital: 0,
            waiting: 0,
            begun: 0,
            is_short: false,
            is_limited: false,
            routes: HashMap::new(),
            turns: VecDeque::new(),
            is_closed: false,
        }
    }

    /// Removes a waiting request of the client with the most requests in one queue, if it has more
    /// than `asker` of them.
    pub(super) fn make_room(&mut self, asker: usize) -> Option<T> {
        let depth = |key: &ExecutionKey| self.routes.get(key).map_or(0, RouteQueue::depth);
        let key = self.turns.iter().copied().max_by_key(depth)?;
        let route = self.routes.get_mut(&key).filter(|route| route.depth() > asker)?;
        let evicted = route.evict()?;
        self.waiting -= 1;
        Some(evicted)
    }

    /// Returns the count of the waiting requests of this kind.
    pub(super) fn waiting_of(&mut self, has_begun: bool) -> &mut usize {
        if has_begun { &mut self.begun } else { &mut self.waiting }
    }

    /// Releases a seat of a route.
    pub(super) fn release(&mut self, key: ExecutionKey) {
        if let Some(route) = self.routes.get_mut(&key) {
            route.taken -= 1;
            self.counts.note_released(key, route.taken);
        }
        self.forget(key);
    }

    /// Removes the entry of a route without seats and waiting requests.
    pub(super) fn forget(&mut self, key: ExecutionKey) {
        if self.routes.get(&key).is_some_and(|route| route.taken == 0 && route.is_empty()) {
            self.routes.remove(&key);
        }
    }
}
