//! Requests of an app whose spans are exported.

use filoplume::middleware::{Incoming, Logger, RequestIds, TraceContext, Tracing};
use filoplume::prelude::*;

use crate::collector::{Collector, SOON, exporting, otlp};
use crate::decode::{self, Span};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn app(tracing: Tracing) -> App {
    App::new()
        .get("/users/{id}", |trace: TraceContext| {
            tracing::info_span!("query", table = "users").in_scope(|| tracing::info!("found"));
            trace.span_id().to_string()
        })
        .post("/failed", |_: String| Err::<(), _>(Error::internal("broken")))
        .with(tracing)
        .with(RequestIds::new())
        .with(Logger::new())
}

/// Sends requests to an app. Returns its exported spans, and the content of the export, which ends
/// with one more span.
fn exported(app: App, ask: impl FnOnce(&filoplume::testing::TestClient)) -> (Vec<Span>, Vec<u8>) {
    let collector = Collector::start();
    exporting(otlp(&collector.url()), |exporter| {
        ask(&app.test());
        tracing::info_span!("end").in_scope(|| ());
        assert!(exporter.flush(SOON));
    });
    let content = collector.next().1;
    let mut spans = decode::request(&content).1;
    assert_eq!(spans.pop().unwrap().name, "end");
    (spans, content)
}

#[test]
fn a_request_continues_the_trace_of_its_caller_down_to_the_spans_of_the_handler() {
    let mut own = String::new();
    let (spans, _) = exported(app(Tracing::new().incoming(Incoming::Trust)), |client| {
        let response = client
            .get("/users/17")
            .header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"))
            .header("tracestate", "vendor=1")
            .send();
        own = response.text().to_owned();
    });
    let [query, request] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((&*request.trace_id, &*query.trace_id), (TRACE, TRACE));
    assert_eq!(request.span_id, own, "the ID that the handler passes on");
    assert_eq!((&*request.parent_id, &*request.state), ("00f067aa0ba902b7", "vendor=1"));
    assert_eq!(query.parent_id, own);
    assert_eq!((&*request.name, request.kind, request.status), ("GET /users/{id}", 2, 0));
    assert_eq!(request.flags, 0x301, "sampled, and the parent is remote");
    assert_eq!(query.flags, 0x101);
    assert_eq!(request.attributes["http.response.status_code"], "200");
    assert_eq!(request.attributes["http.route"], "/users/{id}");
    assert_eq!(request.attributes["request_id"].len(), 32);
    for absent in ["trace_id", "span_id", "otel.name", "otel.kind", "error.type"] {
        assert!(!request.attributes.contains_key(absent), "{absent}");
    }
    assert_eq!(query.events[0].0, "found");
}

#[test]
fn a_request_that_begins_a_trace_has_no_parent_elsewhere() {
    let (spans, _) = exported(app(Tracing::new()), |client| {
        client.get("/users/17").send().assert_status(200);
    });
    let request = spans.last().unwrap();
    assert_eq!((&*request.parent_id, request.flags), ("", 0x101));
}

#[test]
fn a_trace_that_is_not_sampled_is_not_exported() {
    let (spans, _) = exported(app(Tracing::new().sample_ratio(0.0)), |client| {
        client.get("/users/17").send().assert_status(200);
    });
    assert!(spans.is_empty(), "{spans:?}");
}

#[test]
fn a_failed_request_is_an_error_and_has_its_cause_as_an_event() {
    let (spans, _) = exported(app(Tracing::new()), |client| {
        client.post("/failed").body("x").send().assert_status(500);
    });
    assert_eq!((spans[0].status, &*spans[0].attributes["error.type"]), (2, "500"));
    assert_eq!(spans[0].events[0].0, "a request failed");
}

#[test]
fn no_secret_of_a_request_is_exported() {
    let (spans, content) = exported(app(Tracing::new().incoming(Incoming::Trust)), |client| {
        for path in ["/users/s3cret?token=s3cret", "/s3cret?s3cret", "/users"] {
            let request = client
                .get(path)
                .header("authorization", "Bearer s3cret")
                .header("cookie", "session=s3cret")
                .header("user-agent", "s3cret")
                .header("referer", "https://example.org/s3cret")
                .header("traceparent", "00-s3cret");
            drop(request.send());
        }
        drop(client.post("/failed?s3cret").body("s3cret").send());
        drop(client.raw("S3CRET / HTTP/1.1\r\nHost: s3cret\r\n\r\n"));
    });
    assert!(spans.len() >= 5, "{spans:?}");
    let text = String::from_utf8_lossy(&content).to_lowercase();
    assert!(!text.contains("s3cret"), "{text}");
}
