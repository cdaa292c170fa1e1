//! The layer of `tracing-subscriber` that receives spans and events.

use std::fmt;
use std::sync::Arc;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::queue::Queue;
use crate::random::{random, random_trace_id};
use crate::span::{OpenSpan, Position, REQUEST_TARGET, Recording, set};
use crate::value::{Value, Visitor};

/// The target of the access log. Its lines repeat what the span of the request has, and contain the
/// query, which may be secret.
const ACCESS_TARGET: &str = "filoplume::access";

/// A layer for a subscriber of `tracing`, made by [`Otlp::start`](crate::Otlp::start).
///
/// Fields of spans become attributes. These have a special meaning: `otel.name` is the name of the
/// span, `otel.kind` is `server`, `client`, `producer`, `consumer` or `internal`, and
/// `otel.status_code` is `ERROR` if the operation failed. Events become events of their span.
/// Events outside of spans, and the lines of the access log, are not exported.
///
/// Spans and events above the [level](crate::Otlp::level) are ignored. With
/// `layer.with_filter(LevelFilter::INFO)` they are not even created, if no other layer wants them.
pub struct OtlpLayer {
    pub(crate) queue: Arc<Queue>,
    pub(crate) level: Level,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for OtlpLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let metadata = attributes.metadata();
        if *metadata.level() > self.level {
            return;
        }
        let is_request = metadata.target() == REQUEST_TARGET;
        let mut position = Position::default();
        if is_request {
            attributes.record(&mut position);
        }
        let parent = span.scope().skip(1).find_map(|parent| {
            let extensions = parent.extensions();
            let open: &OpenSpan = extensions.get()?;
            Some((open.trace_id, open.span_id, open.recording.is_some()))
        });
        let mut open = match (position.trace_id, position.span_id, parent) {
            (Some(trace_id), Some(span_id), _) => {
                let recording = (!position.is_unsampled).then(|| {
                    let mut recording = Recording::new(metadata.name(), None);
                    recording.continue_trace(position);
                    recording
                });
                OpenSpan { trace_id, span_id, recording }
            }
            (_, _, Some((trace_id, parent_id, is_sampled))) => OpenSpan {
                trace_id,
                span_id: random(),
                recording: is_sampled.then(|| Recording::new(metadata.name(), Some(parent_id))),
            },
            (_, _, None) => OpenSpan {
                trace_id: random_trace_id(),
                span_id: random(),
                recording: Some(Recording::new(metadata.name(), None)),
            },
        };
        if let Some(recording) = &mut open.recording {
            attributes.record(&mut Visitor(|name, value| recording.set(is_request, name, value)));
        }
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let is_request = span.metadata().target() == REQUEST_TARGET;
        // The program's `Debug` runs before the span is locked, because it may log something too.
        let mut recorded = Vec::new();
        values.record(&mut Visitor(|name, value| recorded.push((name, value))));
        let mut extensions = span.extensions_mut();
        let open = extensions.get_mut::<OpenSpan>();
        if let Some(recording) = open.and_then(|open| open.recording.as_mut()) {
            recorded.into_iter().for_each(|(name, value)| recording.set(is_request, name, value));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if *metadata.level() > self.level || metadata.target() == ACCESS_TARGET {
            return;
        }
        let Some(mut scope) = context.event_scope(event) else { return };
        let Some(span) = scope.find(|span| span.extensions().get::<OpenSpan>().is_some()) else {
            return;
        };
        if span.extensions().get::<OpenSpan>().is_none_or(|open| open.recording.is_none()) {
            return;
        }
        // As in `on_record`.
        let mut name = None;
        let mut attributes = vec![
            ("level", Value::Text(metadata.level().as_str().to_owned())),
            ("target", Value::Text(metadata.target().to_owned())),
        ];
        event.record(&mut Visitor(|field, value: Value| match value.as_text() {
            Some(text) if field == "message" => name = Some(text.to_owned()),
            _ => set(&mut attributes, field, value),
        }));
        let mut extensions = span.extensions_mut();
        let open = extensions.get_mut::<OpenSpan>();
        let Some(recording) = open.and_then(|open| open.recording.as_mut()) else { return };
        recording.add_event(name.as_deref().unwrap_or(metadata.name()), &attributes);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let open = span.extensions_mut().remove::<OpenSpan>();
        if let Some(encoded) = open.and_then(|open| open.encode()) {
            self.queue.push(encoded);
        }
    }
}

impl fmt::Debug for OtlpLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpLayer").field("level", &self.level).finish_non_exhaustive()
    }
}
