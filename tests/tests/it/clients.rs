//! Third-party clients: curl, wrk and ab.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::{Command, Stdio};

use filoplume_tests::{Child, Example, installed};

/// The engine alone, and an app. Both have the same paths.
const SERVERS: [Example; 2] = [Example("bench_engine"), Example("bench_server")];

/// Runs a program to its end and returns its output.
#[track_caller]
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {printed}{complaints}");
    printed
}

fn url(child: &Child, target: &str) -> String {
    format!("http://{}{target}", child.address())
}

/// Returns the number after a label of a report.
#[track_caller]
fn number(report: &str, label: &str) -> u64 {
    let line = report.lines().find(|line| line.trim_start().starts_with(label));
    let line = line.unwrap_or_else(|| panic!("no line {label:?} in {report}"));
    line.split(|character: char| !character.is_ascii_digit())
        .find_map(|word| word.parse().ok())
        .unwrap()
}

#[test]
fn curl_gets_and_posts() {
    if installed("curl") {
        SERVERS.into_iter().for_each(curl_asks);
    }
}

fn curl_asks(server: Example) {
    let child = server.start();
    let curl = |arguments: &[&str], target: &str| {
        let url = url(&child, target);
        run(
            "curl",
            &[&["--silent", "--show-error", "--max-time", "10"], arguments, &[url.as_str()]]
                .concat(),
        )
    };
    assert_eq!(curl(&[], "/plaintext"), "Hello, World!");
    assert_eq!(curl(&["--http1.0"], "/plaintext"), "Hello, World!");
    assert_eq!(curl(&[], "/stream?n=100000").len(), 100_000);
    assert_eq!(curl(&["--http1.0"], "/stream?n=100000").len(), 100_000);
    assert!(curl(&["--head"], "/large?n=5000000").contains("content-length: 5000000\r\n"));
    // A long content, for which curl waits for `100 Continue`.
    let long = "c".repeat(2_000_000);
    let file =
        std::env::temp_dir().join(format!("filoplume-curl-{}-{}", server.0, std::process::id()));
    std::fs::write(&file, &long).unwrap();
    let from_file = format!("@{}", file.display());
    for arguments in [
        &["--data-binary", &from_file][..],
        &["--header", "Expect: 100-continue", "--data-binary", &from_file],
        &["--header", "Transfer-Encoding: chunked", "--data-binary", &from_file],
    ] {
        assert!(curl(arguments, "/echo") == long, "{arguments:?}");
        assert_eq!(curl(arguments, "/length"), "2000000", "{arguments:?}");
        assert_eq!(curl(arguments, "/noread"), "not read", "{arguments:?}");
    }
    std::fs::remove_file(&file).unwrap();
    // An upgrade request for HTTP/2 is ignored.
    assert_eq!(curl(&["--http2"], "/plaintext"), "Hello, World!");
    // Several requests over one connection.
    let (first, second) = (url(&child, "/plaintext"), url(&child, "/json"));
    let report = run("curl", &["--silent", "--write-out", "%{num_connects}", &first, &second]);
    assert_eq!(report, "Hello, World!1{\"message\":\"Hello, World!\"}0");
}

#[test]
fn wrk_gets_answers_only() {
    if installed("wrk") {
        SERVERS.into_iter().for_each(|server| wrk_gets_answers_only_of(&server.start()));
    }
}

fn wrk_gets_answers_only_of(child: &Child) {
    for target in ["/plaintext", "/sleep?ms=5"] {
        let report = run("wrk", &["-t2", "-c40", "-d1s", "--timeout", "5s", &url(child, target)]);
        let total = report.lines().find(|line| line.contains("requests in")).expect("a total");
        assert!(number(total, "") > 100, "{report}");
        assert!(!report.contains("Socket errors"), "{report}");
        assert!(!report.contains("Non-2xx"), "{report}");
    }
}

#[test]
fn ab_keeps_its_http_1_0_connections() {
    if installed("ab") {
        SERVERS
            .into_iter()
            .for_each(|server| ab_keeps_its_http_1_0_connections_of(&server.start()));
    }
}

fn ab_keeps_its_http_1_0_connections_of(child: &Child) {
    for (target, count) in [("/plaintext", 10_000), ("/sleep?ms=5", 1000), ("/large?n=100000", 500)]
    {
        let report =
            run("ab", &["-q", "-k", "-c", "20", "-n", &count.to_string(), &url(child, target)]);
        assert_eq!(number(&report, "Complete requests:"), count, "{report}");
        assert_eq!(number(&report, "Failed requests:"), 0, "{report}");
        assert_eq!(number(&report, "Keep-Alive requests:"), count, "{report}");
        assert!(!report.contains("Non-2xx"), "{report}");
    }
}

#[test]
fn ab_without_keep_alive_is_answered_too() {
    if installed("ab") {
        SERVERS
            .into_iter()
            .for_each(|server| ab_without_keep_alive_is_answered_too_of(&server.start()));
    }
}

fn ab_without_keep_alive_is_answered_too_of(child: &Child) {
    let report = run("ab", &["-q", "-c", "20", "-n", "2000", &url(child, "/plaintext")]);
    assert_eq!(number(&report, "Complete requests:"), 2000, "{report}");
    assert_eq!(number(&report, "Failed requests:"), 0, "{report}");
}
