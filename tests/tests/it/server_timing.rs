//! Where the time of a request went: `Server-Timing` in production, for requests with a token, and
//! the access log.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, Read};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use filoplume::prelude::*;
use filoplume::{Key, RunningApp, ServerConfig};
use filoplume_tests::{Client, Gate, Response, eventually, installed};
use serde_json::Value;

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
        // The CPU time of the handler is not waiting, so a little is missing at 30 ms.
        assert!(phase(&response, "waiting") > 25.0);
        assert!(phase(&response, "total") >= phase(&response, "waiting"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
    }
    let usual = client.get("/sleep");
    assert_eq!(usual.header("server-timing"), None);
    assert_eq!(usual.header("cache-control"), Some("public, max-age=60"));
    app.shutdown();
}

/// The response to a request with a wrong token has the same fields as that to one without a token.
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
    let guide = include_str!("../../../docs/guide/observing.md");
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

/// A log whose lines a test reads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Returns the line of a path, once there is one.
    fn line(&self, path: &str) -> Value {
        let find = || -> Option<Value> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.find(|line| line["path"] == path)
        };
        eventually(&format!("{path} is logged"), || find().is_some());
        find().unwrap()
    }
}

fn logged(logger: middleware::Logger, log: &Log) -> App {
    App::new()
        .get("/sleep/{n}", || thread::sleep(Duration::from_millis(30)))
        .with(logger.json().to(log.clone()))
}

#[test]
fn the_access_log_tells_where_the_time_went() {
    let (log, gate) = (Log::default(), Gate::new());
    let at_gate = gate.clone();
    let app = logged(middleware::Logger::new().timing(), &log)
        .route("/gate/{n}", get(move || at_gate.pass()).on_pool())
        .get("/stream", || filoplume::response::Reader::new(io::repeat(b'x').take(8 << 20)))
        .config(ServerConfig::default().threads_max(1))
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr());
    assert_eq!(client.get("/sleep/1").header("server-timing"), None);
    let line = log.line("/sleep/1");
    assert!(line["waiting_us"].as_u64().unwrap() > 25_000, "{line}");
    assert!(line.get("write_us").is_none(), "the line is written before: {line}");
    // One holds the thread, the other waits for it.
    let mut clients = [client, Client::connect(app.local_addr())];
    clients[0].send("GET /gate/1 HTTP/1.1\r\nHost: a\r\n\r\n");
    gate.holds(1);
    clients[1].send("GET /gate/2 HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it waits", || app.server().metrics().unwrap().waiting == 1);
    thread::sleep(Duration::from_millis(40));
    gate.open();
    for client in &mut clients {
        client.response();
    }
    assert!(log.line("/gate/1")["waiting_us"].as_u64().unwrap() >= 40_000);
    let line = log.line("/gate/2");
    assert!(line["queue_us"].as_u64().unwrap() >= 40_000, "{line}");
    assert!(
        line["waiting_us"].as_u64().unwrap_or(0) < line["queue_us"].as_u64().unwrap(),
        "{line}"
    );
    // A client that reads late.
    clients[0].send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    thread::sleep(Duration::from_millis(40));
    clients[0].response();
    let line = log.line("/stream");
    assert!(line["write_us"].as_u64().unwrap() >= 20_000, "{line}");
    app.shutdown();
}

#[test]
fn the_access_log_times_only_what_it_is_asked_for() {
    for (is_development, has_token) in [(false, false), (true, false), (false, true)] {
        let log = Log::default();
        let app = logged(middleware::Logger::new(), &log).development(is_development);
        let app = start(app.metrics("/metrics"));
        let mut client = Client::connect(app.local_addr());
        let token = if has_token { key().server_timing_token(MINUTE) } else { String::new() };
        // Samples are not logged: some lines with phases and some without would be of no use.
        for number in 0..20 {
            let path = format!("/sleep/{number}");
            get_with(&mut client, &path, &token);
            let line = log.line(&path);
            let is_timed = line.get("waiting_us").is_some();
            assert_eq!(is_timed, is_development || has_token, "{line}");
        }
        app.shutdown();
    }
}
