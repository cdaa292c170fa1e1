//! Values for the console only: the routes with the most requests, the calls that run, the health
//! checks, and the time since the start.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use filoplume_runtime::{Monitor, RunningCall};

use super::{CheckReport, Observer, RouteReport};

/// The routes with the most requests.
pub(crate) struct Busiest {
    /// The number of routes that had a request.
    pub(crate) known: usize,
    /// Requests of all routes since the start.
    pub(crate) requests: u64,
    /// Requests of all routes that are being answered.
    pub(crate) active: u64,
    /// The busiest first.
    pub(crate) routes: Vec<RouteReport>,
}

impl Observer {
    /// Returns up to `max` routes that had a request. Histograms are read of these only.
    pub(crate) fn busiest(&self, max: usize) -> Busiest {
        let mut busiest = Busiest { known: 0, requests: 0, active: 0, routes: Vec::new() };
        let Some(known) = self.known.get() else { return busiest };
        let mut called = Vec::new();
        for route in 0..known.counts.routes() {
            let counts = known.counts.read(route);
            if counts.begun > 0 {
                called.push((Reverse(counts.begun), route));
                busiest.requests += counts.begun;
                busiest.active += counts.active();
            }
        }
        busiest.known = called.len();
        called.sort_unstable();
        busiest.routes = called.iter().take(max).map(|(_, route)| known.report(*route)).collect();
        busiest
    }

    /// Returns the calls of handlers that run, the longest first.
    pub(crate) fn calls(&self) -> Vec<RunningCall> {
        self.monitor.get().and_then(Monitor::calls).unwrap_or_default()
    }

    /// Returns how often routes have moved between the event loops and the pool. `None` for an app
    /// without a server.
    pub(crate) fn route_moves(&self) -> Option<u64> {
        self.monitor.get()?.route_moves()
    }

    /// Returns how long ago the server was started. `None` for an app without a server.
    pub(crate) fn uptime(&self) -> Option<Duration> {
        self.started_at.get().map(Instant::elapsed)
    }

    /// Returns what is known of the health checks.
    pub(crate) fn checks(&self) -> Vec<CheckReport> {
        self.checks.get().map(|checks| checks.reports()).unwrap_or_default()
    }

    /// Returns whether a server was started, which may have ended.
    pub(crate) fn has_server(&self) -> bool {
        self.started_at.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::RouteName;
    use super::*;

    #[test]
    fn the_routes_with_the_most_requests_come_first() {
        let observer = Observer::default();
        let names = (0..5).map(|number| RouteName {
            methods: "GET".to_owned(),
            pattern: format!("/{number}"),
            is_on_pool: false,
        });
        observer.begin(names, std::iter::empty());
        for (route, requests) in [(0, 1), (1, 3), (3, 2), (4, 3)] {
            for _ in 0..requests {
                observer.begin_request(Some(route)).unwrap().end(200);
            }
        }
        observer.begin_request(None);
        let busiest = observer.busiest(4);
        assert_eq!((busiest.known, busiest.requests, busiest.active), (5, 10, 1));
        let patterns: Vec<_> = busiest.routes.iter().map(|route| &*route.pattern).collect();
        assert_eq!(patterns, ["/1", "/4", "/3", "/0"], "those without a request are left out");
        assert!(observer.uptime().is_none() && !observer.has_server());
    }
}
