//! Every bound, with its reason.

use std::time::Duration;

/// Spans that wait to be sent. OpenTelemetry's default for its batch processor.
pub(crate) const QUEUE_SPANS: usize = 2048;

/// Bytes of encoded spans that wait to be sent. A span of a request has less than 1 KiB.
pub(crate) const QUEUE_BYTES: usize = 8 * 1024 * 1024;

/// Most spans of a batch. OpenTelemetry's default.
pub(crate) const BATCH_SPANS: usize = 512;

/// A batch ends when it has this size. Collectors accept 20 MiB and more, gateways often 1 MiB.
pub(crate) const BATCH_BYTES: usize = 512 * 1024;

/// How long a span waits for others. OpenTelemetry's default.
pub(crate) const DELAY: Duration = Duration::from_secs(5);

/// How long a collector may take for one request. OpenTelemetry's default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of the program is delayed for the last spans.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(3);

/// Longer durations are reduced to this one: programs may set any duration, and a point in time
/// plus a very long one overflows.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How often a batch is sent at most. With the pauses between the attempts, a collector may be
/// unreachable for some seconds.
pub(crate) const ATTEMPTS: u32 = 5;

/// The first pause before an attempt is repeated. Each further one is twice as long.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause, even if the collector asks for a longer one, because the queue fills meanwhile.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The minimum time between two log lines about dropped spans.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Longest value of a field, in bytes. Longer ones are cut: a message may quote a whole document.
pub(crate) const VALUE_BYTES: usize = 1024;

/// Bytes of encoded events of one span. Further events are counted and dropped: a loop that logs
/// must not fill the memory while its span is open.
pub(crate) const EVENTS_BYTES: usize = 64 * 1024;

/// Longest response of a collector that is read. It only contains a count and a message.
pub(crate) const RESPONSE_BYTES: u64 = 64 * 1024;
