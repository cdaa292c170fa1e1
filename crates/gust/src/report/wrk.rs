//! The report in the format of wrk, for scripts that parse it.

use std::fmt::Write;

use crate::report::{float, interval_seconds};
use crate::run::Run;

pub(crate) fn write(run: &Run) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = body(run, &mut out);
    out
}

fn body(run: &Run, out: &mut String) -> std::fmt::Result {
    let asked = run.load.duration_seconds.unwrap_or(run.seconds);
    writeln!(out, "Running {asked:.0}s test @ {}", run.target)?;
    writeln!(out, "  {} threads and {} connections", run.load.threads, run.load.connections)?;
    writeln!(out, "  Thread Stats   Avg      Stdev     Max   +/- Stdev")?;
    let latency = &run.latency;
    writeln!(
        out,
        "    Latency {:>8}  {:>8}  {:>8}  {:>6.2}%",
        time(latency.mean),
        time(latency.stdev),
        time(latency.max),
        latency.within_stdev * 100.0
    )?;
    let rates = Rates::of(run);
    writeln!(
        out,
        "    Req/Sec {:>8}  {:>8}  {:>8}  {:>6.2}%",
        metric(rates.mean),
        metric(rates.stdev),
        metric(rates.max),
        rates.within * 100.0
    )?;
    writeln!(out, "  Latency Distribution")?;
    for percentile in [50.0, 75.0, 90.0, 99.0] {
        writeln!(out, "    {percentile:>3}%  {:>8}", time(latency.at(percentile)))?;
    }
    writeln!(
        out,
        "  {} requests in {}, {} read",
        run.responses,
        time(run.seconds * 1e9),
        bytes(float(run.bytes_received))
    )?;
    let errors = &run.errors;
    let reads = errors.reset
        + errors.closed_early
        + errors.malformed
        + errors.unsolicited
        + errors.mismatch;
    if errors.connect + reads + errors.timeout > 0 {
        writeln!(
            out,
            "  Socket errors: connect {}, read {reads}, write 0, timeout {}",
            errors.connect, errors.timeout
        )?;
    }
    let refused: u64 =
        run.statuses.iter().filter(|(status, _)| **status >= 400).map(|(_, count)| count).sum();
    if refused > 0 {
        writeln!(out, "  Non-2xx or 3xx responses: {refused}")?;
    }
    let seconds = run.seconds.max(1e-9);
    writeln!(out, "Requests/sec: {:>10.2}", run.per_second())?;
    writeln!(out, "Transfer/sec: {:>10}", bytes(float(run.bytes_received) / seconds))
}

/// Responses per second and thread, over the intervals of the run.
struct Rates {
    mean: f64,
    stdev: f64,
    max: f64,
    within: f64,
}

impl Rates {
    fn of(run: &Run) -> Self {
        let threads = float(run.load.threads.max(1));
        let intervals = run.timeline.intervals.iter().enumerate();
        let rates: Vec<f64> = intervals
            .map(|(index, interval)| {
                float(interval.responses) / interval_seconds(run, index) / threads
            })
            .collect();
        let count = float(rates.len().max(1) as u64);
        let mean = rates.iter().sum::<f64>() / count;
        let stdev = (rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count).sqrt();
        let near = rates.iter().filter(|rate| (*rate - mean).abs() <= stdev).count();
        let max = rates.iter().copied().fold(0.0, f64::max);
        Self { mean, stdev, max, within: float(near as u64) / count }
    }
}

fn time(nanos: f64) -> String {
    match nanos {
        _ if nanos < 1e6 => format!("{:.2}us", nanos / 1e3),
        _ if nanos < 1e9 => format!("{:.2}ms", nanos / 1e6),
        _ if nanos < 60e9 => format!("{:.2}s", nanos / 1e9),
        _ => format!("{:.2}m", nanos / 60e9),
    }
}

fn metric(number: f64) -> String {
    match number {
        _ if number < 1e3 => format!("{number:.2}"),
        _ if number < 1e6 => format!("{:.2}k", number / 1e3),
        _ => format!("{:.2}M", number / 1e6),
    }
}

fn bytes(number: f64) -> String {
    match number {
        _ if number < 1024.0 => format!("{number:.2}B"),
        _ if number < 1024.0 * 1024.0 => format!("{:.2}KB", number / 1024.0),
        _ if number < 1024.0 * 1024.0 * 1024.0 => format!("{:.2}MB", number / 1024.0 / 1024.0),
        _ => format!("{:.2}GB", number / 1024.0 / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::report::sample;
    use crate::tally::Errors;

    #[test]
    fn the_output_is_like_that_of_wrk() {
        expect![[r#"
            Running 4s test @ http://127.0.0.1:8080/plain?a=<b>&c
              2 threads and 64 connections
              Thread Stats   Avg      Stdev     Max   +/- Stdev
                Latency  33.44ms   29.82ms  100.10ms   60.72%
                Req/Sec    8.00k     2.55k    10.00k   75.00%
              Latency Distribution
                 50%   25.10ms
                 75%   56.36ms
                 90%   81.13ms
                 99%   98.17ms
              79900 requests in 4.00s, 9.91MB read
              Socket errors: connect 0, read 3, write 0, timeout 55
              Non-2xx or 3xx responses: 2
            Requests/sec:   19975.00
            Transfer/sec:     2.48MB
        "#]]
        .assert_eq(&write(&sample::run()));
    }

    #[test]
    fn a_shorter_interval_at_the_end_does_not_lower_the_rate() {
        let rates = Rates::of(&sample::steady(3.6));
        assert!((rates.mean - 1000.0).abs() < 1e-6 && rates.stdev < 1e-6, "{}", rates.mean);
    }

    #[test]
    fn each_kind_of_error_is_a_read_but_for_three() {
        let of = |errors: Errors| {
            let mut run = sample::run();
            run.errors = errors;
            run.statuses = [(200, 5), (304, 3)].into();
            let text = write(&run);
            assert!(!text.contains("Non-2xx"), "{text}");
            text.lines().find(|line| line.contains("Socket errors")).map(str::to_owned)
        };
        assert_eq!(of(Errors { status: 7, ..Errors::default() }), None);
        let reads = "  Socket errors: connect 0, read 1, write 0, timeout 0";
        for errors in [
            Errors { reset: 1, ..Errors::default() },
            Errors { closed_early: 1, ..Errors::default() },
            Errors { malformed: 1, ..Errors::default() },
            Errors { unsolicited: 1, ..Errors::default() },
            Errors { mismatch: 1, ..Errors::default() },
        ] {
            assert_eq!(of(errors).as_deref(), Some(reads));
        }
        let others = of(Errors { connect: 2, timeout: 3, ..Errors::default() });
        assert!(others.is_some_and(|line| line.ends_with("connect 2, read 0, write 0, timeout 3")));
    }

    #[test]
    fn a_unit_begins_at_its_size() {
        for (nanos, shown) in [
            (999_000.0, "999.00us"),
            (1e6, "1.00ms"),
            (1e9, "1.00s"),
            (59.9e9, "59.90s"),
            (90e9, "1.50m"),
        ] {
            assert_eq!(time(nanos), shown);
        }
    }

    #[test]
    fn statuses_from_400_on_are_errors() {
        let mut run = sample::run();
        run.statuses = [(399, 1), (400, 3), (599, 4)].into();
        assert!(write(&run).contains("Non-2xx or 3xx responses: 7\n"));
    }

    #[test]
    fn amounts_are_in_powers_of_1024() {
        for (amount, shown) in [
            (1023.0, "1023.00B"),
            (1024.0, "1.00KB"),
            (1023.0 * 1024.0, "1023.00KB"),
            (1024.0 * 1024.0, "1.00MB"),
            (1023.0 * 1024.0 * 1024.0, "1023.00MB"),
            (1024.0 * 1024.0 * 1024.0, "1.00GB"),
        ] {
            assert_eq!(bytes(amount), shown);
        }
    }
}
