//! Dropped spans are reported in the log. This test has a binary of its own, because the exporter's
//! thread logs to the subscriber of the whole process.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use filoplume_otlp::Otlp;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

/// Passes the lines about dropped spans on.
struct Lines(Mutex<Sender<String>>);

impl<S: tracing::Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "filoplume_otlp" {
            let _ = self.0.lock().unwrap().send(format!("{event:?}"));
        }
    }
}

#[test]
fn spans_that_are_dropped_are_reported_with_the_reason() {
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (layer, exporter) = Otlp::new()
        .endpoint(&format!("http://{away}"))
        .first_pause(Duration::from_millis(1))
        .start()
        .unwrap();
    let (sender, lines) = mpsc::channel();
    let subscriber = Registry::default().with(layer).with(Lines(Mutex::new(sender)));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    for _ in 0..3 {
        tracing::info_span!("work").in_scope(|| ());
    }
    assert!(exporter.flush(Duration::from_secs(60)));
    let line = lines.recv_timeout(Duration::from_secs(60)).unwrap();
    for part in ["spans were not exported", "dropped_unsent", "3", "reason", "refused"] {
        assert!(line.contains(part), "{line}");
    }
}
