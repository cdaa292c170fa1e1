//! What is known of the requests, as values for programs and as text for Prometheus.

use std::time::Duration;

use filoplume_runtime::{Metrics, Phase, Timing};

use super::counts::{OTHER_STATUS, RouteCounts};
use super::histogram::Snapshot;
use super::open_metrics::{OpenMetrics, Resolution, Seconds, labels};
use super::{Known, Observer, RouteName};

/// A phase is written for a route from the moment in which a request spent this long in it. Most
/// routes never wait, and their series would all be zero.
const PHASE_MIN: Duration = Duration::from_micros(100);

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
    /// Requests since the start, including those in progress.
    pub requests: u64,
    /// Requests in progress.
    pub active: u64,
    /// Responses by status. Status 0 stands for all others, after the first seven.
    pub statuses: Vec<(u16, u64)>,
    /// Half of the requests took at most this long. `None` until one was measured.
    pub median: Option<Duration>,
    /// 99 of 100 requests took at most this long.
    pub p99: Option<Duration>,
    /// In which phases the time went, summed over all requests. [`Timing`] describes them.
    pub phases: Vec<(&'static str, Duration)>,
}

impl Observer {
    /// Returns a report of each route.
    pub(crate) fn reports(&self) -> Vec<RouteReport> {
        let Some(known) = self.known.get() else { return Vec::new() };
        (0..known.counts.routes()).map(|route| known.report(route)).collect()
    }

    /// Returns everything as OpenMetrics.
    pub(crate) fn open_metrics(&self) -> String {
        let known = self.known.get();
        let routes = known.map_or(0, |known| known.counts.routes());
        let mut text = OpenMetrics::with_capacity(8 * 1024 + routes * 2048);
        if let Some(known) = known {
            known.write_requests(&mut text);
            known.write_times(&mut text);
        }
        if let Some(metrics) = self.server() {
            write_connections(&metrics, &mut text);
            write_threads(&metrics, &mut text);
        }
        text.finish()
    }
}

impl Known {
    fn report(&self, route: usize) -> RouteReport {
        let RouteName { methods, pattern } = self.names[route].clone();
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

    fn write_requests(&self, text: &mut OpenMetrics) {
        let counts: Vec<(String, RouteCounts)> = (0..self.names.len())
            .map(|route| (self.labels_of(route), self.counts.read(route)))
            .filter(|(_, counts)| counts.begun > 0)
            .collect();
        text.family("http_server_requests", "counter", "Requests that have a response.");
        for (labels, counts) in &counts {
            for (status, count) in &counts.statuses {
                match *status {
                    OTHER_STATUS => text.counter(&format!("{labels},status=\"other\""), count),
                    status => text.counter(&format!("{labels},status=\"{status}\""), count),
                }
            }
        }
        text.family("http_server_active_requests", "gauge", "Requests that are being answered.");
        for (labels, counts) in &counts {
            text.gauge(labels, counts.active());
        }
    }

    fn write_times(&self, text: &mut OpenMetrics) {
        text.family(
            "http_server_request_duration_seconds",
            "histogram",
            "From the first byte of a request to the last byte of its response.",
        );
        let measured: Vec<_> = (0..self.names.len())
            .filter_map(|route| Some((self.labels_of(route), self.counts.times(route)?)))
            .collect();
        for (labels, times) in &measured {
            text.histogram(labels, &times.total.read(), Resolution::Coarse);
        }
        text.family(
            "http_server_all_request_duration_seconds",
            "histogram",
            "The same for all routes together, in finer buckets.",
        );
        text.histogram("", &self.total.read(), Resolution::Fine);
        text.family(
            "http_server_request_phase_seconds",
            "histogram",
            "The parts of that time. A phase appears when a request spends 100 microseconds in it.",
        );
        for (index, (phase, _)) in Timing::default().phases().into_iter().enumerate() {
            for (labels, times) in &measured {
                let Some(times) = times.phase(index).filter(is_worth_a_series) else { continue };
                let labels = format!("{labels},phase=\"{phase}\"");
                text.histogram(&labels, &times, Resolution::Decades);
            }
        }
    }

    fn labels_of(&self, route: usize) -> String {
        let RouteName { methods, pattern } = &self.names[route];
        labels(&[("method", methods), ("route", pattern)])
    }
}

fn is_worth_a_series(times: &Snapshot) -> bool {
    times.quantile(1.0).is_some_and(|longest| longest > PHASE_MIN)
}

fn write_connections(metrics: &Metrics, text: &mut OpenMetrics) {
    text.family("filoplume_connections", "gauge", "Open connections. Idle ones hold no thread.");
    text.gauge("state=\"idle\"", metrics.parked.min(metrics.connections));
    text.gauge("state=\"busy\"", metrics.connections.saturating_sub(metrics.parked));
    text.family("filoplume_connections_max", "gauge", "The maximum of open connections.");
    text.gauge("", metrics.connections_max);
    text.family("filoplume_connections_accepted", "counter", "Accepted connections.");
    text.counter("", metrics.accepted);
    text.family("filoplume_connections_ended", "counter", "Connections ended by the server.");
    text.counter("reason=\"deadline\"", metrics.timed_out);
    text.counter("reason=\"room\"", metrics.connections_shed);
    text.family("filoplume_accept_errors", "counter", "Failed attempts to accept a connection.");
    text.counter("", metrics.accept_errors);
    text.family("filoplume_upgrades", "counter", "Connections that became another protocol.");
    text.counter("", metrics.upgraded);
    #[cfg(feature = "tls")]
    {
        text.family("filoplume_tls_handshakes", "counter", "Completed TLS handshakes.");
        text.counter("", metrics.handshakes);
    }
    text.family("filoplume_refusals", "counter", "Requests and connections that were refused.");
    for (refusal, count) in metrics.refusals() {
        text.counter(&labels(&[("reason", &refusal.to_string())]), count);
    }
    text.family("filoplume_memory_bytes", "gauge", "Bytes that are buffered for all clients.");
    text.gauge("", metrics.memory_used);
    text.family("filoplume_memory_max_bytes", "gauge", "The maximum of buffered bytes.");
    text.gauge("", metrics.memory_max);
    text.family("filoplume_stopping", "gauge", "Whether the server stops or has stopped.");
    text.gauge("", u8::from(metrics.phase != Phase::Serving));
}

fn write_threads(metrics: &Metrics, text: &mut OpenMetrics) {
    let pool = &metrics.pool;
    text.family("filoplume_threads", "gauge", "Threads, including those of the event loops.");
    text.gauge("state=\"idle\"", pool.idle.min(pool.threads));
    text.gauge("state=\"busy\"", pool.threads.saturating_sub(pool.idle));
    text.family("filoplume_requests_waiting", "gauge", "Requests that wait for a thread.");
    text.gauge("", metrics.waiting);
    text.family("filoplume_leased_connections", "gauge", "Connections that a thread keeps.");
    text.gauge("", metrics.leased);
    text.family("filoplume_dispatched_requests", "counter", "Requests that ran on the pool.");
    text.counter("", metrics.dispatched);
    text.family("filoplume_loop_handovers", "counter", "Event loops that changed their thread.");
    text.counter("result=\"done\"", metrics.hand_overs);
    text.counter("result=\"failed\"", metrics.hand_overs_failed);
    text.family("filoplume_panics", "counter", "Handlers that panicked.");
    text.counter("", metrics.panics);
    text.family("filoplume_cancelled_requests", "counter", "Requests whose client has gone.");
    text.counter("", metrics.cancelled);
    write_routes(metrics, text);
}

/// Writes how the engine runs the routes. It measures them itself, and may count several routes as
/// one if there are more than a thousand.
fn write_routes(metrics: &Metrics, text: &mut OpenMetrics) {
    text.family("filoplume_handler_seconds", "counter", "Estimated time of handlers by use.");
    for route in metrics.routes() {
        for (kind, time) in [("computing", route.computing), ("waiting", route.waiting)] {
            text.counter(&labels(&[("handler", &route.name), ("time", kind)]), Seconds(time));
        }
    }
}
