//! The settings of an exporter.

use std::env;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Level;

use crate::batch;
use crate::environment::{self, Pairs};
use crate::error::OtlpError;
use crate::exporter::{Exporter, Worker};
use crate::http::Client;
use crate::layer::OtlpLayer;
use crate::limits;
use crate::queue::{Queue, QueueLimits};

/// Settings of an exporter. What is not set here is taken from the variables of the environment
/// that OpenTelemetry defines:
///
/// | variable | setting |
/// |---|---|
/// | `OTEL_EXPORTER_OTLP_ENDPOINT` | [`endpoint`](Self::endpoint) |
/// | `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | the same, with the path |
/// | `OTEL_EXPORTER_OTLP_HEADERS` | [`header`](Self::header), as `name=value,name=value` |
/// | `OTEL_SERVICE_NAME` | [`service_name`](Self::service_name) |
/// | `OTEL_RESOURCE_ATTRIBUTES` | [`resource`](Self::resource), as `key=value,key=value` |
///
/// ```
/// use filoplume_otlp::Otlp;
///
/// let (layer, exporter) = Otlp::new()
///     .service_name("shop")
///     .resource("deployment.environment.name", "staging")
///     .start()?;
/// # drop((layer, exporter));
/// # Ok::<(), filoplume_otlp::OtlpError>(())
/// ```
#[derive(Clone)]
pub struct Otlp {
    endpoint: Option<String>,
    headers: Pairs,
    service_name: Option<String>,
    resource: Pairs,
    level: Level,
    queue: QueueLimits,
    timeout: Duration,
    shutdown_timeout: Duration,
    first_pause: Duration,
}

impl Otlp {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self {
            endpoint: None,
            headers: Pairs::new(),
            service_name: None,
            resource: Pairs::new(),
            level: Level::INFO,
            queue: QueueLimits {
                spans: limits::QUEUE_SPANS,
                bytes: limits::QUEUE_BYTES,
                delay: limits::DELAY,
            },
            timeout: limits::TIMEOUT,
            shutdown_timeout: limits::SHUTDOWN,
            first_pause: limits::FIRST_PAUSE,
        }
    }

    /// Sets the address of the collector, such as `http://127.0.0.1:4318`. The path `/v1/traces` is
    /// appended. Default: that of the environment, or else `http://localhost:4318`.
    #[must_use]
    pub fn endpoint(mut self, base: &str) -> Self {
        self.endpoint = Some(environment::traces_of(base));
        self
    }

    /// Adds a header to the requests to the collector, such as a key.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the name of the service. Default: that of the environment, or else `unknown_service`
    /// with the name of the program.
    #[must_use]
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service_name = Some(name.into());
        self
    }

    /// Adds an attribute that all spans of this process have, such as `service.version`.
    #[must_use]
    pub fn resource(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.resource.push((key.into(), value.into()));
        self
    }

    /// Sets the level up to which spans and events are exported. Default: `INFO`.
    #[must_use]
    pub fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Sets how many spans may wait to be sent. Further ones are dropped and counted. Default:
    /// 2048.
    #[must_use]
    pub fn queue_spans(mut self, spans: usize) -> Self {
        self.queue.spans = spans;
        self
    }

    /// Sets how many bytes of spans may wait to be sent. Default: 8 MiB.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue.bytes = bytes;
        self
    }

    /// Sets how long spans wait for a batch of 512 spans or 512 KiB. Default: 5 seconds.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.queue.delay = delay;
        self
    }

    /// Sets how long the collector may take for a batch. A batch is sent up to five times. The
    /// pauses grow from a second, or are as long as the collector asks for. Default: 10 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(limits::DURATION_MAX);
        self
    }

    /// Sets how long a drop of the [`Exporter`] waits for the last spans. Default: 3 seconds.
    #[must_use]
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Sets the first pause, so that tests need not wait.
    #[doc(hidden)]
    #[must_use]
    pub fn first_pause(mut self, pause: Duration) -> Self {
        self.first_pause = pause;
        self
    }

    /// Starts the thread, and returns the layer that collects spans and the handle of the exporter.
    /// An unreachable collector is not an error.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting or a variable of the environment is invalid, or if the thread
    /// cannot be started.
    pub fn start(self) -> Result<(OtlpLayer, Exporter), OtlpError> {
        self.start_with(|name| env::var(name).ok())
    }

    fn start_with(
        self,
        read: impl Fn(&str) -> Option<String>,
    ) -> Result<(OtlpLayer, Exporter), OtlpError> {
        let resource = self.resource_with(&read)?;
        let mut headers = list(&read, "OTEL_EXPORTER_OTLP_HEADERS")?;
        replace(&mut headers, self.headers);
        let endpoint = self
            .endpoint
            .or_else(|| environment::endpoint(&read))
            .unwrap_or_else(|| environment::traces_of("http://localhost:4318"));
        let queue = Arc::new(Queue::new(self.queue));
        let worker = Worker {
            queue: Arc::clone(&queue),
            client: Client::new(&endpoint, headers)?,
            resource: batch::resource(&resource),
            timeout: self.timeout,
            first_pause: self.first_pause,
        };
        let exporter = Exporter::start(worker, self.shutdown_timeout)?;
        Ok((OtlpLayer { queue, level: self.level }, exporter))
    }

    /// Returns the attributes of the resource: the defaults, those of the environment, and those
    /// that were set. A later attribute replaces an earlier one with the same key.
    fn resource_with(&self, read: impl Fn(&str) -> Option<String>) -> Result<Pairs, OtlpError> {
        let program = env::current_exe().ok();
        let program = program.as_ref().and_then(|path| path.file_stem()?.to_str());
        let service_name = program
            .map_or_else(|| "unknown_service".to_owned(), |name| format!("unknown_service:{name}"));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut attributes = vec![
            pair("service.name", &service_name),
            pair("telemetry.sdk.name", "filoplume-otlp"),
            pair("telemetry.sdk.language", "rust"),
            pair("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        replace(&mut attributes, list(&read, "OTEL_RESOURCE_ATTRIBUTES")?);
        let name = environment::variable(&read, "OTEL_SERVICE_NAME");
        replace(&mut attributes, name.map(|name| pair("service.name", &name)));
        replace(&mut attributes, self.resource.iter().cloned());
        let name = self.service_name.as_deref();
        replace(&mut attributes, name.map(|name| pair("service.name", name)));
        Ok(attributes)
    }
}

/// Reads a list of the environment, which is empty if the variable is not set.
fn list(read: impl Fn(&str) -> Option<String>, name: &str) -> Result<Pairs, OtlpError> {
    match environment::variable(read, name) {
        Some(value) => environment::pairs(name, &value),
        None => Ok(Pairs::new()),
    }
}

/// Adds pairs. A key that is there already gets the new value.
fn replace(pairs: &mut Pairs, new: impl IntoIterator<Item = (String, String)>) {
    for (key, value) in new {
        pairs.retain(|(other, _)| *other != key);
        pairs.push((key, value));
    }
}

impl Default for Otlp {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows no endpoint and no headers, because they may contain secrets.
impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp")
            .field("service_name", &self.service_name)
            .field("resource", &self.resource)
            .field("level", &self.level)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(otlp: &Otlp, variables: &[(&str, &str)]) -> Vec<String> {
        let read = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let pairs = otlp.resource_with(read).unwrap();
        pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn what_is_set_replaces_the_environment_which_replaces_the_defaults() {
        let variables = [("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,zone=z%201,team=t")];
        let with_name = [variables[0], ("OTEL_SERVICE_NAME", "b")];
        let otlp = Otlp::new();
        assert!(resource(&otlp, &[])[0].starts_with("service.name=unknown_service:"));
        let found = resource(&otlp, &variables);
        assert!(found.contains(&"service.name=a".to_owned()), "{found:?}");
        assert!(found.contains(&"zone=z 1".to_owned()), "{found:?}");
        let found = resource(&otlp, &with_name);
        assert!(found.contains(&"service.name=b".to_owned()), "{found:?}");
        let found = resource(&otlp.service_name("c").resource("team", "u"), &with_name);
        let names: Vec<_> = found.iter().filter(|pair| pair.starts_with("service.name")).collect();
        assert_eq!(names, ["service.name=c"]);
        assert!(found.contains(&"team=u".to_owned()), "{found:?}");
        assert!(!found.contains(&"team=t".to_owned()), "{found:?}");
    }

    #[test]
    fn bounds_and_times_are_those_that_are_documented_or_set() {
        let of = |otlp: &Otlp| {
            let QueueLimits { spans, bytes, delay } = otlp.queue;
            let times = [delay, otlp.timeout, otlp.shutdown_timeout].map(|time| time.as_secs());
            ([spans, bytes], times)
        };
        assert_eq!(of(&Otlp::new()), ([2048, 8 << 20], [5, 10, 3]));
        let seconds = Duration::from_secs;
        let set = Otlp::new().queue_spans(1).queue_bytes(2).delay(seconds(60));
        let set = set.timeout(seconds(70)).shutdown_timeout(seconds(80));
        assert_eq!(of(&set), ([1, 2], [60, 70, 80]));
    }

    #[test]
    fn mistakes_are_reported_at_the_start_without_secrets() {
        let rows = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector", "does not begin with `http://`"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "http://"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret", "OTEL_EXPORTER_OTLP_HEADERS: entry 1"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:s3cret@a b", "is not a URL"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=s3cret%0A", "invalid name or value"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cret", "invalid name or value"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a", "OTEL_RESOURCE_ATTRIBUTES: entry 1"),
        ];
        for (variable, value, expected) in rows {
            let read = |name: &str| (name == variable).then(|| value.to_owned());
            let error = Otlp::new().start_with(read).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        let secret = Otlp::new().header("authorization", "s3cret");
        assert!(!format!("{secret:?}").contains("s3cret"));
    }
}
