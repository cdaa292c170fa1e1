//! What is logged without a `tracing` subscriber.

use std::io;

use filoplume::middleware::Logger;
use filoplume::prelude::*;

use super::logger::app;

/// The tests below run this one again in a separate process, without a `tracing` subscriber.
#[test]
fn one_request_without_a_subscriber() {
    app(Logger::new()).test().get("/notes/1").send().assert_text("note 1");
}

#[test]
fn without_a_subscriber_the_line_is_on_stderr() {
    let stderr = stderr_of("one_request_without_a_subscriber");
    assert!(stderr.lines().any(|line| line.starts_with("200 GET /notes/1 ")), "{stderr}");
}

#[test]
fn one_failure_without_a_subscriber() {
    let app =
        App::new().get("/broken", || -> Result<()> { Err(io::Error::other("disk\non fire"))? });
    app.test().get("/broken").send().assert_status(500);
}

#[test]
fn without_a_subscriber_the_cause_of_a_failure_is_on_stderr() {
    let stderr = stderr_of("one_failure_without_a_subscriber");
    assert!(stderr.contains("GET /broken failed: disk\n    on fire\n"), "{stderr}");
}

/// Returns what a test of this file writes to stderr in a separate process.
fn stderr_of(test: &str) -> String {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("middleware::logger_stderr::{test}"), "--nocapture"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    stderr
}
