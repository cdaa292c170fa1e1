//! Looking into the app: metrics, and where the time of a request went.

use std::sync::Arc;
use std::time::Duration;

use filoplume_runtime::{Response, StatusCode};

use super::App;
use crate::observe::{CONTENT_TYPE, Observer};
use crate::routing::get;

impl App {
    /// Adds a route that returns metrics of the app and its server as
    /// [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/), for Prometheus.
    ///
    /// There are requests by route and status, requests in progress, histograms of their times and
    /// of the phases of these, and what the server knows of connections, threads, memory and
    /// refusals. The guide lists them. Labels are the patterns of routes, never paths, so clients
    /// cannot make new series.
    ///
    /// The text is at most half a second old, so a client that asks for it all the time costs
    /// little.
    ///
    /// Everybody who can reach the route can read the metrics. Put it behind a middleware, or on a
    /// path that the proxy does not pass on. To restrict it, add the route to a [`Router`] of its
    /// own: take [`Observed`](crate::extract::Observed) in a handler and return
    /// [`open_metrics`](crate::extract::Observed::open_metrics).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "hi").metrics("/metrics");
    /// let client = app.test();
    /// client.get("/").send();
    /// let metrics = client.get("/metrics").send();
    /// assert!(metrics.text().contains(
    ///     "http_server_requests_total{method=\"GET\",route=\"/\",status=\"200\"} 1\n"
    /// ));
    /// ```
    ///
    /// [`Router`]: crate::Router
    #[track_caller]
    pub fn metrics(self, pattern: &str) -> Self {
        let (app, observer) = self.observed();
        let handler = move || metrics_response(&observer);
        // Formatting a thousand routes takes milliseconds, which no loop should spend. It must be
        // answered when all threads are busy: that is when it is needed.
        app.route(pattern, get(handler).on_pool().vital())
    }

    /// Sets from which time on a request is slow. Slow and refused requests are logged, with the
    /// phases of their time, and kept for [`Observed::recent`](crate::extract::Observed::recent).
    /// Default: one second. Requests are measured from then on.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let app = App::new().get("/", || "hi").slow_after(Duration::from_millis(200));
    /// # app.test().get("/").send().assert_status(200);
    /// ```
    pub fn slow_after(self, time: Duration) -> Self {
        let (app, observer) = self.observed();
        observer.set_slow_after(time);
        app
    }

    /// Counts and measures requests, for handlers that take an
    /// [`Observed`](crate::extract::Observed). [`metrics`](Self::metrics) does it too.
    pub(crate) fn observed(mut self) -> (Self, Arc<Observer>) {
        let observer = Arc::clone(self.settings.observer.get_or_insert_default());
        (self, observer)
    }
}

fn metrics_response(observer: &Observer) -> Response {
    let mut response = Response::new(StatusCode::OK);
    response.set_bytes(observer.open_metrics());
    // Both names and values are valid.
    let _ = response.set_header("content-type", CONTENT_TYPE);
    let _ = response.set_header("cache-control", "no-store");
    response
}
