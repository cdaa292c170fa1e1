//! What Prometheus knows of both instances, compared with what clients see.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deployment::stack::{LAME_DUCK, Stack};
use harness::{Client, beside_others, eventually, eventually_within, one_at_a_time};
use serde_json::Value;

use super::{start, start_with};

/// Returns the value of a query; `None` while there is none.
fn query(prometheus: SocketAddr, query: &str) -> Option<f64> {
    let mut encoded = String::new();
    for byte in query.bytes() {
        encoded.push_str(&format!("%{byte:02x}"));
    }
    let mut client = Client::try_connect(prometheus).ok()?;
    let target = format!("/api/v1/query?query={encoded}");
    client.try_send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n")).ok()?;
    let answer = client.try_response().ok()?;
    // Prometheus is not ready at once.
    if answer.status == 503 {
        return None;
    }
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

fn prometheus(stack: &Stack) -> Option<SocketAddr> {
    if stack.prometheus().is_none() {
        skip::without("prometheus");
    }
    stack.prometheus()
}

#[test]
fn prometheus_scrapes_both_instances() {
    let _shared = beside_others();
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    assert_eq!(Client::connect(stack.address()).get("/metrics").status, 403);
    let Some(prometheus) = prometheus(&stack) else { return };
    // The probes of haproxy are requests too, so each scraped instance has this series.
    let count = "count(http_server_requests_total{route=\"/ready\"})";
    eventually("both instances are scraped", || query(prometheus, count) == Some(2.0));
}

/// Returns the program `gust`: the one that `GUST` names, or one that is built now.
fn gust() -> PathBuf {
    if let Some(program) = env::var_os("GUST") {
        return program.into();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = harness::cargo();
    build.current_dir(&workspace).args(["build", "--locked", "--package", "gust"]);
    let output = build.args(["--message-format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let program = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(message["executable"].as_str()?.into())
    });
    program.expect("cargo names the program that it has built")
}

/// The figures of one run of gust: the number of responses, and the 99th percentile of the latency
/// in seconds, measured from when a request was sent and from when it was due.
struct Measured {
    responses: f64,
    sent: f64,
    due: f64,
}

/// Sends requests at a constant rate, which does not fall if the server is slow.
fn measure(gust: &Path, folder: &Path, url: &str) -> Measured {
    let file = folder.join("gust.json");
    let mut command = Command::new(gust);
    command.args(["-r", "250", "-c", "64", "-d", RUN, "--save"]).arg(&file).arg(url);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let responses = run["responses"].as_f64().unwrap();
    assert_eq!(run["statuses"]["200"].as_f64(), Some(responses), "{run}");
    // The percentiles are 50, 75, 90, 95, 99, ...
    let p99 = |latency: &str| run[latency]["percentiles"][4].as_f64().unwrap() / 1e9;
    Measured { responses, sent: p99("uncorrected"), due: p99("latency") }
}

const RUN: &str = "12s";

/// Longer than a run, so that it contains all responses of the run.
const WINDOW: &str = "15s";

/// Prometheus assumes that times are spread evenly over a bucket, and the buckets are a tenth wide.
/// For times with a tail, like those of `/spread`, the percentile is then wrong by some per cent
/// even without noise. For times that end sharply within a bucket it is wrong by up to 10 %,
/// whatever the server does.
#[test]
fn prometheus_and_gust_agree_on_the_99th_percentile() {
    const ROUNDS: usize = 4;
    let _alone = one_at_a_time();
    let Some((folder, stack)) = start_with(|options| options.variable("PLANT", "spread")) else {
        return;
    };
    let Some(prometheus) = prometheus(&stack) else { return };
    let gust = gust();
    let url = format!("http://{}/spread", stack.address());
    let quantile = format!(
        "histogram_quantile(0.99, sum by (le) (rate(\
         http_server_all_request_duration_seconds_bucket[{WINDOW}])))"
    );
    let mut rounds = Vec::new();
    let mut responses = 0.0;
    for _ in 0..ROUNDS {
        let measured = measure(&gust, folder.path(), &url);
        responses += measured.responses;
        let answered = "sum(http_server_requests_total{route=\"/spread\"})";
        eventually_within(Duration::from_secs(30), "all responses are scraped", || {
            query(prometheus, answered).is_some_and(|answered| answered >= responses)
        });
        let found = query(prometheus, &quantile).unwrap();
        let deviation = (found - measured.sent) / measured.sent;
        let Measured { sent, due, .. } = measured;
        rounds.push(format!(
            "{:+.1} %: Prometheus {found:.4} s, gust {sent:.4} s, from when due {due:.4} s",
            deviation * 100.0
        ));
        if deviation.abs() < 0.1 {
            println!("{rounds:#?}");
            return;
        }
    }
    panic!("Prometheus and gust disagree: {rounds:#?}");
}
