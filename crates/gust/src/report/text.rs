//! The report for people.

use std::fmt::Write;

use crate::histogram::{Latency, PERCENTILES};
use crate::report::float;
use crate::run::{Load, Run};
use crate::tally::Handshakes;
use crate::units;

pub(crate) fn write(run: &Run) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = body(run, &mut out);
    out
}

fn body(run: &Run, out: &mut String) -> std::fmt::Result {
    writeln!(out, "{}", run.target)?;
    writeln!(out, "{}", load(&run.load))?;
    writeln!(out)?;
    amounts(run, out)?;
    if !run.statuses.is_empty() {
        let statuses: Vec<_> = run
            .statuses
            .iter()
            .map(|(status, &count)| format!("{status}: {}", units::count(count)))
            .collect();
        writeln!(out, "statuses       {}", statuses.join(", "))?;
    }
    writeln!(out, "errors         {}", errors(run))?;
    writeln!(out)?;
    connections(run, out)?;
    writeln!(out)?;
    latencies(run, out)?;
    writeln!(out)?;
    cost(run, out)?;
    let warnings = run.warnings();
    if !warnings.is_empty() {
        writeln!(out)?;
        warnings.iter().try_for_each(|warning| writeln!(out, "WARNING  {warning}"))?;
    }
    Ok(())
}

/// Writes how much was sent and answered.
fn amounts(run: &Run, out: &mut String) -> std::fmt::Result {
    if run.load.protocol == "tcp" {
        let (sent, answered) = (float(run.requests) / run.seconds.max(1e-9), run.per_second());
        writeln!(
            out,
            "speed          {} request/s, {} response/s",
            units::rate(sent),
            units::rate(answered)
        )?;
    } else {
        let title = format!("{}/s", noun(&run.load));
        writeln!(out, "{title:<15}{}", units::rate(run.per_second()))?;
    }
    let (sent, answered) = (units::count(run.requests), units::count(run.responses));
    let time = units::time(run.seconds * 1e9);
    if run.load.holds {
        writeln!(out, "{:<15}{answered} received in {time}", noun(&run.load))?;
    } else {
        writeln!(out, "{:<15}{sent} sent, {answered} answered in {time}", noun(&run.load))?;
    }
    let missing: Vec<_> =
        [(run.unanswered, "still unanswered"), (run.never_sent, "due, but never sent")]
            .into_iter()
            .filter(|&(count, _)| count > 0)
            .map(|(count, what)| format!("{} {what}", units::count(count)))
            .collect();
    if !missing.is_empty() {
        let longest = units::time(float(run.longest_wait));
        writeln!(out, "at the end     {}; the longest wait {longest}", missing.join(", "))?;
    }
    let seconds = run.seconds.max(1e-9);
    let per_second = |bytes: u64| units::bytes(float(bytes) / seconds);
    writeln!(
        out,
        "bytes          {} sent ({}/s), {} received ({}/s)",
        units::bytes(float(run.bytes_sent)),
        per_second(run.bytes_sent),
        units::bytes(float(run.bytes_received)),
        per_second(run.bytes_received)
    )?;
    Ok(())
}

/// Returns what was counted.
fn noun(load: &Load) -> &'static str {
    match load.protocol.as_str() {
        "websocket" => "messages",
        "events" => "events",
        _ => "requests",
    }
}

/// Returns the load in one line.
pub(crate) fn load(load: &Load) -> String {
    let mut parts = vec![format!("{} connections", units::count(load.connections))];
    let kind = if load.is_blocking { "blocking threads" } else { "threads" };
    parts.push(if load.threads == 1 {
        "1 thread".to_owned()
    } else {
        format!("{} {kind}", load.threads)
    });
    if load.depth > 1 {
        parts.push(format!("{} requests deep", load.depth));
    }
    if !load.keep_alive {
        parts.push("a connection per request".to_owned());
    }
    match load.rate {
        Some(rate) => parts.push(format!("{}/s", units::rate(rate))),
        None if load.holds => parts.push("held open".to_owned()),
        None => parts.push("closed loop".to_owned()),
    }
    if load.protocol == "tcp" || (load.protocol == "websocket" && !load.holds) {
        parts.push(format!("messages of {}", units::bytes(float(load.request_bytes))));
    }
    if load.warmup_seconds > 0.0 {
        parts.push(format!("after {} of warm-up", units::time(load.warmup_seconds * 1e9)));
    }
    parts.join(", ")
}

/// Returns the errors by kind, such as `3 reset, 55 timeout`, or `none`.
pub(crate) fn errors(run: &Run) -> String {
    let named = run.errors.named().into_iter().filter(|&(_, count)| count > 0);
    let named: Vec<_> =
        named.map(|(name, count)| format!("{} {name}", units::count(count))).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

fn connections(run: &Run, out: &mut String) -> std::fmt::Result {
    let found = &run.connections;
    writeln!(
        out,
        "connections    {} asked, {} opened, {} served, {} never served, {} reopened",
        found.asked, found.opened, found.served, found.never_served, found.reopened
    )?;
    if let Some(held) = found.held {
        writeln!(out, "  held open      {} at the end", units::count(held))?;
    }
    writeln!(
        out,
        "  answers each   least {}, median {}, most {}",
        units::count(found.least),
        units::count(found.median),
        units::count(found.most)
    )?;
    if let Some(Handshakes { full, resumed }) = run.handshakes {
        let share = 100.0 * float(resumed) / float((full + resumed).max(1));
        writeln!(
            out,
            "  TLS            {} handshakes, {}/s, {share:.0} % resumed",
            units::count(full + resumed),
            units::rate(float(full + resumed) / run.seconds.max(1e-9))
        )?;
    }
    let connect = &run.connect;
    if connect.count > 0 {
        writeln!(
            out,
            "  connect time   least {}, p50 {}, p99 {}, most {}",
            units::time(connect.min),
            units::time(connect.at(50.0)),
            units::time(connect.at(99.0)),
            units::time(connect.max)
        )?;
    }
    Ok(())
}

fn latencies(run: &Run, out: &mut String) -> std::fmt::Result {
    let columns: Vec<(&str, &Latency)> = match &run.uncorrected {
        Some(uncorrected) => vec![("from when due", &run.latency), ("from when sent", uncorrected)],
        None if run.load.holds => vec![("from the sending", &run.latency)],
        None => vec![("", &run.latency)],
    };
    if run.load.holds && run.latency.count == 0 {
        let what = noun(&run.load);
        return writeln!(out, "latency        unknown: no time of sending in the {what}");
    }
    let mut row = |name: &str, value: &dyn Fn(&Latency) -> f64| {
        let cells: String = columns
            .iter()
            .map(|(_, latency)| format!("{:>16}", units::time(value(latency))))
            .collect();
        writeln!(out, "  {name:<8}{cells}")
    };
    row("min", &|latency| latency.min)?;
    row("mean", &|latency| latency.mean)?;
    for percentile in PERCENTILES {
        row(&format!("{percentile} %"), &|latency| latency.at(percentile))?;
    }
    row("max", &|latency| latency.max)?;
    let titles: String = columns.iter().map(|(title, _)| format!("{title:>16}")).collect();
    let at = out.find("  min ").unwrap_or(out.len());
    out.insert_str(at, &format!("{}\n", format!("latency   {titles}").trim_end()));
    Ok(())
}

fn cost(run: &Run, out: &mut String) -> std::fmt::Result {
    let cost = |name: &str, user: f64, system: f64| {
        format!(
            "{name:<15}{:.2} µs per request ({:.2} user, {:.2} system)",
            run.per_response(user + system),
            run.per_response(user),
            run.per_response(system)
        )
    };
    let client = &run.client;
    writeln!(
        out,
        "{}; busiest thread {:.0} %",
        cost("client CPU", client.cpu.user, client.cpu.system),
        client.busiest * 100.0
    )?;
    if let Some(server) = &run.server {
        writeln!(out, "{}", cost("server CPU", server.user, server.system))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::report::sample;

    #[test]
    fn a_run_at_a_constant_rate_shows_both_latencies() {
        expect![[r#"
            http://127.0.0.1:8080/plain?a=<b>&c
            64 connections, 2 threads, 20,000/s, after 1.00 s of warm-up

            requests/s     19,975
            requests       80,000 sent, 79,900 answered in 4.00 s
            at the end     40 still unanswered, 2 due, but never sent; the longest wait 3.00 ms
            bytes          3.59 MiB sent (918 KiB/s), 9.91 MiB received (2.48 MiB/s)
            statuses       200: 79,898, 503: 2
            errors         3 reset, 55 timeout, 2 status

            connections    64 asked, 64 opened, 63 served, 1 never served, 5 reopened
              answers each   least 0, median 1,250, most 1,300
              TLS            64 handshakes, 16.00/s, 75 % resumed
              connect time   least 100 µs, p50 2.60 ms, p99 9.90 ms, most 10.1 ms

            latency      from when due  from when sent
              min               100 µs          100 µs
              mean             33.4 ms         16.8 ms
              50 %             25.1 ms         12.6 ms
              75 %             56.4 ms         28.2 ms
              90 %             81.1 ms         40.6 ms
              95 %             90.4 ms         45.3 ms
              99 %             98.2 ms         49.1 ms
              99.9 %           99.9 ms         50.0 ms
              99.99 %           100 ms         50.1 ms
              max               100 ms         50.1 ms

            client CPU     4.01 µs per request (0.25 user, 3.75 system); busiest thread 42 %
            server CPU     6.26 µs per request (1.25 user, 5.01 system)

            WARNING  1 of 64 connections were never served: the figures describe only the others
        "#]]
        .assert_eq(&write(&sample::run()));
    }

    #[test]
    fn a_closed_loop_shows_one_latency() {
        let mut run = sample::run();
        run.load.rate = None;
        run.uncorrected = None;
        run.server = None;
        run.client.busiest = 0.99;
        run.load.protocol = "tcp".to_owned();
        run.statuses.clear();
        expect![[r#"
            http://127.0.0.1:8080/plain?a=<b>&c
            64 connections, 2 threads, closed loop, messages of 47 B, after 1.00 s of warm-up

            speed          20,000 request/s, 19,975 response/s
            requests       80,000 sent, 79,900 answered in 4.00 s
            at the end     40 still unanswered, 2 due, but never sent; the longest wait 3.00 ms
            bytes          3.59 MiB sent (918 KiB/s), 9.91 MiB received (2.48 MiB/s)
            errors         3 reset, 55 timeout, 2 status

            connections    64 asked, 64 opened, 63 served, 1 never served, 5 reopened
              answers each   least 0, median 1,250, most 1,300
              TLS            64 handshakes, 16.00/s, 75 % resumed
              connect time   least 100 µs, p50 2.60 ms, p99 9.90 ms, most 10.1 ms

            latency
              min               100 µs
              mean             33.4 ms
              50 %             25.1 ms
              75 %             56.4 ms
              90 %             81.1 ms
              95 %             90.4 ms
              99 %             98.2 ms
              99.9 %           99.9 ms
              99.99 %           100 ms
              max               100 ms

            client CPU     4.01 µs per request (0.25 user, 3.75 system); busiest thread 99 %

            WARNING  1 of 64 connections were never served: the figures describe only the others
            WARNING  a client thread was 99 % busy: the client is the bottleneck (try a higher -t)
        "#]]
        .assert_eq(&write(&run));
    }

    #[test]
    fn what_did_not_happen_is_not_told() {
        let mut run = sample::run();
        (run.never_sent, run.connect) = (0, Latency::default());
        let text = write(&run);
        assert!(text.contains("\nat the end     40 still unanswered; the longest wait"), "{text}");
        assert!(!text.contains("connect time"), "{text}");
        run.unanswered = 0;
        assert!(!write(&run).contains("at the end"));
        (run.load.holds, run.load.rate, run.uncorrected) = (true, None, None);
        run.latency = Latency::default();
        assert!(write(&run).contains("\nlatency        unknown: no time of sending"));
    }

    #[test]
    fn a_pipeline_begins_with_two_requests() {
        let mut run = sample::run();
        assert!(!load(&run.load).contains("deep"));
        run.load.depth = 2;
        assert!(load(&run.load).contains(", 2 requests deep, "));
    }
}
