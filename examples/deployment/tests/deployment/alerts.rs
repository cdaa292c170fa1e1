//! The alerts for Prometheus: it understands them, and they fire when they should.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `promtool`. Returns what it said and whether it succeeded; `None`, and reports a skipped
/// test, if it is not installed.
fn promtool(what: [&str; 2], file: &Path) -> Option<(String, bool)> {
    let Ok(output) = Command::new("promtool").args(what).arg(file).output() else {
        skip::without("promtool");
        return None;
    };
    let said = [output.stdout, output.stderr].concat();
    Some((String::from_utf8(said).unwrap(), output.status.success()))
}

#[test]
fn prometheus_understands_the_alerts() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/rules.yml");
    let Some((said, is_well)) = promtool(["check", "rules"], &rules) else { return };
    assert!(is_well && said.contains(" rules found"), "{said}");
}

/// What Prometheus has seen, and what it says about that.
///
/// `/export` is the leak of docs/guide/operating.md: one thread per second, until the route has
/// eight ninths of 512. `/busy` gets more to do at once, which goes on. `/hostile` has had many
/// other statuses before its first server error.
const TESTS: &str = r#"
rule_files: [RULES]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - series: 'http_server_active_requests{instance="a",route="/export"}'
        values: '0+14.5x31 455x90'
      - series: 'http_server_active_requests{instance="a",route="/busy"}'
        values: '5x8 60x120'
      - series: 'http_server_requests_total{instance="a",route="/hostile",status="200"}'
        values: '100+10x120'
      - series: 'http_server_requests_total{instance="a",route="/hostile",status="5xx"}'
        values: '1+1x120'
    alert_rule_test:
      # After six minutes, 348 of the 512 threads hang.
      - eval_time: 6m
        alertname: RequestsPileUp
        exp_alerts: [exp_labels: { instance: a, route: /export }]
      - eval_time: 7m
        alertname: RequestsPileUp
        exp_alerts: [exp_labels: { instance: a, route: /export }]
      # Later, other alerts tell that the threads are used up.
      - eval_time: 20m
        alertname: RequestsPileUp
        exp_alerts: []
      - eval_time: 12m
        alertname: RequestsFail
        exp_alerts: [exp_labels: { route: /hostile }]
"#;

#[test]
fn a_leak_of_threads_fires_before_they_are_used_up_and_a_rise_of_the_load_does_not() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/rules.yml");
    let folder = tempfile::tempdir().unwrap();
    let tests = folder.path().join("tests.yml");
    fs::write(&tests, TESTS.replace("RULES", rules.to_str().unwrap())).unwrap();
    let Some((said, is_well)) = promtool(["test", "rules"], &tests) else { return };
    assert!(is_well, "{said}");
}
