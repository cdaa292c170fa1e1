//! Reads the report of oha, and makes its command line.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::job::{Form, Job, Rates};

/// The command as a reader would type it.
pub fn command_line(job: &Job, seconds: u64) -> String {
    format!("oha {} {}", options(job, seconds, Path::new("64KiB")).join(" "), job.target)
}

/// The options for a load; the URL follows.
pub fn arguments(job: &Job, seconds: u64, body: &Path) -> Vec<String> {
    let mut arguments = options(job, seconds, body);
    arguments.extend(["--no-tui", "--output-format", "json"].map(str::to_owned));
    arguments
}

fn options(job: &Job, seconds: u64, body: &Path) -> Vec<String> {
    let mut options = vec![match job.requests {
        Some(requests) => format!("-n {requests}"),
        None => format!("-z {seconds}s"),
    }];
    options.push(format!("-c {}", job.connections));
    if let Some(rate) = job.rate {
        options.extend([format!("-q {rate}"), "--latency-correction".to_owned()]);
    }
    match job.form {
        // oha has no pipelining, and no raw TCP.
        Form::One | Form::Pipelined(_) | Form::Echo(_) => {}
        Form::Body => options.extend(["-m POST".to_owned(), format!("-D {}", body.display())]),
        Form::Closing => options.push("--disable-keepalive".to_owned()),
    }
    options.iter().flat_map(|option| option.split(' ').map(str::to_owned)).collect()
}

/// The parts of a report that we read. Times are in seconds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    summary: Summary,
    latency_percentiles: Percentiles,
    status_code_distribution: BTreeMap<String, u64>,
    #[serde(default)]
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    requests_per_sec: f64,
    slowest: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Percentiles {
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
}

/// The error of requests that oha gave up at its end. They are no problem of the server.
const GIVEN_UP: &str = "aborted due to deadline";

/// Reads the report in JSON.
pub fn parse(text: &str) -> Option<Rates> {
    let report: Report = serde_json::from_str(text).ok()?;
    let milliseconds = |seconds: Option<f64>| seconds.map_or(0.0, |seconds| seconds * 1_000.0);
    let errors = report.error_distribution.iter().filter(|(name, _)| *name != GIVEN_UP);
    let refused =
        report.status_code_distribution.iter().filter(|(status, _)| !status.starts_with('2'));
    let problems = errors.chain(refused).map(|(name, count)| format!("{name} {count}")).collect();
    Some(Rates {
        requests: report.status_code_distribution.values().sum(),
        per_second: report.summary.requests_per_sec,
        p50: milliseconds(report.latency_percentiles.p50),
        p90: milliseconds(report.latency_percentiles.p90),
        p90_from_sent: None,
        p99: milliseconds(report.latency_percentiles.p99),
        longest: milliseconds(report.summary.slowest),
        problems,
        shares: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = r#"{"summary": {"successRate": 1.0, "slowest": 0.5, "requestsPerSec": 100.5},
            "latencyPercentiles": {"p50": 0.001, "p90": 0.75, "p99": null},
            "statusCodeDistribution": {"200": 99, "503": 1},
            "errorDistribution": {"aborted due to deadline": 64, "reset": 2}}"#;
        let rates = parse(text).unwrap();
        assert_eq!((rates.requests, rates.per_second, rates.p50), (100, 100.5, 1.0));
        assert_eq!((rates.p90, rates.p99, rates.longest), (750.0, 0.0, 500.0));
        assert_eq!(rates.problems, ["reset 2", "503 1"]);
    }

    #[test]
    fn a_load_is_typed() {
        let job = Job::get("/plaintext", 64, 1);
        assert_eq!(command_line(&job, 4), "oha -z 4s -c 64 /plaintext");
        let rated = Job { rate: Some(20_000), ..job };
        assert_eq!(
            command_line(&rated, 4),
            "oha -z 4s -c 64 -q 20000 --latency-correction /plaintext"
        );
    }
}
