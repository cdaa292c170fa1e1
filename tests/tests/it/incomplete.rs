//! Requests that the server refuses before they are complete: each has a line in the access log.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use filoplume::extract::Proxies;
use filoplume::middleware::{Incomplete, Logger, RequestIds};
use filoplume::prelude::*;
use filoplume::{Context, Listen, RunningApp};
use filoplume_tests::tls::Authority;
use filoplume_tests::{Client, Gate, eventually};
use serde_json::{Value, json};

const SHORT: Duration = Duration::from_millis(200);

/// What a logger has written.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the next line as JSON.
    fn take(&self) -> Value {
        eventually("there is a line", || self.text().contains('\n'));
        let text = self.text();
        self.0.lock().unwrap().clear();
        assert_eq!(text.lines().count(), 1, "one line per request: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

fn start(app: App) -> RunningApp {
    let config = ServerConfig::default().head_timeout(SHORT).content_timeout(SHORT);
    app.config(config).start("127.0.0.1:0").unwrap()
}

/// What a client sends, and what the log line says: the status, a part of the reason, and the path.
struct Row(String, u16, &'static str, Option<&'static str>);

fn rows() -> [Row; 10] {
    let post = |more: &str| format!("POST /notes/17?secret HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    [
        // The head was valid: the line is that of any other request.
        Row(
            format!("POST /files HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 1_u64 << 50),
            413,
            "content is too long",
            Some("/files"),
        ),
        Row(
            post("Transfer-Encoding: chunked\r\n") + "no chunk\r\n",
            400,
            "chunk size is malformed",
            Some("/notes/17?secret"),
        ),
        Row(
            post("Content-Length: 5\r\n") + "one",
            408,
            "request did not arrive in time",
            Some("/notes/17?secret"),
        ),
        // The head was malformed or incomplete.
        Row("GET /a?b HTTP/9.9\r\nHost: a\r\n\r\n".into(), 505, "", Some("/a?b")),
        Row("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400, "", Some("/a")),
        Row("GET / HTTP/1.1\r\n\r\n".into(), 400, "host", Some("/")),
        Row(format!("GET /{} HTTP/1.1\r\n", "x".repeat(60_000)), 414, "", None),
        Row(
            "GET /late HTTP/1.1\r\nHost:".into(),
            408,
            "request did not arrive in time",
            Some("/late"),
        ),
        Row("GE".into(), 408, "request did not arrive in time", None),
        Row("\u{16}\u{3}\u{1}\u{2}\n\n".into(), 400, "", None),
    ]
}

#[test]
fn each_kind_has_a_line_with_what_is_known_of_it() {
    let log = Log::default();
    let app = start(
        App::new()
            .post("/notes/{id}", |text: String| text)
            .route("/files", post(|body: Body| drop(body)).spooled())
            .get("/", || "hi")
            .metrics("/metrics")
            .with(Logger::new().json().timing().to(log.clone())),
    );
    for Row(input, status, reason, path) in rows() {
        let mut client = Client::connect(app.local_addr());
        client.send(&input);
        assert_eq!(client.response().status, status, "{input:.60}");
        client.is_closed();
        let line = log.take();
        assert_eq!(line["status"], json!(status), "{line}");
        let error = line["error"].as_str().unwrap();
        assert!(error.starts_with("refused: ") && error.contains(reason), "{line}");
        assert_eq!(line["client"], json!("127.0.0.1"), "{line}");
        if input.contains("xxx") {
            let target = line["path"].as_str().unwrap();
            assert!(target.starts_with("/xxx") && target.len() < 1024, "{}", target.len());
        } else {
            assert_eq!(line["path"].as_str(), path, "{line}");
        }
        let route = match path {
            Some("/files") => Some("/files"),
            Some(path) if path.starts_with("/notes") => Some("/notes/{id}"),
            _ => None,
        };
        assert_eq!(line["route"].as_str(), route, "{line}");
    }
    // An idle connection that ends has no line, and a request that is answered has only its own.
    let mut client = Client::connect(app.local_addr());
    client.get("/");
    assert_eq!(log.take()["path"], json!("/"));
    client.get("/metrics");
    assert_eq!(log.take()["path"], json!("/metrics"));
    let metrics = Client::connect(app.local_addr()).get("/metrics");
    for (route, status) in [("/notes/{id}", 400), ("/notes/{id}", 408), ("/files", 413)] {
        let labels = format!("method=\"POST\",route=\"{route}\",status=\"{status}\"");
        let series = format!("http_server_requests_total{{{labels}}} 1\n");
        assert!(metrics.text().contains(&series), "{series}{}", metrics.text());
    }
    // They are measured like all requests that are refused. The one that was late has waited for
    // its content, and the others for nothing.
    for (route, count) in [("/notes/{id}", 2), ("/files", 1)] {
        let labels = format!("method=\"POST\",route=\"{route}\"");
        let series = format!("http_server_request_duration_seconds_count{{{labels}}} {count}\n");
        assert!(metrics.text().contains(&series), "{series}{}", metrics.text());
    }
    let labels = "method=\"POST\",route=\"/notes/{id}\",phase=\"content\"";
    let series = format!("http_server_request_phase_seconds_count{{{labels}}} 1\n");
    assert!(metrics.text().contains(&series), "{series}{}", metrics.text());
}

#[test]
fn how_long_a_late_request_has_waited_is_known_if_requests_are_measured() {
    let log = Log::default();
    let app = App::new().post("/", |text: String| text).metrics("/metrics");
    let app = start(app.with(Logger::new().json().to(log.clone())));
    for input in ["POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", "POST / HT"] {
        let mut client = Client::connect(app.local_addr());
        client.send(input);
        assert_eq!(client.response().status, 408);
        let line = log.take();
        let micros = line["duration_us"].as_u64().unwrap();
        assert!((150_000..30_000_000).contains(&micros), "{line}");
        let phase = if input.contains("\r\n") { "content_us" } else { "head_us" };
        assert!(line[phase].as_u64().unwrap() >= 150_000, "{line}");
    }
}

#[test]
fn the_query_is_left_out_and_a_proxy_names_the_client() {
    let log = Log::default();
    let app = start(
        App::new()
            .post("/", |text: String| text)
            .trust_proxies(Proxies::loopback())
            .with(Logger::new().json().without_query().to(log.clone())),
    );
    let forwarded = "X-Forwarded-For: 192.0.2.7\r\nContent-Length: 99999999\r\n\r\n";
    for (input, client_ip) in [
        (format!("POST /?planted HTTP/1.1\r\nHost: a\r\n{forwarded}"), Some("192.0.2.7")),
        // The field that names the client was not read, and the proxy is not the client.
        ("POST /?planted HTTP/9.9\r\nHost: a\r\n\r\n".to_owned(), None),
    ] {
        let mut client = Client::connect(app.local_addr());
        client.send(&input).response();
        let line = log.take();
        assert_eq!(line["client"].as_str(), client_ip, "{line}");
        assert!(line["path"] == json!("/") && !line.to_string().contains("planted"), "{line}");
    }
}

#[test]
fn a_request_without_tls_has_a_line_if_tls_is_expected() {
    let (log, authority) = (Log::default(), Authority::new());
    let tls = authority.issue("localhost", &["localhost"]).tls();
    let app = App::new().get("/", || "hi").with(Logger::new().json().to(log.clone()));
    let app = app.start_on(Listen::new().https("127.0.0.1:0", tls)).unwrap();
    for (input, path) in
        [("GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n", Some("/a?b")), ("EHLO mail\r\n", None)]
    {
        let mut client = Client::connect(app.local_addr());
        assert_eq!(client.send(input).response().status, 400);
        let line = log.take();
        assert_eq!(line["status"], json!(400), "{line}");
        assert_eq!(line["error"], json!("refused: request without TLS"), "{line}");
        assert_eq!(line["client"], json!("127.0.0.1"), "{line}");
        assert_eq!(line["path"].as_str(), path, "{line}");
    }
}

#[test]
fn the_response_and_the_line_have_the_same_id() {
    let log = Log::default();
    let ids = || RequestIds::new().trust_incoming(true);
    let app = App::new().post("/notes/{id}", |text: String| text).get("/", || "hi");
    let app = start(app.with(ids()).with(Logger::new().json().to(log.clone())));
    let inputs = rows().map(|Row(input, ..)| input);
    for input in inputs.iter().filter(|input| !input.contains("/files")) {
        let mut client = Client::connect(app.local_addr());
        let response = client.send(input).response();
        let line = log.take();
        let id = response.header("x-request-id").map(str::to_owned).unwrap_or_default();
        assert!(id.len() == 32 && line["request_id"] == json!(id), "{input:.60}: {line}");
    }
    // An ID of a proxy is passed on.
    let mut client = Client::connect(app.local_addr());
    let head = "POST /notes/17 HTTP/1.1\r\nHost: a\r\nX-Request-Id: from-proxy\r\n";
    let response = client.send(format!("{head}Content-Length: 9\r\n\r\n")).response();
    assert_eq!(response.header("x-request-id"), Some("from-proxy"));
    assert_eq!(log.take()["request_id"], json!("from-proxy"));

    let authority = Authority::new();
    let tls = authority.issue("localhost", &["localhost"]).tls();
    let app = App::new().get("/", || "hi").with(ids().header("x-id"));
    let app = app.with(Logger::new().json().to(log.clone()));
    let app = app.start_on(Listen::new().https("127.0.0.1:0", tls)).unwrap();
    let mut client = Client::connect(app.local_addr());
    let response = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
    assert!(response.text().starts_with("This port expects TLS"), "{}", response.text());
    assert_eq!(json!(response.header("x-id").unwrap()), log.take()["request_id"]);
}

/// Middleware whose log has stopped.
struct StuckLog(Gate);

impl Middleware for StuckLog {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        Ok(next.run(request))
    }

    fn incomplete(&self, _: &Incomplete<'_>, _: Context<'_>) {
        self.0.pass();
    }
}

#[test]
fn a_log_that_blocks_stalls_no_loop() {
    let gate = Gate::new();
    let app = App::new().get("/", || "hi").with(StuckLog(gate.clone()));
    let app = app.config(ServerConfig::default().event_loops(1)).start("127.0.0.1:0").unwrap();
    let mut before = Client::connect(app.local_addr());
    before.get("/");
    let mut bad: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = Client::connect(app.local_addr());
            client.send("no request\r\n\r\n");
            client
        })
        .collect();
    gate.holds(1);
    for _ in 0..20 {
        assert_eq!(before.get("/").text(), "hi");
        assert_eq!(Client::connect(app.local_addr()).get("/").text(), "hi");
    }
    gate.open();
    for client in &mut bad {
        assert_eq!(client.response().status, 400);
    }
}

/// Middleware that panics.
struct Panics;

impl Middleware for Panics {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        Ok(next.run(request))
    }

    fn incomplete(&self, _: &Incomplete<'_>, _: Context<'_>) {
        panic!("planted");
    }
}

#[test]
fn a_panic_of_the_log_is_contained_and_counted() {
    let app = start(App::new().get("/", || "hi").metrics("/metrics").with(Panics));
    for _ in 0..2 {
        let mut client = Client::connect(app.local_addr());
        assert_eq!(client.send("no request\r\n\r\n").response().status, 400);
    }
    assert_eq!(Client::connect(app.local_addr()).get("/").text(), "hi");
    eventually("the panics are counted", || {
        let metrics = Client::connect(app.local_addr()).get("/metrics");
        metrics.text().contains("filoplume_panics_total 2\n")
    });
}
