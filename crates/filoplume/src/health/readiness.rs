//! Whether an instance is ready: the answer to a probe, the line in the log when it changes, and
//! the figures for alerts.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use filoplume_runtime::{Monitor, Response, Stopping};
use parking_lot::Mutex;

use super::checks::{Checks, Finding, State};
#[cfg(feature = "console")]
use super::report::report;
use super::report::{Verdict, response};
use crate::log::log_without_subscriber;
#[cfg(feature = "console")]
use crate::observe::CheckReport;
use crate::observe::{CheckResults, Samples};

/// The shortest time between two lines about readiness. Everybody may send probes, and an instance
/// near its threshold of overload changes with each of them.
const QUIET_FOR: Duration = Duration::from_secs(1);

/// What decides whether an instance is ready.
pub(super) struct Readiness {
    pub(super) checks: Arc<Checks>,
    pub(super) stopping: Stopping,
    pub(super) overloaded_at: Option<usize>,
    pub(super) monitor: Arc<OnceLock<Monitor>>,
    pub(super) log: Mutex<Log>,
}

/// What the log says.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Whether the last line said that the instance is not ready. `None` before the first line.
    is_ready: Option<bool>,
    at: Option<Instant>,
}

impl Log {
    /// Returns whether this is news for the log. That an instance is ready is news only after a
    /// line that said that it is not.
    fn is_news(&mut self, is_ready: bool, now: Instant) -> bool {
        let is_quiet = self.at.is_some_and(|at| now.saturating_duration_since(at) < QUIET_FOR);
        if is_quiet || self.is_ready.unwrap_or(true) == is_ready {
            return false;
        }
        (self.is_ready, self.at) = (Some(is_ready), Some(now));
        true
    }
}

impl Readiness {
    /// Answers a probe.
    pub(super) fn probe(&self) -> Response {
        if self.stopping.is_stopping() {
            // The server logs that it stops.
            return response(Verdict::Stopping, &[]);
        }
        let findings = self.checks.probe(|_| true);
        let verdict = self.verdict(&findings);
        if self.log.lock().is_news(verdict == Verdict::Ready, Instant::now()) {
            log(verdict, &findings);
        }
        response(verdict, &findings)
    }

    fn verdict(&self, findings: &[Finding<'_>]) -> Verdict {
        let good = if self.is_overloaded() { Verdict::Overloaded } else { Verdict::Ready };
        Verdict::of(findings, good)
    }

    fn is_overloaded(&self) -> bool {
        // A probe may run on an event loop, so only this number is read and not all metrics.
        let waiting = self.overloaded_at.and_then(|_| self.monitor.get()?.waiting());
        waiting.zip(self.overloaded_at).is_some_and(|(waiting, max)| overloads(waiting, max))
    }
}

/// Returns whether an instance with so many waiting requests is overloaded.
fn overloads(waiting: usize, overloaded_at: usize) -> bool {
    waiting >= overloaded_at
}

impl CheckResults for Readiness {
    // Runs no checks: only probes renew the results.
    fn collect(&self, samples: &mut Samples) {
        let findings = self.checks.known();
        let with_result = |finding: &&Finding<'_>| finding.state != State::Unknown;
        for finding in findings.iter().filter(with_result) {
            let required = if finding.purpose.is_required() { "true" } else { "false" };
            samples.gauge_of(
                "filoplume_check_up",
                "Whether the last run of a health check has passed. Probes run the checks.",
                &[("check", finding.name), ("required", required)],
                usize::from(finding.state == State::Passed),
            );
        }
        let is_unknown = |finding: &Finding<'_>| {
            finding.purpose.is_required() && finding.state == State::Unknown
        };
        let is_stopping = self.stopping.is_stopping();
        if !is_stopping && findings.iter().any(is_unknown) {
            return;
        }
        samples.gauge_of(
            "filoplume_ready",
            "Whether the instance is ready, by the last results of its health checks.",
            &[],
            usize::from(!is_stopping && self.verdict(&findings) == Verdict::Ready),
        );
    }

    #[cfg(feature = "console")]
    fn reports(&self) -> Vec<CheckReport> {
        self.checks.known().iter().map(report).collect()
    }
}

fn log(verdict: Verdict, findings: &[Finding<'_>]) {
    if verdict == Verdict::Ready {
        tracing::info!("ready again");
        log_without_subscriber("ready again");
        return;
    }
    let fails =
        |finding: &&Finding<'_>| finding.purpose.is_required() && finding.state != State::Passed;
    let Some(Finding { name, state, .. }) = findings.iter().find(fails) else {
        tracing::warn!("not ready: too many requests wait");
        log_without_subscriber("not ready: too many requests wait");
        return;
    };
    let how = match state {
        State::Failed => "failed",
        State::Late => "exceeded its deadline",
        State::Unknown | State::Passed => "has not ended yet",
    };
    tracing::warn!(check = name, "not ready: check {name} {how}");
    log_without_subscriber(&format!("not ready: check {name} {how}"));
}

#[cfg(test)]
mod tests {
    use super::super::checks::{Check, Purpose};
    use super::*;

    #[test]
    fn changes_of_readiness_are_logged_and_at_most_one_per_second() {
        let (mut log, start) = (Log::default(), Instant::now());
        let probes = [
            (true, 0, false),
            (false, 1000, true),
            (false, 3000, false),
            (true, 4000, true),
            (false, 4500, false),
            (true, 4600, false),
            (false, 5000, true),
        ];
        for (is_ready, at, is_news) in probes {
            let now = start + Duration::from_millis(at);
            assert_eq!(log.is_news(is_ready, now), is_news, "{at}");
        }
    }
    #[test]
    fn an_instance_is_overloaded_from_its_threshold_on() {
        assert_eq!([9, 10, 11].map(|waiting| overloads(waiting, 10)), [false, true, true]);
    }

    /// An instance that starts is not reported before its checks have ended, and one that stops is.
    #[test]
    fn an_instance_that_stops_is_not_ready_whatever_its_checks_say() {
        let check = Check {
            name: "a".to_owned(),
            deadline: Duration::from_secs(10),
            purpose: Purpose::Ready,
            run: Box::new(|| Ok(())),
        };
        let readiness = Readiness {
            checks: Arc::new(Checks::new(vec![check], Duration::ZERO)),
            stopping: Stopping::new(),
            overloaded_at: None,
            monitor: Arc::default(),
            log: Mutex::default(),
        };
        let text = || {
            let mut samples = Samples::default();
            readiness.collect(&mut samples);
            samples.text()
        };
        assert!(!text().contains("filoplume_ready"), "{}", text());
        readiness.stopping.tell();
        assert!(text().contains("\nfiloplume_ready 0\n"), "{}", text());
    }
}
