//! What becomes of the spans of a program.

use tracing::{Level, info_span};

use crate::collector::{Collector, SOON, exporting, otlp};
use crate::decode::{self, Span};

/// Runs a program, and returns the spans that it exports.
fn exported(program: impl FnOnce()) -> Vec<Span> {
    let collector = Collector::start();
    exporting(otlp(&collector.url()), |exporter| {
        program();
        assert!(exporter.flush(SOON));
    });
    decode::request(&collector.next().1).1
}

#[test]
fn spans_of_one_trace_have_its_id_and_their_parents() {
    let spans = exported(|| {
        let outer = info_span!("outer");
        outer.in_scope(|| {
            info_span!("inner").in_scope(|| info_span!("innermost").in_scope(|| ()));
        });
        info_span!(parent: &outer, "explicit").in_scope(|| ());
        drop(outer);
        info_span!("another trace").in_scope(|| ());
    });
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["innermost", "inner", "explicit", "outer", "another trace"]);
    let [innermost, inner, explicit, outer, other] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((&*outer.parent_id, &*other.parent_id), ("", ""));
    assert_eq!(inner.parent_id, outer.span_id);
    assert_eq!(innermost.parent_id, inner.span_id);
    assert_eq!(explicit.parent_id, outer.span_id);
    for span in [innermost, inner, explicit] {
        assert_eq!(span.trace_id, outer.trace_id);
    }
    assert_ne!(other.trace_id, outer.trace_id);
    assert!(spans.iter().all(|span| span.trace_id.len() == 32 && span.span_id.len() == 16));
    assert!(inner.started >= outer.started && inner.ended <= outer.ended);
}

#[test]
fn the_headers_for_outgoing_calls_are_those_of_the_innermost_span() {
    let mut found = Vec::new();
    let spans = exported(|| {
        found.push(filoplume_otlp::traceparent());
        info_span!("outer").in_scope(|| {
            found.push(filoplume_otlp::traceparent());
            info_span!("call").in_scope(|| {
                tracing::debug_span!("above the level")
                    .in_scope(|| found.push(filoplume_otlp::traceparent()));
            });
        });
    });
    let parent = |span: &Span| Some(format!("00-{}-{}-01", span.trace_id, span.span_id));
    assert_eq!(found, [None, parent(&spans[1]), parent(&spans[0])]);
    assert_eq!(filoplume_otlp::traceparent(), None, "there is no subscriber");
}

#[test]
fn fields_become_attributes_of_their_types() {
    let spans = exported(|| {
        let span = info_span!(
            "work",
            otel.name = "the name",
            otel.kind = "client",
            text = "t\u{e4}xt",
            number = -3i64,
            large = u64::MAX,
            ratio = 0.25,
            flag = true,
            later = tracing::field::Empty,
            trace_id = "a field of the program",
        );
        span.record("later", 1);
        span.record("later", 2);
        span.record("otel.status_code", "ERROR");
    });
    let expected = [
        ("text", "t\u{e4}xt"),
        ("number", "-3"),
        ("large", "18446744073709551615"),
        ("ratio", "0.25"),
        ("flag", "true"),
        ("later", "2"),
        ("trace_id", "a field of the program"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    assert_eq!(spans[0].attributes, expected);
    assert_eq!((spans[0].name.as_str(), spans[0].kind), ("the name", 3));
}

#[test]
fn events_belong_to_the_innermost_span_that_is_exported() {
    let spans = exported(|| {
        tracing::info!("outside");
        info_span!("work").in_scope(|| {
            tracing::warn!(items = 3, "found {}", "some");
            tracing::info!(count = 1, level = "of a river", target = 7);
            tracing::debug!("above the level");
            tracing::debug_span!("above the level").in_scope(|| tracing::info!("from below"));
            tracing::info!(target: "filoplume::access", path = "/?s3cret");
        });
    });
    assert_eq!(spans.len(), 1);
    let names: Vec<_> = spans[0].events.iter().map(|(name, _)| name.as_str()).collect();
    let unnamed = names[1];
    assert!(unnamed.starts_with("event "), "{unnamed}");
    assert_eq!(names, ["found some", unnamed, "from below"]);
    let fields = &spans[0].events[0].1;
    assert_eq!((&*fields["items"], &*fields["level"]), ("3", "WARN"));
    // Keys are unique: a program's field replaces one of the layer.
    let fields = &spans[0].events[1].1;
    assert_eq!((&*fields["level"], &*fields["target"]), ("of a river", "7"));
}

/// A value that logs something when it is shown.
struct Logs;

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        tracing::info!("shown");
        f.write_str("a value")
    }
}

#[test]
fn a_value_may_log_something_when_it_is_recorded() {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let spans = exported(|| {
            let span = tracing::info_span!("work", value = tracing::field::Empty);
            let _entered = span.enter();
            span.record("value", tracing::field::debug(Logs));
            tracing::info!(value = ?Logs, "logged");
        });
        let _ = tell.send(spans.len());
    });
    assert_eq!(told.recv_timeout(std::time::Duration::from_secs(30)), Ok(1));
}

#[test]
fn a_span_that_logs_without_end_keeps_a_bounded_number_of_events() {
    let logging = |events: usize| {
        let mut spans = exported(|| {
            info_span!("loop").in_scope(|| {
                for n in 0..events {
                    tracing::info!(n, "{}", "x".repeat(100));
                }
            });
        });
        let span = spans.remove(0);
        (span.events.len(), span.dropped_events)
    };
    let (kept, dropped) = logging(10_000);
    assert!((100..1000).contains(&kept), "{kept}");
    assert_eq!(dropped, 10_000 - kept as u64);
    assert_eq!(logging(kept), (kept, 0));
    assert_eq!(logging(kept + 1), (kept, 1));
}

#[test]
fn the_level_can_be_set_and_the_resource_names_the_service() {
    let collector = Collector::start();
    let otlp =
        otlp(&collector.url()).level(Level::TRACE).header("x-key", "k").resource("zone", "z");
    exporting(otlp, |exporter| {
        tracing::trace_span!("fine").in_scope(|| ());
        assert!(exporter.flush(SOON));
        assert_eq!(exporter.counts().exported, 1);
    });
    let (headers, content) = collector.next();
    assert_eq!(headers.get_str("content-type"), Some("application/x-protobuf"));
    assert_eq!(headers.get_str("x-key"), Some("k"));
    let (resource, spans) = decode::request(&content);
    assert_eq!((&*resource["service.name"], &*resource["zone"]), ("shop", "z"));
    assert_eq!(resource["telemetry.sdk.language"], "rust");
    assert_eq!(spans[0].name, "fine");
}
