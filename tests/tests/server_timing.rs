//! `Server-Timing` in production, for requests with a token.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::Command;
use std::thread;
use std::time::Duration;

use filoplume::prelude::*;
use filoplume::{Key, RunningApp, ServerConfig};
use filoplume_tests::{Client, Gate, Response, installed};

const SECRET: &str = "a secret of at least 32 bytes, for this test";
const MINUTE: Duration = Duration::from_secs(60);

fn key() -> Key {
    Key::from_secret(SECRET).unwrap()
}

fn start(app: App) -> RunningApp {
    app.server_timing(key()).start("127.0.0.1:0").unwrap()
}

fn get_with(client: &mut Client, target: &str, token: &str) -> Response {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Server-Timing: {token}\r\n\r\n"));
    client.response()
}

/// Returns a phase of the field in milliseconds.
fn phase(response: &Response, name: &str) -> f64 {
    let field = response.header("server-timing").expect("it has the field");
    let entry = field.split(", ").find_map(|entry| entry.strip_prefix(name)?.strip_prefix(";dur="));
    entry.unwrap_or_else(|| panic!("{name}: {field}")).parse().unwrap()
}

#[test]
fn a_request_with_a_token_is_shown_exact_times_each_time() {
    let app = start(App::new().get("/sleep", || {
        thread::sleep(Duration::from_millis(30));
        ([("cache-control", "public, max-age=60")], "slept")
    }));
    let token = key().server_timing_token(MINUTE);
    let mut client = Client::connect(app.local_addr());
    for _ in 0..5 {
        let response = get_with(&mut client, "/sleep", &token);
        assert!(phase(&response, "waiting") >= 30.0);
        assert!(phase(&response, "total") >= phase(&response, "waiting"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
    let usual = client.get("/sleep");
    assert_eq!(usual.header("server-timing"), None);
    assert_eq!(usual.header("cache-control"), Some("public, max-age=60"));
    app.shutdown();
}

/// A request with a wrong token is answered as one without, field by field.
#[test]
fn a_wrong_token_changes_nothing() {
    let app = start(App::new().get("/", || "hi"));
    let mut client = Client::connect(app.local_addr());
    let fields = |response: Response| -> Vec<String> {
        response.lines.iter().filter(|line| !line.starts_with("date: ")).cloned().collect()
    };
    let usual = fields(client.get("/"));
    let other = Key::from_secret("another secret, which is as long as the first").unwrap();
    let valid = key().server_timing_token(MINUTE);
    let (expiry, mac) = valid.split_once('.').unwrap();
    let later = expiry.parse::<u64>().unwrap() + 1;
    for token in [
        other.server_timing_token(MINUTE),
        key().server_timing_token(Duration::ZERO),
        format!("{later}.{mac}"),
        format!("{expiry}.{}", mac.replace('a', "b").replace('1', "2")),
        expiry.to_owned(),
        String::new(),
        "x".repeat(4000),
    ] {
        assert_eq!(fields(get_with(&mut client, "/", &token)), usual, "{token}");
    }
    assert!(get_with(&mut client, "/", &valid).header("server-timing").is_some());
    app.shutdown();
}

#[test]
fn failed_and_refused_requests_show_their_times_too() {
    let gate = Gate::new();
    let at_gate = gate.clone();
    let config = ServerConfig::default().threads_max(1);
    let app = App::new()
        .get("/broken", || Err::<(), _>(Error::internal("as planned")))
        .route("/gate", get(move || at_gate.pass()).on_pool())
        .config(config.queue_timeout(Duration::from_millis(20)));
    let app = start(app);
    let token = key().server_timing_token(MINUTE);
    let mut client = Client::connect(app.local_addr());
    for (target, status) in [("/broken", 500), ("/nowhere", 404)] {
        let response = get_with(&mut client, target, &token);
        assert_eq!(response.status, status);
        assert!(phase(&response, "total") > 0.0);
    }
    let mut holder = Client::connect(app.local_addr());
    holder.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    let refused = get_with(&mut client, "/gate", &token);
    assert_eq!(refused.status, 503);
    assert!(phase(&refused, "total") > 0.0);
    assert_eq!(Client::connect(app.local_addr()).get("/gate").header("server-timing"), None);
    gate.open();
    holder.response();
    app.shutdown();
}

/// The guide's lines for a shell, as they are written there.
#[test]
fn the_guide_makes_a_token_with_openssl() {
    if !installed("openssl") {
        return skip::without("openssl");
    }
    let guide = include_str!("../../docs/guide/observing.md");
    let (_, lines) = guide.split_once("```sh\nhmac() {").expect("the guide has the lines");
    let (lines, _) = lines.split_once("```").unwrap();
    let output = Command::new("sh")
        .arg("-ec")
        .arg(format!("hmac() {{{lines}"))
        .env("TIMING_SECRET", SECRET)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let token = printed.strip_prefix("x-server-timing: ").expect("it prints a field").trim_end();
    let app = start(App::new().get("/", || "hi"));
    let mut client = Client::connect(app.local_addr());
    let response = get_with(&mut client, "/", token);
    assert!(response.header("server-timing").is_some(), "{token}");
    app.shutdown();
}
