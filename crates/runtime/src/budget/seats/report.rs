//! Why a request waits or is refused, for the operators of a server.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::counts::Counts;
use super::full::Full;
use super::request::SeatRequest;
use super::route::RouteQueue;
use super::share::seats_of;
use super::state::State;
use super::{HOLDERS_MAX, Seats};
use crate::budget::permits::{HeldBy, Permits, RouteOfServer};
use crate::execution::key::ExecutionKey;
use crate::sorted::insert_sorted;

impl<T: SeatRequest> Seats<T> {
    /// Returns the reason why this request of the route waits.
    pub(crate) fn why(&self, key: ExecutionKey, item: &T) -> Full {
        let mut state = self.state.lock();
        let State { taken, counts, routes, .. } = &mut *state;
        let route = routes.entry(key).or_insert_with(|| self.new_route());
        let full = self.full(route, key, (*taken, counts), self.now(), item);
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

    /// Returns a route as the permits know it, which several servers may share.
    pub(crate) fn route_of_server(&self, key: ExecutionKey) -> RouteOfServer {
        RouteOfServer { server: self.waiter.as_ptr().cast::<()>() as usize, key }
    }

    /// Returns which routes hold the most of these permits, the largest number first: the route of
    /// this server if it is one, the number of permits, and when the oldest was taken.
    pub(crate) fn holders_of(
        &self,
        permits: &Permits,
    ) -> impl Iterator<Item = (Option<ExecutionKey>, usize, Instant)> {
        permits.held_most().into_iter().map(|HeldBy { route, held, since }| {
            let key = route.filter(|of| *of == self.route_of_server(of.key)).map(|of| of.key);
            (key, held, since)
        })
    }

    /// Returns the reason why a request of a route has no seat.
    pub(super) fn full(
        &self,
        route: &RouteQueue<T>,
        key: ExecutionKey,
        (taken_in_all, counts): (usize, &Counts),
        now: u64,
        item: &T,
    ) -> Full {
        let own = route.len_of(item.client().map(|client| client.client()));
        let wait = route.backlog.wait_for(now, route.len_before(own)).map(Duration::from_nanos);
        Full {
            taken: route.taken,
            taken_in_all,
            seats_max: self.seats_max,
            waiting: route.len(),
            client: item.client().map(|client| (seats_of(client, key), own)),
            wait,
            permits: item.permits().map(|permits| {
                let held = item.client().map(|client| permits.held_by(client.client()));
                (permits.clone(), held.unwrap_or(0))
            }),
            lacks_processor: self.lacks_processor(
                route,
                counts,
                key,
                self.seats_max.saturating_sub(taken_in_all),
                item.client(),
            ),
            lacks_memory: false,
        }
    }
}
