//! Collectors for tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use filoplume::prelude::*;
use filoplume::{Headers, RunningApp};
use filoplume_otlp::{Exporter, Otlp};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

/// How long tests wait for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A collector that keeps what it gets.
pub(crate) struct Collector {
    app: RunningApp,
    received: Receiver<(Headers, Vec<u8>)>,
}

/// What a collector answers: the status, `Retry-After`, and the content.
pub(crate) type Answer = (u16, Option<&'static str>, &'static [u8]);

impl Collector {
    /// Starts a collector that accepts everything.
    pub(crate) fn start() -> Self {
        Self::answering(|_| (200, None, b""))
    }

    /// Starts a collector that chooses its answer by the number of the request.
    pub(crate) fn answering(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let (sender, received) = mpsc::channel();
        let count = AtomicUsize::new(0);
        let collect = move |headers: Headers, content: Vec<u8>| -> Result<Response> {
            sender.send((headers, content)).unwrap();
            let (status, after, content) = answer(count.fetch_add(1, Ordering::Relaxed));
            let mut response = Response::new(status);
            response.set_bytes(content);
            if let Some(after) = after {
                response.set_header("retry-after", after)?;
            }
            Ok(response)
        };
        let app = App::new().post("/v1/traces", collect).start("127.0.0.1:0").unwrap();
        Self { app, received }
    }

    pub(crate) fn url(&self) -> String {
        self.app.url()
    }

    /// Returns the next request that was received.
    pub(crate) fn next(&self) -> (Headers, Vec<u8>) {
        self.received.recv_timeout(SOON).unwrap()
    }

    /// Returns how many further requests were received.
    pub(crate) fn others(&self) -> usize {
        self.received.try_iter().count()
    }
}

/// Settings for a collector, with pauses that tests can wait for.
pub(crate) fn otlp(url: &str) -> Otlp {
    Otlp::new()
        .endpoint(url)
        .service_name("shop")
        .first_pause(Duration::from_millis(1))
        .shutdown_timeout(Duration::ZERO)
}

/// Runs a program under a subscriber that exports its spans.
pub(crate) fn exporting<T>(otlp: Otlp, program: impl FnOnce(&Exporter) -> T) -> T {
    let (layer, exporter) = otlp.start().unwrap();
    let subscriber = Registry::default().with(layer);
    tracing::subscriber::with_default(subscriber, || program(&exporter))
}
