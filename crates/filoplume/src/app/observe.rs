//! Looking into the app: metrics, and where the time of a request went.

use std::sync::Arc;
use std::time::Duration;

use filoplume_runtime::{Response, StatusCode};

use super::App;
use super::beside::Part;
#[cfg(target_os = "linux")]
use crate::observe::process;
use crate::observe::{CONTENT_TYPE, Observer, Samples};
use crate::routing::{Router, get};

impl App {
    /// Adds a route that returns metrics of the app and its server as
    /// [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/), for Prometheus.
    ///
    /// There are requests by route and status, requests in progress, histograms of the times of
    /// requests and of their phases, and what the server knows about connections, threads, memory
    /// and refusals. The guide lists them. Labels are the patterns of routes, never paths, so
    /// clients cannot make new series.
    ///
    /// The text is formatted at most twice a second, so a client that asks for it all the time
    /// costs little. While one request formats the next text, the others get the last one, if that
    /// is younger than five seconds. Otherwise four of them wait for the next text, and the rest
    /// get a `503` with `Retry-After`: a [collector](Self::collector) that hangs does not look like
    /// a server whose counters stand still.
    ///
    /// Everybody who can reach the route can read the metrics. Put it behind a middleware, or on a
    /// path that the proxy does not pass on, or on an address of its own:
    /// [`metrics_on`](Self::metrics_on). To put middleware around the metrics alone, add a route to
    /// a [`Router`] of its own: its handler takes [`Observed`](crate::extract::Observed) and
    /// returns [`open_metrics`](crate::extract::Observed::open_metrics).
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
        let (mut app, observer) = self.observed();
        app.router = app.router.merge(metrics_routes(pattern, observer));
        app
    }

    /// Like [`metrics`](Self::metrics), on an address of its own, such as `127.0.0.1:9000`, and not
    /// on those of the app. So it can stay out of reach of the app's clients, and it works while
    /// the app's connections and threads are used up. Port 0 selects a free port. The middleware of
    /// the app does not apply to it. The probes of a [`Health`](crate::Health::address) and a
    /// [console](crate::Console::address) with the same address share it.
    ///
    /// [`listen`](Self::listen), [`start`](Self::start) and their variants bind the address, and
    /// serve it until the app has stopped. [`RunningApp::metrics_addr`] returns the address.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", || "hi")
    ///     .metrics_on("127.0.0.1:0", "/metrics")
    ///     .start("127.0.0.1:0")?;
    /// assert_ne!(app.metrics_addr(), Some(app.local_addr()));
    /// app.shutdown();
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// [`RunningApp::metrics_addr`]: crate::RunningApp::metrics_addr
    #[track_caller]
    pub fn metrics_on(self, address: impl Into<String>, pattern: &str) -> Self {
        let (mut app, observer) = self.observed();
        let routes = metrics_routes(pattern, observer);
        app.add_beside(address.into(), Part::Metrics, pattern, routes);
        app
    }

    /// Adds samples of your own to the [metrics](Self::metrics), by a closure that is called
    /// whenever their text is made, at most twice a second. It must not wait. If it panics, its
    /// other samples are missing and the log says so once.
    ///
    /// [Hubs](crate::sse::Hub::collector), rooms and Redis channels have collectors for their own
    /// figures. Labels become series in Prometheus, so do not let clients choose them.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::sse::Hub;
    ///
    /// let hub = Hub::new();
    /// let waiting = || 3.0;
    /// let app = App::new()
    ///     .metrics("/metrics")
    ///     .collector(move |samples| {
    ///         samples.gauge("jobs_waiting", "Jobs that nobody has begun.", &[], waiting());
    ///     })
    ///     .collector(hub.collector("news"));
    /// let metrics = app.test().get("/metrics").send();
    /// assert!(metrics.text().contains("\njobs_waiting 3\n"));
    /// assert!(metrics.text().contains("\nfiloplume_hub_clients{hub=\"news\"} 0\n"));
    /// ```
    pub fn collector(self, collect: impl Fn(&mut Samples) + Send + Sync + 'static) -> Self {
        let (app, observer) = self.observed();
        observer.add_collector(collect);
        app
    }

    /// Sets the time from which on a request counts as slow. Slow and refused requests are logged,
    /// with the phases of their time, and kept for
    /// [`Observed::recent`](crate::extract::Observed::recent). Default: one second. This setting
    /// makes the app measure its requests.
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
        #[cfg(target_os = "linux")]
        process::open_files();
        let observer = Arc::clone(self.settings.observer.get_or_insert_default());
        (self, observer)
    }
}

#[track_caller]
fn metrics_routes(pattern: &str, observer: Arc<Observer>) -> Router {
    let handler = move || metrics_response(&observer);
    // On the pool, because formatting a thousand routes takes milliseconds, which no loop should
    // spend. Vital, because metrics are needed most when all threads are busy.
    Router::new().route(pattern, get(handler).on_pool().vital())
}

fn metrics_response(observer: &Observer) -> Response {
    let Some(text) = observer.open_metrics_soon() else {
        let mut response = Response::new(StatusCode::SERVICE_UNAVAILABLE);
        let _ = response.set_header("retry-after", "1");
        response.set_text(
            "the metrics are being formatted, and other requests wait for them; if this goes on, a \
             collector of the app hangs\n",
        );
        return response;
    };
    let mut response = Response::new(StatusCode::OK);
    response.set_bytes(text);
    // Both names and values are valid.
    let _ = response.set_header("content-type", CONTENT_TYPE);
    let _ = response.set_header("cache-control", "no-store");
    response
}
