//! Reads the report of our own load generator, and makes its command line.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::job::{Form, Job, Rates, Shares};

/// The indices of the percentiles that we show, in the list of a report.
const P50: usize = 0;
const P90: usize = 2;
const P99: usize = 4;

const NANOS_PER_MILLISECOND: f64 = 1e6;

/// The parts of a report that we read.
#[derive(Debug, Deserialize)]
struct Report {
    seconds: f64,
    responses: u64,
    /// How long the oldest request without an answer had waited at the end, in nanoseconds.
    longest_wait: u64,
    errors: BTreeMap<String, u64>,
    connections: Connections,
    latency: Latency,
    /// The latency from when a request was sent, and not from when it was due. Only at a constant
    /// rate.
    #[serde(default)]
    uncorrected: Option<Latency>,
}

#[derive(Debug, Deserialize)]
struct Connections {
    asked: u64,
    opened: u64,
    never_served: u64,
    least: u64,
    median: u64,
    most: u64,
}

/// Latencies in nanoseconds.
#[derive(Debug, Deserialize)]
struct Latency {
    percentiles: Vec<f64>,
    max: f64,
}

/// The part of a report that only long-lived connections have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// How many connections were open at the end of a run that only held them.
    pub held: Option<u64>,
    /// TLS handshakes: full ones, and those that resumed a session.
    pub handshakes: Option<Handshakes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Handshakes {
    pub full: u64,
    pub resumed: u64,
}

/// Reads the part for long-lived connections of a report in JSON.
pub fn live(text: &str) -> Live {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Report {
        connections: Connections,
        handshakes: Option<Handshakes>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Connections {
        held: Option<u64>,
    }
    let report: Report = serde_json::from_str(text).unwrap_or_default();
    Live { held: report.connections.held, handshakes: report.handshakes }
}

/// The options for a load; the URL follows.
pub fn arguments(job: &Job, seconds: u64, body: &Path) -> Vec<String> {
    let mut arguments = options(job, seconds);
    if job.form == Form::Body {
        arguments.extend(["-B".to_owned(), body.display().to_string()]);
    }
    arguments.extend(["--format", "json", "--quiet"].map(str::to_owned));
    arguments
}

/// The command as a reader would type it.
pub fn command_line(job: &Job, seconds: u64) -> String {
    let body = if job.form == Form::Body { " -B 64KiB" } else { "" };
    format!("gust {}{body} {}", options(job, seconds).join(" "), job.shown_target())
}

/// The options that do not depend on the form of the report.
pub fn options(job: &Job, seconds: u64) -> Vec<String> {
    let mut options = vec![
        if job.is_blocking {
            format!("--blocking-threads={}", job.threads)
        } else {
            format!("-t{}", job.threads)
        },
        format!("-c{}", job.connections),
        job.requests.map_or_else(|| format!("-d{seconds}s"), |requests| format!("-n{requests}")),
    ];
    if let Some(rate) = job.rate {
        options.push(format!("-r{rate}"));
    }
    match job.form {
        Form::One | Form::Body => {}
        Form::Pipelined(depth) => options.push(format!("-p{depth}")),
        Form::Echo(length) => options.push(format!("-l{length}")),
        Form::Closing => options.push("--no-keepalive".to_owned()),
    }
    options
}

/// Reads a report in JSON.
pub fn parse(text: &str) -> Option<Rates> {
    let report: Report = serde_json::from_str(text).ok()?;
    let of = |latency: &Latency, index: usize| {
        latency.percentiles.get(index).map(|nanos| nanos / NANOS_PER_MILLISECOND)
    };
    let latency = |index: usize| of(&report.latency, index);
    let connections = &report.connections;
    let unopened = connections.asked.saturating_sub(connections.opened);
    let errors = report.errors.iter().map(|(name, count)| (name.as_str(), *count));
    let problems = errors
        .chain([
            ("connections never opened", unopened),
            ("connections never served", connections.never_served),
        ])
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    Some(Rates {
        requests: report.responses,
        per_second: report.responses as f64 / report.seconds.max(1e-9),
        p50: latency(P50)?,
        p90: latency(P90)?,
        p90_from_sent: report.uncorrected.as_ref().and_then(|latency| of(latency, P90)),
        p99: latency(P99)?,
        longest: report.latency.max.max(report.longest_wait as f64) / NANOS_PER_MILLISECOND,
        problems,
        shares: Some(Shares {
            least: connections.least,
            median: connections.median,
            most: connections.most,
            never_served: connections.never_served,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = r#"{"format": 1, "seconds": 2.0, "requests": 101, "responses": 100, "longest_wait": 3000000000,
            "errors": {"connect": 0, "closed_early": 5}, "statuses": {"200": 100},
            "connections": {"asked": 4, "opened": 4, "served": 3, "never_served": 1, "least": 0, "median": 30,
            "most": 40}, "latency": {"percentiles": [1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6], "max": 8e6},
            "uncorrected": {"percentiles": [1e5, 2e5, 3e5, 4e5, 5e5, 6e5, 7e5], "max": 8e5}}"#;
        let rates = parse(text).unwrap();
        assert_eq!((rates.requests, rates.per_second), (100, 50.0));
        // A request that still waits counts: its wait so far is the longest one.
        assert_eq!((rates.p50, rates.p99, rates.longest), (1.0, 5.0, 3_000.0));
        assert_eq!((rates.p90, rates.p90_from_sent), (3.0, Some(0.3)));
        assert_eq!(rates.problems, ["closed early 5", "connections never served 1"]);
        assert_eq!(
            rates.shares.map(|shares| (shares.least, shares.median, shares.most)),
            Some((0, 30, 40))
        );
    }

    #[test]
    fn held_connections_and_handshakes_are_read() {
        let text =
            r#"{"connections": {"asked": 5, "held": 4}, "handshakes": {"full": 1, "resumed": 9}}"#;
        let handshakes = Some(Handshakes { full: 1, resumed: 9 });
        assert_eq!(live(text), Live { held: Some(4), handshakes });
        assert_eq!(live(r#"{"connections": {}}"#), Live::default());
    }

    #[test]
    fn words_are_no_report() {
        assert!(parse("gust: cannot connect").is_none());
    }

    #[test]
    fn a_load_is_typed() {
        let job = Job::get("/plaintext", 64, 2);
        assert_eq!(command_line(&job, 5), "gust -t2 -c64 -d5s /plaintext");
        assert_eq!(
            command_line(&job.clone().sending(Form::Pipelined(16)), 5),
            "gust -t2 -c64 -d5s -p16 /plaintext"
        );
        let echo = Job::echo(2954, 640, 64).blocking().requests(6_400_000);
        assert_eq!(
            command_line(&echo, 5),
            "gust --blocking-threads=64 -c640 -n6400000 -l2954 tcp://"
        );
        let rated = Job { rate: Some(20_000), ..job.clone() };
        assert_eq!(command_line(&rated, 4), "gust -t2 -c64 -d4s -r20000 /plaintext");
        let closing = arguments(&job.sending(Form::Closing), 5, Path::new("body"));
        assert_eq!(closing.join(" "), "-t2 -c64 -d5s --no-keepalive --format json --quiet");
    }
}
