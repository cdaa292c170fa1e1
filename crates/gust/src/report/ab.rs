//! The report in the format of ab, for scripts that parse it.

use std::fmt::Write;

use crate::report::float;
use crate::run::Run;
use crate::target::{Host, Target};

pub(crate) fn write(run: &Run) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = body(run, &mut out);
    out
}

fn body(run: &Run, out: &mut String) -> std::fmt::Result {
    let (host, port, path) = place(&run.target);
    let failed = run.errors.total();
    let seconds = run.seconds.max(1e-9);
    let mut line = |name: &str, value: String| writeln!(out, "{:<24}{value}", format!("{name}:"));
    line("Server Hostname", host)?;
    line("Server Port", port.to_string())?;
    line("Document Path", path)?;
    line("Concurrency Level", (run.load.connections * run.load.depth).to_string())?;
    line("Time taken for tests", format!("{seconds:.3} seconds"))?;
    line("Complete requests", run.responses.to_string())?;
    line("Failed requests", failed.to_string())?;
    let refused: u64 =
        run.statuses.iter().filter(|(status, _)| **status / 100 != 2).map(|(_, count)| count).sum();
    if refused > 0 {
        line("Non-2xx responses", refused.to_string())?;
    }
    line("Keep-Alive requests", if run.load.keep_alive { run.responses } else { 0 }.to_string())?;
    line("Total transferred", format!("{} bytes", run.bytes_received))?;
    line("Requests per second", format!("{:.2} [#/sec] (mean)", run.per_second()))?;
    line("Time per request", format!("{:.3} [ms] (mean)", run.latency.mean / 1e6))?;
    let across = seconds * 1e3 / float(run.responses.max(1));
    line("Time per request", format!("{across:.3} [ms] (mean, across all concurrent requests)"))?;
    let rate = float(run.bytes_received) / 1024.0 / seconds;
    line("Transfer rate", format!("{rate:.2} [Kbytes/sec] received"))?;
    writeln!(out)?;
    writeln!(out, "Percentage of the requests served within a certain time (ms)")?;
    for percentile in [50.0, 75.0, 90.0, 95.0, 99.0] {
        writeln!(out, "{percentile:>4}% {:>9.3}", run.latency.at(percentile) / 1e6)?;
    }
    writeln!(out, " 100% {:>9.3} (longest request)", run.latency.max / 1e6)
}

/// Returns the host, the port and the path of a target. The port of a Unix socket is 0, because
/// scripts expect a number.
fn place(target: &str) -> (String, u16, String) {
    let Ok(Target { host, path, .. }) = Target::parse(target) else {
        // Not the target of a run: that one was parsed before the run.
        return (target.to_owned(), 0, "/".to_owned());
    };
    let port = match &host {
        Host::Name(_, port) => *port,
        Host::Unix(_) => 0,
    };
    // An echo over TCP has no path.
    let path = if path.is_empty() { "/".to_owned() } else { path };
    (host.name().to_owned(), port, path)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::report::sample;

    #[test]
    fn the_output_is_like_that_of_ab() {
        expect![[r#"
            Server Hostname:        127.0.0.1
            Server Port:            8080
            Document Path:          /plain?a=<b>&c
            Concurrency Level:      64
            Time taken for tests:   4.000 seconds
            Complete requests:      79900
            Failed requests:        60
            Non-2xx responses:      2
            Keep-Alive requests:    79900
            Total transferred:      10387000 bytes
            Requests per second:    19975.00 [#/sec] (mean)
            Time per request:       33.438 [ms] (mean)
            Time per request:       0.050 [ms] (mean, across all concurrent requests)
            Transfer rate:          2535.89 [Kbytes/sec] received

            Percentage of the requests served within a certain time (ms)
              50%    25.100
              75%    56.361
              90%    81.134
              95%    90.374
              99%    98.173
             100%   100.100 (longest request)
        "#]]
        .assert_eq(&write(&sample::run()));
    }

    #[test]
    fn pipelines_redirects_and_closed_connections_are_told() {
        let mut run = sample::run();
        run.target = "http://localhost/a".to_owned();
        (run.load.depth, run.load.keep_alive) = (2, false);
        run.statuses = [(200, 5), (304, 3), (404, 1)].into();
        let text = write(&run);
        for line in [
            "Server Hostname:        localhost",
            "Server Port:            80",
            "Concurrency Level:      128",
            "Non-2xx responses:      4",
            "Keep-Alive requests:    0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn host_port_and_path_are_those_of_the_target() {
        for (target, expected) in [
            (":8080", ["127.0.0.1", "8080", "/"]),
            ("http://[::1]/", ["::1", "80", "/"]),
            ("http://[::1]:81/a/b", ["::1", "81", "/a/b"]),
            ("https://h/", ["h", "443", "/"]),
            ("http://h?a=b/c", ["h", "80", "/?a=b/c"]),
            ("tcp://h:7", ["h", "7", "/"]),
            ("unix:/tmp/socket:/a", ["localhost", "0", "/a"]),
        ] {
            let text = write(&Run { target: target.to_owned(), ..sample::run() });
            let values: Vec<_> =
                text.lines().take(3).filter_map(|line| line.split_whitespace().last()).collect();
            assert_eq!(values, expected, "{target}");
        }
    }
}
