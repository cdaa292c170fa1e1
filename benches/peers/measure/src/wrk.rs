//! Reads the report of wrk, and makes its command line.

use std::path::PathBuf;

use crate::job::{Form, Job, Rates};

/// The command as a reader would type it.
pub fn command_line(job: &Job, seconds: u64) -> String {
    let arguments =
        arguments(job, seconds).join(" ").replace("Connection: close", "'Connection: close'");
    let arguments = arguments.replace(&format!("{}/", scripts().display()), "");
    let after = arguments_after(job).iter().map(|word| format!(" {word}")).collect::<String>();
    format!("wrk {arguments} {}{after}", job.target)
}

/// The arguments after the URL: how many requests the script puts into one write.
pub fn arguments_after(job: &Job) -> Vec<String> {
    match job.form {
        Form::Pipelined(depth) => vec!["--".to_owned(), depth.to_string()],
        _ => Vec::new(),
    }
}

/// The options for a load; the URL follows.
pub fn arguments(job: &Job, seconds: u64) -> Vec<String> {
    let mut arguments = vec![
        format!("-t{}", job.threads),
        format!("-c{}", job.connections),
        format!("-d{seconds}s"),
        "--latency".to_owned(),
    ];
    let script = |name: &str| ["-s".to_owned(), scripts().join(name).display().to_string()];
    match job.form {
        // wrk has no raw TCP. Loads of echoes are made by gust.
        Form::One | Form::Echo(_) => {}
        Form::Pipelined(_) => arguments.extend(script("pipelined.lua")),
        Form::Body => arguments.extend(script("post64k.lua")),
        Form::Closing => arguments.extend(["-H".to_owned(), "Connection: close".to_owned()]),
    }
    arguments
}

fn scripts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("lua")
}

/// Reads the report with `--latency`.
pub fn parse(text: &str) -> Option<Rates> {
    let after =
        |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name).map(str::trim));
    let summary = text.lines().find(|line| line.contains(" requests in "))?;
    let requests = summary.trim().split(' ').next()?.parse().ok()?;
    // Under "Thread Stats": average, deviation, maximum, share within one deviation.
    let latency = text.lines().find_map(|line| line.trim().strip_prefix("Latency  "))?;
    let longest = latency.split_whitespace().nth(2)?;
    let mut problems = Vec::new();
    if let Some(errors) = after("Socket errors:") {
        let counts = errors.split(", ").filter(|count| !count.ends_with(" 0"));
        problems.extend(counts.map(str::to_owned));
    }
    if let Some(count) = after("Non-2xx or 3xx responses:") {
        problems.push(format!("refused {count}"));
    }
    Some(Rates {
        requests,
        per_second: after("Requests/sec:")?.parse().ok()?,
        p50: milliseconds(after("50%")?)?,
        p90: milliseconds(after("90%")?)?,
        p90_from_sent: None,
        p99: milliseconds(after("99%")?)?,
        longest: milliseconds(longest)?,
        problems,
        shares: None,
    })
}

fn milliseconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let value: f64 = digits.parse().ok()?;
    let factor = match &text[digits.len()..] {
        "us" => 0.001,
        "ms" => 1.0,
        "s" => 1_000.0,
        "m" => 60_000.0,
        _ => return None,
    };
    Some(value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_output_is_read() {
        let text = "Running 1s test @ http://127.0.0.1:1/plaintext
  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   575.85us  715.59us  16.01ms   92.94%
    Req/Sec    70.01k     7.49k   83.97k    70.00%
  Latency Distribution
     50%  384.00us
     75%  620.00us
     90%    1.07ms
     99%    3.57ms
  139371 requests in 1.00s, 17.01MB read
  Socket errors: connect 0, read 5, write 0, timeout 12
  Non-2xx or 3xx responses: 7
Requests/sec: 139048.75
Transfer/sec:     16.97MB";
        let rates = parse(text).unwrap();
        assert_eq!((rates.requests, rates.per_second), (139_371, 139_048.75));
        assert_eq!((rates.p50, rates.p90, rates.p99, rates.longest), (0.384, 1.07, 3.57, 16.01));
        assert_eq!(rates.problems, ["read 5", "timeout 12", "refused 7"]);
    }
}
