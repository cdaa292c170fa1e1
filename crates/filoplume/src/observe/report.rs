//! Reports on the requests of each route, as values for programs.

use std::time::Duration;

use filoplume_runtime::Timing;

use super::histogram::Snapshot;
use super::{Known, Observer, RouteName};

/// What is known of the requests of one route.
///
/// Counts are exact. Times are those of the requests that were measured: all that ran on the pool,
/// waited or were refused, and about one in sixteen of the others, each of which counts for
/// sixteen.
///
/// ```
/// use filoplume::extract::Observed;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || "hi").get("/routes", |observed: Observed| {
///     let lines = observed.routes().into_iter();
///     lines.map(|route| format!("{} {}\n", route.pattern, route.requests)).collect::<String>()
/// });
/// let client = app.test();
/// client.get("/").send();
/// client.get("/routes").send().assert_text("/ 1\n/routes 1\n(no route) 0\n");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RouteReport {
    /// The methods of the route, such as `GET`. Empty for requests that no route answers.
    pub methods: String,
    /// The pattern of the route, or `(no route)`.
    pub pattern: String,
    /// Whether the app says that it runs on the pool: see
    /// [`on_pool`](crate::Route::on_pool). The engine decides about all others.
    pub is_on_pool: bool,
    /// Requests since the start, including those in progress.
    pub requests: u64,
    /// Requests in progress.
    pub active: u64,
    /// Responses by status. Seven or more different statuses are told apart. Of all others, 0
    /// stands for those below 500, and [`u16::MAX`] for server errors.
    pub statuses: Vec<(u16, u64)>,
    /// Half of the requests took at most this long. `None` until one was measured.
    pub median: Option<Duration>,
    /// 99 of 100 requests took at most this long.
    pub p99: Option<Duration>,
    /// In which phases the time was spent, summed over all requests. [`Timing`] describes them.
    pub phases: Vec<(&'static str, Duration)>,
}

impl Observer {
    /// Returns a report of each route.
    pub(crate) fn reports(&self) -> Vec<RouteReport> {
        let Some(known) = self.known.get() else { return Vec::new() };
        (0..known.counts.routes()).map(|route| known.report(route)).collect()
    }
}

impl Known {
    pub(super) fn report(&self, route: usize) -> RouteReport {
        let RouteName { methods, pattern, is_on_pool } = self.names[route].clone();
        let counts = self.counts.read(route);
        let times = self.counts.times(route);
        let total = times.map(|times| times.total.read());
        let quantile = |share| total.as_ref().and_then(|total: &Snapshot| total.quantile(share));
        let phase_of = |(index, (name, _)): (usize, (&'static str, Duration))| {
            Some((name, times?.phase(index)?.sum))
        };
        RouteReport {
            methods,
            pattern,
            is_on_pool,
            requests: counts.begun,
            active: counts.active(),
            median: quantile(0.5),
            p99: quantile(0.99),
            phases: Timing::default()
                .phases()
                .into_iter()
                .enumerate()
                .filter_map(phase_of)
                .collect(),
            statuses: counts.statuses,
        }
    }
}
