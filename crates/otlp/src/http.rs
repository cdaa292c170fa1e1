//! How a batch is sent: one `POST`, and what its response means.

use std::time::Duration;

use ureq::Agent;
use ureq::http::{HeaderName, HeaderValue, Uri};

use crate::batch;
use crate::environment::Pairs;
use crate::error::OtlpError;
use crate::limits::RESPONSE_BYTES;

/// The client of a collector.
pub(crate) struct Client {
    agent: Agent,
    endpoint: Uri,
    headers: Pairs,
}

/// The result of an attempt to send a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The collector has accepted the batch, except for `rejected` spans.
    Accepted { rejected: u64 },
    /// The collector may accept the spans later. `after` is the time that it asked to wait.
    Later { reason: String, after: Option<Duration> },
    /// The collector will never accept the spans.
    Refused { reason: String },
}

impl Client {
    pub(crate) fn new(endpoint: &str, headers: Pairs) -> Result<Self, OtlpError> {
        // The messages do not quote what may contain a password or a key.
        let endpoint: Uri = endpoint.parse().map_err(|error| {
            OtlpError::new(format!(
                "the endpoint is not a URL such as `http://127.0.0.1:4318`: {error}"
            ))
        })?;
        if endpoint.scheme_str() != Some("http") {
            return Err(OtlpError::new(
                "the endpoint does not begin with `http://`: this exporter does not encrypt. Send \
                 to a collector on this machine, and let that one send to others"
                    .to_owned(),
            ));
        }
        for (name, value) in &headers {
            let is_header =
                name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(value).is_ok();
            if !is_header {
                return Err(OtlpError::new(format!(
                    "the header {name:?} has an invalid name or value"
                )));
            }
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Spans are sent to the configured collector only.
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("filoplume-otlp/", env!("CARGO_PKG_VERSION")));
        Ok(Self { agent: config.build().new_agent(), endpoint, headers })
    }

    /// Sends a batch. Takes no longer than the timeout.
    pub(crate) fn send(&self, content: &[u8], timeout: Duration) -> Attempt {
        let mut request = self
            .agent
            .post(self.endpoint.clone())
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = match request.send(content) {
            Ok(response) => response,
            Err(error) => return Attempt::Later { reason: error.to_string(), after: None },
        };
        let status = response.status();
        match status.as_u16() {
            200..=299 => {
                let reader = response.body_mut().with_config().limit(RESPONSE_BYTES);
                let content = reader.read_to_vec().unwrap_or_default();
                Attempt::Accepted { rejected: batch::rejected(&content) }
            }
            // The statuses that the specification of OTLP calls retryable.
            429 | 502 | 503 | 504 => {
                let after = response.headers().get("retry-after");
                let seconds = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
                Attempt::Later {
                    reason: format!("the collector answered {status}"),
                    after: seconds.map(Duration::from_secs),
                }
            }
            _ => Attempt::Refused { reason: format!("the collector answered {status}") },
        }
    }
}
