//! Rates: how fast the counters of the last snapshots grow.

use std::collections::{HashMap, VecDeque};

use super::snapshot::{Route, Snapshot};

/// Rates are computed over at least this time, in seconds. A console may send two snapshots at
/// nearly the same moment, between which next to nothing has happened.
const RATE_SECONDS_MIN: f64 = 0.5;

/// How many earlier snapshots are kept to compute rates.
const SNAPSHOTS_MAX: usize = 8;

/// The rates of a route between two snapshots, per second. A rate of a time, such as `computing`,
/// is the mean number of calls that did this.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) requests: Option<f64>,
    pub(crate) errors: Option<f64>,
    pub(crate) computing: Option<f64>,
    pub(crate) waiting: Option<f64>,
}

/// The last snapshots.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    last: Option<Snapshot>,
    /// Earlier ones, the oldest first.
    before: VecDeque<Snapshot>,
}

impl Snapshots {
    pub(super) fn add(&mut self, snapshot: Snapshot) {
        let (uptime, before) = (snapshot.uptime_s, self.last.replace(snapshot));
        self.before.extend(before);
        // A server that was started again has counted from zero.
        self.before.retain(|before| seconds_between(before, uptime).is_some());
        let is_old = |before: &Snapshot| {
            seconds_between(before, uptime).is_some_and(|seconds| seconds >= RATE_SECONDS_MIN)
        };
        while self.before.get(1).is_some_and(is_old) || self.before.len() > SNAPSHOTS_MAX {
            self.before.pop_front();
        }
    }

    pub(super) fn last(&self) -> Option<&Snapshot> {
        self.last.as_ref()
    }

    pub(super) fn have_rates(&self) -> bool {
        self.seconds().is_some()
    }

    /// Returns the seconds over which rates are computed.
    fn seconds(&self) -> Option<f64> {
        let seconds = seconds_between(self.before.front()?, self.last.as_ref()?.uptime_s)?;
        (seconds >= RATE_SECONDS_MIN).then_some(seconds)
    }

    /// Returns how fast a value of the whole server grows.
    pub(super) fn per_second(&self, value: impl Fn(&Snapshot) -> Option<f64>) -> Option<f64> {
        let (before, now) = (self.before.front()?, self.last.as_ref()?);
        rate(value(before), value(now), self.seconds())
    }

    /// Returns the routes of a snapshot, which is the last one, with their rates.
    pub(super) fn with_rates<'a>(&self, now: &'a Snapshot) -> Vec<(&'a Route, Rates)> {
        let seconds = self.seconds();
        let earlier = self.before.front();
        // A route that is not in an earlier snapshot had no request then, unless that snapshot has
        // the busiest routes only.
        let of_new = earlier.filter(|earlier| earlier.has_all_routes()).map(|_| 0.0);
        let before = earlier.into_iter().flat_map(|earlier| &earlier.routes);
        let before: HashMap<_, _> =
            before.map(|route| ((&route.methods, &route.pattern), route)).collect();
        let with_rates = |route: &'a Route| {
            let old = before.get(&(&route.methods, &route.pattern)).copied();
            let of = |value: fn(&Route) -> Option<f64>| {
                let old = old.map_or(of_new, value);
                rate(old, value(route), seconds)
            };
            let rates = Rates {
                requests: of(|route| route.requests),
                errors: of(|route| route.errors),
                computing: of(|route| route.computing_s),
                waiting: of(|route| route.waiting_s),
            };
            (route, rates)
        };
        now.routes.iter().map(with_rates).collect()
    }
}

/// Returns the time from a snapshot to a later one. `None` if it is not earlier.
fn seconds_between(before: &Snapshot, uptime_s: Option<f64>) -> Option<f64> {
    let seconds = uptime_s? - before.uptime_s?;
    (seconds > 0.0).then_some(seconds)
}

/// Returns how fast a counter grows, or `None` if it has become smaller, because it was reset.
fn rate(before: Option<f64>, now: Option<f64>, seconds: Option<f64>) -> Option<f64> {
    let rate = (now? - before?) / seconds?;
    (rate >= 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        Snapshot::parse(include_bytes!("../../tests/it/feed-1.json")).unwrap()
    }

    #[test]
    fn a_route_that_is_new_has_counted_from_zero() {
        assert_eq!(rate_of_a_new_route(3), Some(12.0));
    }

    /// Regression: its requests since the start seemed to be those of the last seconds.
    #[test]
    fn a_route_that_becomes_one_of_the_busiest_has_no_rate_at_first() {
        assert_eq!(rate_of_a_new_route(4), None);
    }

    /// Returns the rate of a route with 24 requests that was not among the three routes of a
    /// snapshot two seconds before, when so many were known.
    fn rate_of_a_new_route(known_before: u32) -> Option<f64> {
        let mut first = snapshot();
        let mut second = first.clone();
        let is_new = first.routes.remove(0);
        assert_eq!(first.routes.len(), 3);
        first.routes_known = Some(f64::from(known_before));
        (first.uptime_s, second.uptime_s) = (Some(10.0), Some(12.0));
        second.routes[0].requests = Some(24.0);
        let mut snapshots = Snapshots::default();
        snapshots.add(first);
        snapshots.add(second.clone());
        let rates = snapshots.with_rates(&second);
        let (_, rates) = rates.iter().find(|(route, _)| route.pattern == is_new.pattern).unwrap();
        rates.requests
    }

    #[test]
    fn many_snapshots_at_nearly_the_same_moment_are_not_all_kept() {
        let mut snapshots = Snapshots::default();
        for step in 0..100 {
            let uptime_s = Some(11.6 + f64::from(step) / 1e3);
            snapshots.add(Snapshot { uptime_s, ..snapshot() });
        }
        assert_eq!(snapshots.before.len(), SNAPSHOTS_MAX);
    }

    #[test]
    fn rates_need_half_a_second_and_counts_that_grow() {
        let rate_after = |seconds: f64, before: f64, now: f64| {
            let mut snapshots = Snapshots::default();
            for (uptime, value) in [(10.0, before), (10.0 + seconds, now)] {
                let mut snapshot = snapshot();
                snapshot.uptime_s = Some(uptime);
                snapshot.routes[0].requests = Some(value);
                snapshots.add(snapshot);
            }
            snapshots.per_second(|snapshot| snapshot.routes[0].requests)
        };
        assert_eq!(rate_after(0.5, 1.0, 2.0), Some(2.0));
        assert_eq!(rate_after(0.25, 1.0, 2.0), None);
        assert_eq!(rate_after(2.0, 2.0, 2.0), Some(0.0));
        assert_eq!(rate_after(2.0, 2.0, 1.0), None, "another process may answer here");
    }
}
