//! The metrics of the engine as text for Prometheus.

#[cfg(feature = "tls")]
use std::time::UNIX_EPOCH;

use filoplume_runtime::{Metrics, Phase};

use super::open_metrics::{OpenMetrics, labels};

/// A family of metrics: its name, its kind, its help, and the labels and values of its samples.
type Family = (&'static str, Kind, &'static str, &'static [(&'static str, fn(&Metrics) -> u64)]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
}

use Kind::{Counter, Gauge};

const CONNECTIONS: &[Family] = &[
    (
        "filoplume_connections",
        Gauge,
        "Open connections. Idle: no thread, maybe an unread response or half an upload.",
        &[
            ("state=\"idle\"", |of| of.parked.min(of.connections)),
            ("state=\"busy\"", |of| of.connections.saturating_sub(of.parked)),
        ],
    ),
    (
        "filoplume_connections_max",
        Gauge,
        "The maximum of open connections.",
        &[("", |of| of.connections_max)],
    ),
    ("filoplume_connections_accepted", Counter, "Accepted connections.", &[("", |of| of.accepted)]),
    (
        "filoplume_connections_ended",
        Counter,
        "Connections ended by the server.",
        &[
            ("reason=\"deadline\"", |of| of.timed_out),
            ("reason=\"room\"", |of| of.connections_shed.saturating_sub(of.shed_for_descriptors)),
            ("reason=\"descriptors\"", |of| of.shed_for_descriptors),
            ("reason=\"memory\"", |of| of.ended_for_memory),
        ],
    ),
    (
        "filoplume_accept_errors",
        Counter,
        "Failed attempts to accept a connection.",
        &[
            ("reason=\"descriptors\"", |of| of.accepts_without_descriptor),
            ("reason=\"other\"", |of| {
                of.accept_errors.saturating_sub(of.accepts_without_descriptor)
            }),
        ],
    ),
    (
        "filoplume_connection_bytes",
        Counter,
        "Bytes of connections, without the frames of TLS records.",
        &[
            ("direction=\"read\"", |of| of.bytes_read),
            ("direction=\"written\"", |of| of.bytes_written),
        ],
    ),
    (
        "filoplume_streams",
        Gauge,
        "Open streams: pushed ones need no thread, held ones have one each.",
        &[
            ("kind=\"pushed\"", |of| of.pushed_streams as u64),
            ("kind=\"held\"", |of| of.held_streams as u64),
        ],
    ),
    (
        "filoplume_upgrades",
        Counter,
        "Connections that became another protocol.",
        &[("", |of| of.upgraded)],
    ),
];

#[cfg(feature = "tls")]
const TLS: &[Family] = &[
    (
        "filoplume_tls_handshakes",
        Counter,
        "Completed TLS handshakes. Those that failed are refusals.",
        &[
            ("session=\"new\"", |of| of.handshakes.saturating_sub(of.handshakes_resumed)),
            ("session=\"resumed\"", |of| of.handshakes_resumed),
        ],
    ),
    (
        "filoplume_tls_certificate_loads_failed",
        Counter,
        "Changed certificates that could not be used.",
        &[("", |of| of.certificate_loads_failed)],
    ),
];

#[cfg(not(feature = "tls"))]
const TLS: &[Family] = &[];

const THREADS: &[Family] = &[
    (
        "filoplume_threads",
        Gauge,
        "Threads of the pool, including those that lead event loops and those that are reserved.",
        &[
            ("state=\"idle\"", |of| of.pool.idle.min(of.pool.threads) as u64),
            ("state=\"busy\"", |of| of.pool.threads.saturating_sub(of.pool.idle) as u64),
        ],
    ),
    (
        "filoplume_threads_max",
        Gauge,
        "The maximum of handlers that may block. Loops and reserved threads come on top of it.",
        &[("", |of| of.threads_max as u64)],
    ),
    (
        "filoplume_requests_waiting",
        Gauge,
        "Requests that wait for a thread or permit before their handler begins.",
        &[("", |of| of.waiting as u64)],
    ),
    (
        "filoplume_leased_connections",
        Gauge,
        "Connections that a thread keeps.",
        &[("", |of| of.leased)],
    ),
    (
        "filoplume_dispatched_requests",
        Counter,
        "Requests that ran on the pool.",
        &[("", |of| of.dispatched)],
    ),
    (
        "filoplume_loop_handovers",
        Counter,
        "Event loops that changed their thread.",
        &[
            ("result=\"done\"", |of| of.hand_overs),
            ("result=\"failed\"", |of| of.hand_overs_failed),
        ],
    ),
    ("filoplume_panics", Counter, "Handlers that panicked.", &[("", |of| of.panics)]),
    (
        "filoplume_cancelled_requests",
        Counter,
        "Requests whose client has gone.",
        &[("", |of| of.cancelled)],
    ),
    (
        "filoplume_abandoned_requests",
        Counter,
        "Requests whose client had gone before their handler began.",
        &[("", |of| of.abandoned)],
    ),
    (
        "filoplume_memory_bytes",
        Gauge,
        "Bytes that are buffered for all clients.",
        &[("", |of| of.memory_used as u64)],
    ),
    (
        "filoplume_memory_max_bytes",
        Gauge,
        "The maximum of buffered bytes.",
        &[("", |of| of.memory_max as u64)],
    ),
    (
        "filoplume_spooled_bytes",
        Gauge,
        "Bytes of contents that wait in files.",
        &[("", |of| of.spooled_bytes)],
    ),
    (
        "filoplume_held_descriptors",
        Gauge,
        "Descriptors held beside those of connections.",
        &[("", |of| of.held_descriptors as u64)],
    ),
    (
        "filoplume_descriptors_max",
        Gauge,
        "The maximum of connections and held descriptors together.",
        &[("", |of| of.descriptors_max as u64)],
    ),
    (
        "filoplume_stopping",
        Gauge,
        "Whether the server stops or has stopped.",
        &[("", |of| u64::from(of.phase != Phase::Serving))],
    ),
];

/// Writes what the engine counts.
pub(super) fn write_server(metrics: &Metrics, text: &mut OpenMetrics) {
    for (name, kind, help, samples) in [CONNECTIONS, TLS, THREADS].into_iter().flatten() {
        text.family(name, if *kind == Gauge { "gauge" } else { "counter" }, help);
        for (labels, value) in *samples {
            match kind {
                Gauge => text.gauge(labels, value(metrics)),
                Counter => text.counter(labels, "", value(metrics)),
            }
        }
    }
    text.family(
        "filoplume_timeouts",
        "counter",
        "Connections that the server ended at a deadline, by what they waited for.",
    );
    for (awaited, count) in metrics.timeouts() {
        text.counter(&labels(&[("waits_for", &awaited.to_string())]), "", count);
    }
    #[cfg(feature = "tls")]
    write_expiry(metrics, text);
}

#[cfg(feature = "console")]
pub(super) fn write_idle(idle: &[(&str, u64)], text: &mut OpenMetrics) {
    text.family(
        "filoplume_idle_connections",
        "gauge",
        "Connections that no thread holds, by what they wait for.",
    );
    for (waits_for, count) in idle {
        text.gauge(&format!("waits_for=\"{waits_for}\""), *count);
    }
}

/// Without a certificate there is no sample: 0 would be one that has expired.
#[cfg(feature = "tls")]
fn write_expiry(metrics: &Metrics, text: &mut OpenMetrics) {
    let expires = metrics.certificates_expire.map(|time| time.duration_since(UNIX_EPOCH));
    if let Some(Ok(seconds)) = expires {
        text.family(
            "filoplume_tls_certificate_expiry_timestamp_seconds",
            "gauge",
            "When the first of the certificates in use expires.",
        );
        text.gauge("", seconds.as_secs());
    }
}

/// Writes the reasons for which requests and connections were refused.
pub(super) fn write_refusals(metrics: &Metrics, text: &mut OpenMetrics) {
    text.family("filoplume_refusals", "counter", "Requests and connections that were refused.");
    for (refusal, count) in metrics.refusals() {
        text.counter(&labels(&[("reason", &refusal.to_string())]), "", count);
    }
}

/// Writes how the engine runs the routes. `labels_of` returns the labels of a route by its number.
/// The engine measures routes itself, and may count several as one if there are more than a
/// thousand.
pub(super) fn write_handlers<'k>(
    metrics: &Metrics,
    labels_of: impl Fn(u32) -> &'k str,
    text: &mut OpenMetrics,
) {
    text.family("filoplume_handler_seconds", "counter", "Estimated time of handlers by use.");
    for route in metrics.routes() {
        let Some(labels) = route.number.map(&labels_of) else { continue };
        text.counter(labels, "time=\"computing\"", route.computing);
        text.counter(labels, "time=\"waiting\"", route.waiting);
    }
}
