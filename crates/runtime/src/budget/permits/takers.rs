//! Which routes hold permits, and since when.

use std::cmp::Reverse;
use std::time::Instant;

use crate::budget::clients::ClientId;
use crate::execution::key::ExecutionKey;
use crate::sorted::insert_sorted;

/// How many routes are named. Those that hold one permit each explain nothing.
const NAMED_MAX: usize = 3;

/// A route of one of the servers that share the permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteOfServer {
    /// The address of the server's waiter, which tells servers apart.
    pub(crate) server: usize,
    pub(crate) key: ExecutionKey,
}

/// Whom a permit is for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taker {
    /// The client, if it is counted.
    pub(crate) client: Option<ClientId>,
    /// The route of the request. `None` for a handler that takes a permit by itself.
    pub(crate) route: Option<RouteOfServer>,
}

/// How many permits a route holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldBy {
    /// `None` for permits that handlers have taken by themselves.
    pub(crate) route: Option<RouteOfServer>,
    pub(crate) held: usize,
    /// When the oldest of them was taken.
    pub(crate) since: Instant,
}

/// The permits that are taken, each at a place of its own.
#[derive(Debug, Default)]
pub(super) struct Takers {
    /// The route of each permit, and when it was taken.
    places: Vec<Option<(Option<RouteOfServer>, Instant)>>,
    /// The places without a permit.
    free: Vec<usize>,
}

impl Takers {
    /// Notes a permit that is taken now. Returns its place.
    pub(super) fn add(&mut self, route: Option<RouteOfServer>) -> usize {
        let entry = Some((route, Instant::now()));
        if let Some(place) = self.free.pop() {
            self.places[place] = entry;
            return place;
        }
        self.places.push(entry);
        self.places.len() - 1
    }

    /// Forgets the permit at this place.
    pub(super) fn remove(&mut self, place: usize) {
        self.places[place] = None;
        self.free.push(place);
    }

    /// Returns who holds the most permits, the largest number first.
    pub(super) fn most(&self) -> Vec<HeldBy> {
        let mut all: Vec<HeldBy> = Vec::new();
        for (route, since) in self.places.iter().flatten() {
            match all.iter_mut().find(|known| known.route == *route) {
                Some(known) => {
                    known.held += 1;
                    known.since = known.since.min(*since);
                }
                None => all.push(HeldBy { route: *route, held: 1, since: *since }),
            }
        }
        let mut most = Vec::new();
        for held_by in all {
            insert_sorted(&mut most, held_by, NAMED_MAX, |it| (Reverse(it.held), it.since));
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(index: usize) -> Option<RouteOfServer> {
        Some(RouteOfServer { server: 1, key: ExecutionKey::at(index) })
    }

    #[test]
    fn those_with_the_most_permits_come_first_and_the_oldest_call_is_told() {
        let mut takers = Takers::default();
        let begun = Instant::now();
        let old = takers.add(route(1));
        takers.add(route(2));
        let between = Instant::now();
        takers.add(route(1));
        takers.add(None);
        let short = |takers: &Takers| -> Vec<_> {
            takers.most().iter().map(|it| (it.route, it.held)).collect()
        };
        assert_eq!(short(&takers), [(route(1), 2), (route(2), 1), (None, 1)]);
        let since = takers.most()[0].since;
        assert!(begun <= since && since <= between);
        takers.remove(old);
        assert!(takers.most()[1].since >= between, "the older one of the route has ended");
        assert_eq!(short(&takers), [(route(2), 1), (route(1), 1), (None, 1)]);
    }

    #[test]
    fn places_are_used_again_and_routes_of_several_servers_are_not_mixed_up() {
        let mut takers = Takers::default();
        for _ in 0..100 {
            let place = takers.add(route(1));
            takers.remove(place);
        }
        assert_eq!((takers.places.len(), takers.most().len()), (1, 0));
        takers.add(route(1));
        takers.add(Some(RouteOfServer { server: 2, key: ExecutionKey::at(1) }));
        assert_eq!(takers.most().len(), 2);
        for index in 10..30 {
            takers.add(route(index));
        }
        assert_eq!(takers.most().len(), NAMED_MAX);
    }
}
