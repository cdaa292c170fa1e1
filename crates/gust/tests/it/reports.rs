//! The results of a run: lines, files, a page, and an exit code.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{count, gust};
use crate::servers::{HELLO, always};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

#[test]
fn every_format_has_its_lines() {
    let port = always(HELLO);
    for (format, line) in [
        ("text", "requests       500 sent, 500 answered"),
        ("wrk", "Requests/sec:"),
        ("ab", "Complete requests:      500"),
        ("json", "\"responses\": 500"),
        ("csv", "target,connections,threads"),
    ] {
        let outcome = gust(&format!(":{port} -c 2 -n 500 --format {format}"));
        outcome.assert_code(0);
        assert!(outcome.stdout.contains(line), "{format}: {}", outcome.stdout);
    }
}

#[test]
fn the_first_line_of_progress_does_not_count_the_time_of_the_warm_up() {
    let outcome = gust(&format!(":{} -c 1 -r 100 --warmup 2s -d 2s", always(HELLO)));
    outcome.assert_code(0);
    let line = outcome.stderr.lines().next().unwrap_or_default();
    let rate = line.split_once("%  ").and_then(|(_, rest)| rest.split_once("/s"));
    let rate: f64 = rate.and_then(|(rate, _)| rate.parse().ok()).expect("a rate");
    assert!((50.0..150.0).contains(&rate), "{}", outcome.stderr);
}

#[test]
fn without_a_terminal_progress_is_written_as_lines() {
    let port = always(HELLO);
    let outcome = gust(&format!(":{port} -c 2 -d 1200ms"));
    assert!(
        outcome.stderr.lines().count() >= 3 && outcome.stderr.contains("50 %  "),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("/s  p99 "), "{}", outcome.stderr);
    assert!(gust(&format!(":{port} -c 2 -d 300ms --quiet")).stderr.is_empty());
}

#[test]
fn a_saved_run_can_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.json");
    let base = base.to_str().unwrap();
    let port = always(HELLO);
    gust(&format!(":{port} -c 2 -n 2000 --save {base}")).assert_code(0);
    // A threshold above all noise.
    let outcome = gust(&format!(":{port} -c 2 -n 2000 --compare {base} --threshold 100000%"));
    outcome.assert_code(0);
    assert!(outcome.stdout.contains("not worse, with a threshold of"), "{}", outcome.stdout);
    // No run has as many responses as this base.
    let mut run: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(base).unwrap()).unwrap();
    assert_eq!(count(&run, "responses"), 2000);
    run["responses"] = serde_json::json!(2_000_000_000_u64);
    fs::write(base, run.to_string()).unwrap();
    let outcome = gust(&format!(":{port} -c 2 -n 2000 --compare {base} --threshold 5%"));
    outcome.assert_code(1);
    assert!(outcome.stdout.contains("WORSE"), "{}", outcome.stdout);
    fs::write(base, "{}").unwrap();
    gust(&format!(":{port} --compare {base}")).assert_code(2).assert_says("is not a saved run");
}

#[test]
fn the_page_is_drawn_by_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let port = always(HELLO);
    gust(&format!(":{port}/?<b> -c 4 -r 2000 -d 1s --quiet --html {}", page.display()))
        .assert_code(0);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("<svg") && !text.contains("<script"));
    let Some(seen) = open_in_browser(&page, folder.path()) else {
        skip::without("chromium");
        return;
    };
    assert!(seen.contains("<h2>Latency by percentile</h2>"), "{seen}");
    // The charts were parsed as graphics and not as unknown elements: a browser serializes SVG
    // elements with their end tags.
    assert!(seen.contains("<polyline") && seen.contains("</polyline>"), "{seen}");
    assert_eq!(seen.matches("<svg").count(), seen.matches("</svg>").count());
    let picture = folder.path().join("page.png");
    assert!(fs::metadata(&picture).is_ok_and(|file| file.len() > 20_000), "the picture is empty");
}

/// Returns the page as the browser serializes it, after drawing it.
fn open_in_browser(page: &Path, folder: &Path) -> Option<String> {
    let url = format!("file://{}", page.display());
    let run = |name: &str, action: &str| {
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        let mut command = Command::new(name);
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1000,2400",
        ]);
        command.args([&profile, action, &url]).stderr(Stdio::null()).stdin(Stdio::null());
        command.output().ok()
    };
    let (name, seen) = BROWSERS.iter().find_map(|name| Some((name, run(name, "--dump-dom")?)))?;
    let drawn = run(name, &format!("--screenshot={}", folder.join("page.png").display()))?;
    assert!(seen.status.success() && drawn.status.success());
    Some(String::from_utf8(seen.stdout).unwrap())
}
