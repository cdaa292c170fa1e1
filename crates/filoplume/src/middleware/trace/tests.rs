//! What a subscriber is told about requests, and which traces they belong to.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use super::{Incoming, TraceContext, Tracing};
use crate::middleware::{Logger, RequestIds};
use crate::prelude::*;
use crate::testing::TestResponse;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Fields = BTreeMap<String, String>;

/// What was recorded: the fields of spans and events, each with the name of its span.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, Fields)>>>);

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        record.record(&mut Reader(span.extensions_mut().get_mut().unwrap()));
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        let span = context.event_span(event).map_or("none", |span| span.name());
        self.0.lock().unwrap().push((format!("event in {span}"), fields));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let fields = span.extensions_mut().remove().unwrap();
        self.0.lock().unwrap().push((span.name().to_owned(), fields));
    }
}

/// Asks an app, and returns what a subscriber was told.
fn watch(app: App, ask: impl FnOnce(&crate::testing::TestClient)) -> Vec<(String, Fields)> {
    let seen = Seen::default();
    tracing::subscriber::with_default(Registry::default().with(seen.clone()), || {
        ask(&app.test());
    });
    let seen = std::mem::take(&mut *seen.0.lock().unwrap());
    seen.into_iter().filter(|(name, _)| name == "request" || name.contains("in request")).collect()
}

fn app() -> App {
    App::new()
        .get("/users/{id}", |trace: TraceContext| {
            tracing::info!("inside");
            trace.traceparent()
        })
        .get("/refused", || Err::<(), _>(Error::conflict("no")))
        .get("/failed", || Err::<(), _>(Error::unavailable("later")))
        .get("/panics", || -> &str { panic!("out of tea") })
        .with(Tracing::new().incoming(Incoming::Trust))
        .with(RequestIds::new())
}

#[test]
fn a_span_has_the_fields_of_the_conventions_and_events_are_inside() {
    let seen = watch(app(), |client| {
        client
            .get("/users/17-s3cret?token=s3cret")
            .header("traceparent", PARENT)
            .header("tracestate", "vendor=1")
            .header("authorization", "Bearer s3cret")
            .header("cookie", "session=s3cret")
            .send()
            .assert_status(200);
    });
    let [(event, _), (_, fields)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(event, "event in request");
    let expected = [
        ("otel.name", "GET /users/{id}"),
        ("otel.kind", "server"),
        ("trace_id", TRACE),
        ("parent_span_id", "00f067aa0ba902b7"),
        ("trace_flags", "01"),
        ("trace_state", "vendor=1"),
        ("http.request.method", "GET"),
        ("http.route", "/users/{id}"),
        ("http.response.status_code", "200"),
        ("url.scheme", "http"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
    ];
    for (name, value) in expected {
        assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(fields["span_id"].len(), 16);
    assert_eq!(fields["request_id"].len(), 32);
    for absent in ["error.type", "otel.status_code", "url.path"] {
        assert_eq!(fields.get(absent), None, "{absent}");
    }
    assert!(!format!("{seen:?}").contains("s3cret"), "{seen:?}");
}

#[test]
fn only_failures_of_the_server_are_errors() {
    for (path, status, error) in [
        ("/refused", "409", None),
        ("/failed", "503", Some("503")),
        ("/panics", "500", Some("panic")),
        ("/nowhere", "404", None),
    ] {
        let seen = watch(app(), |client| drop(client.get(path).send()));
        let (_, fields) = seen.iter().find(|(name, _)| name == "request").unwrap();
        assert_eq!(fields["http.response.status_code"], status);
        assert_eq!(fields.get("error.type").map(String::as_str), error, "{path}");
        assert_eq!(fields.contains_key("otel.status_code"), error.is_some(), "{path}");
    }
}

#[test]
fn a_client_can_choose_neither_the_name_of_a_span_nor_the_path_in_it() {
    let seen = watch(app(), |client| {
        drop(client.raw("S3CRET /s3cret HTTP/1.1\r\nHost: a\r\n\r\n"));
    });
    let (_, fields) = &seen[0];
    assert_eq!(fields["otel.name"], "HTTP");
    assert_eq!(fields["http.request.method"], "_OTHER");
    assert!(!format!("{seen:?}").to_lowercase().contains("s3cret"), "{seen:?}");
}

#[test]
fn a_path_is_recorded_if_wanted_and_never_its_query() {
    let app = App::new().get("/a/{b}", || "hi").with(Tracing::new().record_path(true));
    let seen = watch(app, |client| drop(client.get("/a/x?token=s3cret").send()));
    assert_eq!(seen[0].1["url.path"], "/a/x");
    assert!(!format!("{seen:?}").contains("s3cret"));
}

/// Returns the ID of the trace, whether it is sampled, and the `tracestate` that is passed on.
fn ask(tracing: Tracing, headers: &[(&str, &str)]) -> (String, bool, String) {
    let app = App::new()
        .get("/", |trace: TraceContext| {
            let state = trace.tracestate().unwrap_or("none").to_owned();
            format!("{} {} {state}", trace.trace_id(), trace.is_sampled())
        })
        .with(tracing);
    let client = app.test();
    let request = client.get("/");
    let response: TestResponse =
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).send();
    let text = response.text().to_owned();
    let parts: Vec<&str> = text.split(' ').collect();
    (parts[0].to_owned(), parts[1] == "true", parts[2].to_owned())
}

#[test]
fn the_caller_decides_only_what_it_is_trusted_with() {
    let rows = [
        (Incoming::Ignore, false, false, "none"),
        (Incoming::Continue, true, false, "none"),
        (Incoming::Trust, true, true, "vendor=1"),
    ];
    for (incoming, is_continued, is_sampled, state) in rows {
        let tracing = Tracing::new().incoming(incoming).sample_ratio(0.0);
        let found = ask(tracing, &[("traceparent", PARENT), ("tracestate", "vendor=1")]);
        assert_eq!(
            (found.0 == TRACE, found.1, found.2.as_str()),
            (is_continued, is_sampled, state)
        );
    }
    let unsampled = PARENT.replace("-01", "-00");
    let tracing = Tracing::new().incoming(Incoming::Trust);
    assert!(!ask(tracing, &[("traceparent", &unsampled)]).1);
}

#[test]
fn an_invalid_or_ambiguous_header_begins_a_trace_without_tracestate() {
    let rows: [&[(&str, &str)]; 4] = [
        &[("tracestate", "a=1")],
        &[("traceparent", "00-0-0-01"), ("tracestate", "a=1")],
        &[("traceparent", PARENT), ("traceparent", PARENT), ("tracestate", "a=1")],
        &[("traceparent", &PARENT.to_uppercase()), ("tracestate", "a=1")],
    ];
    for headers in rows {
        let found = ask(Tracing::new().incoming(Incoming::Trust), headers);
        assert!(found.0 != TRACE && found.1 && found.2 == "none", "{headers:?}: {found:?}");
    }
    let valid_parent = [("traceparent", PARENT), ("tracestate", "A=1")];
    let found = ask(Tracing::new().incoming(Incoming::Trust), &valid_parent);
    assert_eq!((found.0.as_str(), found.2.as_str()), (TRACE, "none"));
}

#[test]
fn about_the_wanted_share_is_sampled() {
    let tracing = Tracing::new().sample_ratio(0.25);
    let sampled = (0..10_000).filter(|_| tracing.samples()).count();
    // Twelve standard deviations.
    assert!((1980..=3020).contains(&sampled), "{sampled}");
    assert!(!(0..1000).any(|_| Tracing::new().sample_ratio(0.0).samples()));
}

#[test]
fn a_ratio_that_is_none_is_reported_at_the_start() {
    for ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let app = App::new().get("/", || "hi").with(Tracing::new().sample_ratio(ratio));
        let error = format!("{:?}", app.build().unwrap_err());
        assert!(error.contains("the ratio of sampled traces"), "{error}");
    }
    let app = App::new().get("/", |_: TraceContext| "hi");
    assert!(format!("{:?}", app.build().unwrap_err()).contains("middleware::Tracing::new()"));
}

#[test]
fn the_logger_has_the_ids_on_either_side() {
    let traced = |app: App| app.with(Tracing::new()).with(RequestIds::new());
    let shared = Seen::default();
    let logger = || Logger::new().json().to(Lines(shared.clone()));
    let hello = || App::new().get("/", |trace: TraceContext| trace.trace_id().to_string());
    for app in [traced(hello()).with(logger()), traced(hello().with(logger()))] {
        let id = app.test().get("/").send().text().to_owned();
        let lines = std::mem::take(&mut *shared.0.lock().unwrap());
        let line: serde_json::Value = serde_json::from_str(&lines[0].0).unwrap();
        assert_eq!(line["trace_id"], id);
        assert_eq!(line["request_id"].as_str().unwrap().len(), 32);
    }
}

/// A sink for the lines of a logger.
struct Lines(Seen);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let line = String::from_utf8(bytes.to_vec()).unwrap();
        self.0.0.lock().unwrap().push((line, Fields::new()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Notes the trace of a response to a refused request, as a logger outside does.
#[cfg(feature = "spool")]
struct Outside(Arc<Mutex<Option<String>>>);

#[cfg(feature = "spool")]
impl Middleware for Outside {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        Ok(next.run(request))
    }

    fn refused(&self, request: &Request, next: crate::core::refusal::NextRefused<'_>) -> Response {
        let response = next.run(request);
        let trace = response.extensions().get().map(TraceContext::trace_id);
        *self.0.lock().unwrap() = trace.map(|id| id.to_string());
        response
    }

    fn configure(&self, _: &mut crate::core::options::RouteOptions) {}
}

/// There is no room here for a file in which a content waits, so the server refuses the request.
#[cfg(feature = "spool")]
#[test]
fn a_refused_request_has_a_span() {
    let outside = Arc::default();
    let app = App::new()
        .route("/files", post(|_: Body| "never called").spooled())
        .config(ServerConfig::default().spooled_bytes_max(1))
        .with(Outside(Arc::clone(&outside)))
        .with(RequestIds::new().trust_incoming(true))
        .with(Tracing::new().incoming(Incoming::Trust));
    let seen = watch(app, |client| {
        let head = "POST /files HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n";
        let long = "x".repeat(4 << 20);
        let answer = client.raw(format!(
            "{head}Traceparent: {PARENT}\r\nX-Request-Id: 17\r\n\r\n400000\r\n{long}\r\n0\r\n\r\n"
        ));
        assert!(answer.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&answer));
    });
    let [(_, fields)] = seen.as_slice() else { panic!("{seen:?}") };
    for (name, value) in [
        ("otel.name", "POST /files"),
        ("trace_id", TRACE),
        ("http.route", "/files"),
        ("http.response.status_code", "503"),
        ("error.type", "503"),
        ("request_id", "17"),
        ("filoplume.refusal", "no disk space for the content"),
    ] {
        assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name}: {fields:?}");
    }
    assert!(!fields["filoplume.refusal.because"].is_empty(), "{fields:?}");
    assert_eq!(outside.lock().unwrap().as_deref(), Some(TRACE));
}

/// Gives the events and spans of all threads to one subscriber.
struct Watched(tracing::Dispatch);

impl Middleware for Watched {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        Ok(tracing::dispatcher::with_default(&self.0, || next.run(request)))
    }
}

#[test]
fn the_wait_for_a_permit_is_in_the_span() {
    let seen = Seen::default();
    let watched = Watched(tracing::Dispatch::new(Registry::default().with(seen.clone())));
    let permits = filoplume_runtime::Permits::new("seat", 1);
    let (entered, has_entered) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let handler = move || {
        let _ = entered.send(());
        let _ = released.lock().unwrap().recv();
    };
    let app = App::new()
        .route("/", get(handler).uses(&permits))
        .with(watched)
        .with(Tracing::new())
        .start("127.0.0.1:0")
        .unwrap();
    let ask = || {
        let mut stream = std::net::TcpStream::connect(app.local_addr()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        stream
    };
    let first = ask();
    has_entered.recv().unwrap();
    let second = ask();
    let end = Instant::now() + Duration::from_secs(20);
    while app.server().metrics().is_none_or(|metrics| metrics.waiting == 0) {
        assert!(Instant::now() < end, "it does not wait");
        std::thread::yield_now();
    }
    // The second request waits at least this long.
    std::thread::sleep(Duration::from_millis(2));
    release.send(()).unwrap();
    release.send(()).unwrap();
    for mut stream in [first, second] {
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    app.shutdown();
    let seen = seen.0.lock().unwrap();
    let queued = |at: usize| seen[at].1.get("filoplume.queued_us").map(|us| us.parse::<u64>());
    assert_eq!(seen.len(), 2);
    assert_eq!(queued(0), None, "it did not wait");
    assert!(queued(1).unwrap().unwrap() > 1000, "{seen:?}");
}

#[test]
fn a_version_is_named_without_its_protocol() {
    assert_eq!(super::span::version_of(filoplume_runtime::Version::Http10), "1.0");
    assert_eq!(super::span::version_of(filoplume_runtime::Version::Http11), "1.1");
}
