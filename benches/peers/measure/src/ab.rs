//! Reads the report of ab, and makes its command line.

use std::path::Path;

use crate::job::{Form, Job, Rates};

/// ab allocates room for all requests that it may send. No server here answers more per second.
const REQUESTS_PER_SECOND_MAX: u64 = 300_000;

/// The command as a reader would type it.
pub fn command_line(job: &Job, seconds: u64) -> String {
    format!("ab {} {}", options(job, seconds, Path::new("64KiB")).join(" "), job.target)
}

/// The options for a load; the URL follows.
pub fn arguments(job: &Job, seconds: u64, body: &Path) -> Vec<String> {
    let mut arguments = options(job, seconds, body);
    arguments.push("-q".to_owned());
    arguments
}

fn options(job: &Job, seconds: u64, body: &Path) -> Vec<String> {
    let mut options = match job.requests {
        Some(requests) => vec![format!("-n {requests}")],
        // The order matters: a time alone means at most 50,000 requests.
        None => vec![format!("-t {seconds}"), format!("-n {}", seconds * REQUESTS_PER_SECOND_MAX)],
    };
    options.push(format!("-c {}", job.connections));
    match job.form {
        Form::Closing => {}
        Form::Body => options.extend(["-k".to_owned(), format!("-p {}", body.display())]),
        Form::One | Form::Pipelined(_) | Form::Echo(_) => options.push("-k".to_owned()),
    }
    options.iter().flat_map(|option| option.split(' ').map(str::to_owned)).collect()
}

/// Reads the report.
pub fn parse(text: &str) -> Option<Rates> {
    let report = Report::parse(text)?;
    let mut problems = Vec::new();
    for (what, count) in [("failed", report.failed), ("refused", report.refused)] {
        if count > 0 {
            problems.push(format!("{what} {count}"));
        }
    }
    Some(Rates {
        requests: report.complete,
        per_second: report.per_second,
        p50: report.p50,
        p90: report.p90,
        p90_from_sent: None,
        p99: report.p99,
        longest: report.longest,
        problems,
        shares: None,
    })
}

/// The parts of a report that we read. Times are whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    pub complete: u64,
    pub failed: u64,
    pub kept_alive: u64,
    /// Answers without a status of success, such as all those of an echo.
    pub refused: u64,
    pub per_second: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub longest: f64,
}

impl Report {
    pub fn parse(text: &str) -> Option<Self> {
        let after = |name: &str| {
            let value = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
            value.split_whitespace().next()
        };
        let count = |name: &str| after(name).and_then(|value| value.parse::<u64>().ok());
        let time = |name: &str| after(name).and_then(|value| value.parse::<f64>().ok());
        Some(Self {
            complete: count("Complete requests:")?,
            failed: count("Failed requests:")?,
            kept_alive: count("Keep-Alive requests:").unwrap_or(0),
            refused: count("Non-2xx responses:").unwrap_or(0),
            per_second: time("Requests per second:")?,
            p50: time("50%")?,
            p90: time("90%")?,
            p99: time("99%")?,
            longest: time("100%")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Concurrency Level:      64
Time taken for tests:   2.236 seconds
Complete requests:      20000
Failed requests:        3
Non-2xx responses:      5
Keep-Alive requests:    19990
Requests per second:    8945.17 [#/sec] (mean)
Time per request:       7.155 [ms] (mean)

Percentage of the requests served within a certain time (ms)
  50%      5
  90%     14
  99%     25
 100%     63 (longest request)";

    #[test]
    fn ab_output_is_read() {
        let report = Report::parse(TEXT).unwrap();
        assert_eq!((report.complete, report.failed, report.kept_alive), (20_000, 3, 19_990));
        let rates = parse(TEXT).unwrap();
        assert_eq!(
            (rates.per_second, rates.p50, rates.p90, rates.longest),
            (8945.17, 5.0, 14.0, 63.0)
        );
        assert_eq!(rates.problems, ["failed 3", "refused 5"]);
        assert!(parse("apr_socket_recv: Connection refused (111)").is_none());
    }

    #[test]
    fn a_load_is_typed() {
        let job = Job::get("/plaintext", 64, 1);
        assert_eq!(command_line(&job, 2), "ab -t 2 -n 600000 -c 64 -k /plaintext");
        let closing = job.sending(Form::Closing).requests(1000);
        assert_eq!(command_line(&closing, 2), "ab -n 1000 -c 64 /plaintext");
    }
}
