//! Requests that the engine refuses, and what middleware adds to their responses.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use filoplume::Permits;
use filoplume::middleware::{Cors, Incoming, Logger, NextRefused, SecurityHeaders, Tracing};
use filoplume::prelude::*;
use filoplume::routing::Route;

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request with an `Accept`, and returns the whole response.
fn ask(address: SocketAddr, request: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: t\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends requests while another request holds the only permit.
fn ask_while_full(app: App, requests: &[(&str, &str)]) -> Vec<String> {
    ask_routed_while_full(|route| app.route("/query", route), requests)
}

/// As [`ask_while_full`], for an app that puts the route where it wants. The requests have its
/// path.
fn ask_routed_while_full(app: impl FnOnce(Route) -> App, requests: &[(&str, &str)]) -> Vec<String> {
    let permits = Permits::new("database", 1);
    let (begun, has_begun) = mpsc::channel();
    let (ends, may_end) = mpsc::channel();
    let may_end = Mutex::new(may_end);
    let stuck = get(move || {
        let _ = begun.send(());
        let _ = may_end.lock().unwrap().recv_timeout(PATIENCE);
    });
    let config = ServerConfig::default().queue_timeout(Duration::from_millis(20));
    let app = app(stuck.uses(&permits).on_pool()).config(config);
    let app = app.start("127.0.0.1:0").unwrap();
    let address = app.local_addr();
    let path = requests[0].0.split('?').next().unwrap().to_owned();
    let first = std::thread::spawn(move || ask(address, &path, "*/*"));
    has_begun.recv_timeout(PATIENCE).expect("the handler is called");
    let answers = requests.iter().map(|(request, accept)| ask(address, request, accept)).collect();
    ends.send(()).unwrap();
    assert!(first.join().unwrap().starts_with("HTTP/1.1 20"));
    app.shutdown();
    answers
}

/// Returns the values of a header of a response.
fn values(answer: &str, header: &str) -> Vec<String> {
    let fields = answer.lines().filter_map(|line| line.strip_prefix(header)?.strip_prefix(": "));
    fields.map(str::to_owned).collect()
}

/// Regression: the client got an empty 503, and so did developers.
#[test]
fn refusals_of_the_engine_look_like_errors_of_the_app() {
    let requests = [
        ("GET /query", "*/*"),
        ("GET /query", "text/html"),
        ("GET /query", "text/plain"),
        ("HEAD /query", "*/*"),
    ];
    let answers = ask_while_full(App::new(), &requests);
    for answer in &answers {
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: "),
            "{answer}"
        );
        assert!(answer.contains("vary: accept\r\n") && !answer.contains("database"), "{answer}");
    }
    assert!(answers[0].contains("content-type: application/problem+json"), "{}", answers[0]);
    assert!(
        answers[0].ends_with(r#"{"title":"Service Unavailable","status":503}"#),
        "{}",
        answers[0]
    );
    assert!(answers[1].contains("<h1><span>503</span> Service Unavailable</h1>"), "{}", answers[1]);
    assert!(answers[2].ends_with("\r\n\r\n503 Service Unavailable\n"), "{}", answers[2]);
    assert!(answers[3].ends_with("\r\n\r\n"), "{}", answers[3]);

    let answers = ask_while_full(App::new().development(true), &requests[..2]);
    for answer in &answers {
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: "),
            "{answer}"
        );
        for text in [
            "no thread or permit would be free in time",
            "0 of 1 permits",
            "database",
            "queue_timeout",
        ] {
            assert!(answer.contains(text), "{text}: {answer}");
        }
    }
}

#[test]
fn a_refused_request_has_an_id() {
    let ids = middleware::RequestIds::new;
    let is_new = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let sent = [("GET /query", "*/*\r\nX-Request-Id: mine\r\nTrace: its"), ("GET /query", "*/*")];
    for is_development in [false, true] {
        let app = || App::new().development(is_development);
        let answers = ask_while_full(app().with(ids()), &sent);
        let found: Vec<_> = answers.iter().map(|answer| values(answer, "x-request-id")).collect();
        let [[first], [second]] = [&found[0][..], &found[1][..]] else { panic!("{answers:?}") };
        assert!(is_new(first) && is_new(second) && first != second, "{found:?}");

        let answers = ask_while_full(app().with(ids().trust_incoming(true)), &sent);
        assert_eq!(values(&answers[0], "x-request-id"), ["mine"]);
        assert!(is_new(&values(&answers[1], "x-request-id")[0]), "{answers:?}");

        // The outermost middleware determines the ID, as for other requests.
        let renamed = app().with(ids().header("trace").trust_incoming(true)).with(ids());
        let answers = ask_while_full(renamed, &sent[..1]);
        assert_eq!(values(&answers[0], "trace"), ["its"]);
        assert_eq!(values(&answers[0], "x-request-id"), ["its"]);

        let answers = ask_while_full(app(), &sent);
        assert!(answers.iter().all(|answer| values(answer, "x-request-id").is_empty()));
    }
}

#[test]
fn the_app_can_present_refusals_and_may_fail() {
    let requests = [("GET /query", "*/*"), ("GET /query", "*/*")];
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let app = App::new().present_errors(move |error, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(Response::from(format!("oops: {}", error.status().as_u16())))
    });
    for answer in ask_while_full(app, &requests) {
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("oops: 503"), "{answer}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 3, "a flood does not call it again");

    for answer in
        ask_while_full(App::new().present_errors(|_, _| panic!("in the presenter")), &requests)
    {
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("problem+json"), "{answer}");
    }
}

#[test]
fn a_content_without_memory_is_refused_in_the_same_form() {
    for (is_development, shown) in [
        (false, r#"{"title":"Service Unavailable","status":503}"#),
        (true, "of the 200000 bytes of `ServerConfig::memory_max`"),
    ] {
        let mut app_of_mode = App::new().post("/", |text: String| text.len().to_string());
        app_of_mode = app_of_mode
            .config(ServerConfig::default().memory_max(200_000))
            .development(is_development);
        let app = app_of_mode.start("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(app.local_addr()).unwrap();
        write!(stream, "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n").unwrap();
        stream.write_all(&[b'x'; 600_000]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1\r\n"),
            "{answer}"
        );
        assert!(answer.contains("connection: close\r\n") && answer.contains(shown), "{answer}");
        app.shutdown();
    }
}

/// Appends its name to the responses to refused requests, and to no others.
struct Marks(&'static str);

impl Middleware for Marks {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        Ok(next.run(request))
    }

    fn refused(&self, request: &Request, next: NextRefused<'_>) -> Response {
        assert_eq!(next.context().route(), Some("/api/query"));
        assert_eq!(next.refused().reason(), filoplume::Refusal::Overloaded);
        let mut response = next.run(request);
        response.add_header("x-mark", self.0).unwrap();
        response
    }
}

#[test]
fn middleware_adds_to_the_response_from_the_innermost_to_the_outermost() {
    let app = |route: Route| {
        let api = Router::new().route("/query", route.with(Marks("route"))).with(Marks("router"));
        App::new().nest("/api", api).with(Marks("app")).with(|request: Request, next: Next<'_>| {
            let mut response = next.run(request);
            response.add_header("x-mark", "handled")?;
            Ok::<_, Error>(response)
        })
    };
    let [answer] = &ask_routed_while_full(app, &[("GET /api/query", "*/*")])[..] else { panic!() };
    assert_eq!(values(answer, "x-mark"), ["route", "router", "app"], "{answer}");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: "), "{answer}");
}

#[test]
fn middleware_can_neither_change_the_status_nor_break_the_refusal() {
    struct Fails(bool);

    impl Middleware for Fails {
        fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
            Ok(next.run(request))
        }

        fn refused(&self, request: &Request, next: NextRefused<'_>) -> Response {
            assert!(!self.0, "it panics");
            let mut response = next.run(request);
            response.set_status(200);
            response
        }
    }

    for panics in [false, true] {
        for answer in ask_while_full(App::new().with(Fails(panics)), &[("GET /query", "*/*")]) {
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("retry-after: "), "{answer}");
            assert_eq!(answer.contains("problem+json"), !panics, "{answer}");
        }
    }
}

/// Without these headers, a script in a browser cannot tell an overload from a broken network.
#[test]
fn scripts_may_read_a_refusal_and_it_has_the_security_headers() {
    let cors = || Cors::new().allow_origin("https://app.example").expose_headers(["retry-after"]);
    let security = SecurityHeaders::new().content_security_policy("script-src 'nonce-{nonce}'");
    let requests = [
        ("GET /query", "*/*\r\nOrigin: https://app.example"),
        ("GET /query", "*/*\r\nOrigin: https://evil.example"),
    ];
    let answers = ask_while_full(App::new().with(cors()).with(security), &requests);
    let [allowed, other] = &answers[..] else { panic!() };
    assert_eq!(values(allowed, "access-control-allow-origin"), ["https://app.example"]);
    assert_eq!(values(allowed, "access-control-expose-headers"), ["retry-after"]);
    assert!(values(other, "access-control-allow-origin").is_empty(), "{other}");
    for answer in &answers {
        assert!(values(answer, "vary").iter().any(|vary| vary.contains("Origin")), "{answer}");
        assert_eq!(values(answer, "x-content-type-options"), ["nosniff"]);
        let policy = values(answer, "content-security-policy").concat();
        assert!(policy.contains("'nonce-") && !policy.contains("{nonce}"), "{policy}");
    }
    assert_ne!(
        values(allowed, "content-security-policy"),
        values(other, "content-security-policy"),
        "a nonce is used once"
    );
}

/// The text that is logged.
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

#[test]
fn a_refused_request_has_a_line_in_the_access_log_with_its_ids() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let headers = format!("*/*\r\nTraceparent: 00-{TRACE}-00f067aa0ba902b7-01");
    for (is_first, is_measured) in [(false, true), (true, true), (false, false)] {
        let log = Log::default();
        let logger = Logger::new().json().without_query().to(log.clone());
        let tracing = Tracing::new().incoming(Incoming::Trust);
        let ids = middleware::RequestIds::new();
        let mut app = App::new();
        if is_measured {
            app = app.slow_after(Duration::from_secs(9));
        }
        app = if is_first {
            app.with(logger).with(tracing).with(ids)
        } else {
            app.with(ids).with(tracing).with(logger)
        };
        let answers = ask_while_full(app, &[("GET /query?token=s3cret", &headers)]);
        let [id] = &values(&answers[0], "x-request-id")[..] else { panic!("{answers:?}") };
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        // The second line is that of the request that held the permit.
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [line, _] = &lines[..] else { panic!("{text}") };
        assert_eq!((&line["method"], &line["path"]), (&"GET".into(), &"/query".into()), "{text}");
        assert_eq!((&line["route"], &line["status"]), (&"/query".into(), &503.into()), "{text}");
        assert_eq!(line["request_id"], id.as_str(), "{text}");
        assert_eq!(line["trace_id"], TRACE, "{text}");
        let error = line["error"].as_str().unwrap();
        assert!(error.starts_with("refused: ") && error.len() > 12, "{text}");
        assert!(line["bytes"].as_u64().unwrap() > 10, "{text}");
        let waited = line["queue_us"].as_u64().unwrap_or(0);
        assert_eq!(waited >= 15_000, is_measured, "it may wait for 20 ms: {text}");
        assert!(line["duration_us"].as_u64().unwrap() >= waited, "{text}");
        assert!(!text.contains("s3cret"));
    }
}
