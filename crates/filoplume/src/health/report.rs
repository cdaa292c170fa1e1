//! The answers to probes.

use std::time::Duration;

use filoplume_runtime::{Response, StatusCode};

use super::checks::{Finding, State};
use crate::core::json_text::{Object, list, string};
#[cfg(feature = "console")]
use crate::observe::CheckReport;

/// Whether the instance is alive or ready, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Alive,
    Ready,
    /// A check has not passed since the start.
    Starting,
    Failing,
    /// Too many requests wait for a thread or a permit.
    Overloaded,
    Stopping,
}

impl Verdict {
    /// Returns the verdict, which is `good` if all checks pass that matter for it.
    pub(super) fn of(findings: &[Finding<'_>], good: Self) -> Self {
        let mut missing = findings
            .iter()
            .filter(|finding| finding.purpose.is_required() && finding.state != State::Passed);
        match missing.next() {
            None => good,
            // Checks that have passed before fail now.
            Some(first) if first.has_passed || missing.any(|other| other.has_passed) => {
                Self::Failing
            }
            Some(_) => Self::Starting,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Ready => "ready",
            Self::Starting => "starting",
            Self::Failing => "failing",
            Self::Overloaded => "overloaded",
            Self::Stopping => "stopping",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Alive | Self::Ready => StatusCode::OK,
            Self::Starting | Self::Failing | Self::Overloaded | Self::Stopping => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

/// Returns the response to a probe. It has no errors: strangers may see it.
pub(super) fn response(verdict: Verdict, findings: &[Finding<'_>]) -> Response {
    let mut object = Object::new();
    object.text("status", verdict.name());
    if !findings.is_empty() {
        object.raw("checks", &list(findings.iter().map(check)));
    }
    let mut content = object.end();
    content.push('\n');
    let mut response = Response::from(content);
    response.set_status(verdict.status());
    // The names and the values are valid.
    let _ = response.set_header("content-type", "application/json");
    let _ = response.set_header("cache-control", "no-store");
    response
}

fn check(finding: &Finding<'_>) -> String {
    let mut object = Object::new();
    object.text("name", finding.name);
    object.raw("status", &string(finding.state.name()));
    if !finding.purpose.is_required() {
        object.raw("optional", "true");
    }
    object.raw("milliseconds", &milliseconds(finding.took));
    object.end()
}

/// Returns what the console shows of a check.
#[cfg(feature = "console")]
pub(super) fn report(finding: &Finding<'_>) -> CheckReport {
    let error = finding.error.as_deref().map(str::to_owned);
    CheckReport {
        name: finding.name.to_owned(),
        state: finding.state.name(),
        is_required: finding.purpose.is_required(),
        since: finding.since,
        took: finding.took,
        message: error.or_else(|| Some(finding.thread?.wait().to_string())),
    }
}

fn milliseconds(time: Duration) -> String {
    let micros = time.as_micros();
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_milliseconds_and_their_thousandths() {
        assert_eq!(milliseconds(Duration::from_micros(12_034)), "12.034");
        assert_eq!(milliseconds(Duration::from_nanos(999)), "0.000");
    }

    /// A stored answer would tell nothing about the instance.
    #[test]
    fn no_cache_keeps_an_answer() {
        let response = response(Verdict::Ready, &[]);
        assert_eq!(response.headers().get_str("cache-control"), Some("no-store"));
        assert_eq!(response.headers().get_str("content-type"), Some("application/json"));
    }
}
