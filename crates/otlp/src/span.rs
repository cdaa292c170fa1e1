//! A span while it is open, and its encoding.

use std::borrow::Cow;
use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};

use crate::limits::EVENTS_BYTES;
use crate::protobuf;
use crate::value::Value;

/// The target of the spans of `filoplume::middleware::Tracing`, whose fields name the trace.
pub(crate) const REQUEST_TARGET: &str = "filoplume::trace";

/// Flags of a span: the trace is sampled, it is known whether the parent is remote, and the parent
/// is remote.
const SAMPLED: u32 = 0x001;
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The status code of a failed operation.
const ERROR: u64 = 2;

/// What is stored beside a span of `tracing` while it is open.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    /// `None` if the trace is not sampled.
    pub(crate) recording: Option<Recording>,
}

/// What will be exported.
#[derive(Debug)]
pub(crate) struct Recording {
    parent_id: Option<u64>,
    is_parent_remote: bool,
    trace_state: String,
    started: SystemTime,
    clock: Instant,
    name: Cow<'static, str>,
    kind: u64,
    is_error: bool,
    attributes: Vec<(&'static str, Value)>,
    /// The events, encoded when they happen.
    events: Vec<u8>,
    dropped_events: u64,
}

/// The position in a trace that the fields of a request's span name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Position {
    pub(crate) trace_id: Option<u128>,
    pub(crate) span_id: Option<u64>,
    pub(crate) parent_id: Option<u64>,
    pub(crate) is_unsampled: bool,
    pub(crate) trace_state: String,
}

impl Position {
    fn set(&mut self, field: &Field, value: &str) {
        let id = || u64::from_str_radix(value, 16).ok().filter(|id| *id != 0);
        match field.name() {
            "trace_id" => {
                self.trace_id = u128::from_str_radix(value, 16).ok().filter(|id| *id != 0);
            }
            "span_id" => self.span_id = id(),
            "parent_span_id" => self.parent_id = id(),
            "trace_flags" => self.is_unsampled = value == "00",
            "trace_state" => value.clone_into(&mut self.trace_state),
            _ => {}
        }
    }
}

impl Visit for Position {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "trace_id" | "span_id" | "parent_span_id") {
            self.set(field, &format!("{value:?}"));
        }
    }
}

impl Recording {
    pub(crate) fn new(name: &'static str, parent_id: Option<u64>) -> Self {
        Self {
            parent_id,
            is_parent_remote: false,
            trace_state: String::new(),
            started: SystemTime::now(),
            clock: Instant::now(),
            name: Cow::Borrowed(name),
            // Internal.
            kind: 1,
            is_error: false,
            attributes: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
        }
    }

    /// Continues the trace that the fields of a request's span name.
    pub(crate) fn continue_trace(&mut self, position: Position) {
        self.is_parent_remote = position.parent_id.is_some();
        self.parent_id = position.parent_id;
        self.trace_state = position.trace_state;
    }

    /// Sets an attribute. Fields that the crate `tracing-opentelemetry` defines set the name, the
    /// kind or the status instead.
    pub(crate) fn set(&mut self, is_request: bool, name: &'static str, value: Value) {
        match (name, value.as_text()) {
            ("otel.name", Some(text)) => self.name = Cow::Owned(text.to_owned()),
            ("otel.kind", Some(text)) => self.kind = kind(text),
            ("otel.status_code", Some(text)) => self.is_error = text.eq_ignore_ascii_case("error"),
            ("trace_id" | "span_id" | "parent_span_id" | "trace_flags" | "trace_state", _)
                if is_request => {}
            _ => set(&mut self.attributes, name, value),
        }
    }

    /// Adds an event, unless there are too many.
    pub(crate) fn add_event(&mut self, name: &str, attributes: &[(&'static str, Value)]) {
        if self.events.len() >= EVENTS_BYTES {
            self.dropped_events += 1;
            return;
        }
        protobuf::message(&mut self.events, 11, |out| {
            protobuf::fixed64(out, 1, nanoseconds(SystemTime::now()));
            protobuf::bytes(out, 2, name.as_bytes());
            for (key, value) in attributes {
                value.write(out, 3, key);
            }
        });
    }
}

impl OpenSpan {
    /// Encodes the span, which ends now. Returns `None` if it is not sampled.
    pub(crate) fn encode(&self) -> Option<Box<[u8]>> {
        let recording = self.recording.as_ref()?;
        let mut out = Vec::with_capacity(512 + recording.events.len());
        protobuf::bytes(&mut out, 1, &self.trace_id.to_be_bytes());
        protobuf::bytes(&mut out, 2, &self.span_id.to_be_bytes());
        if !recording.trace_state.is_empty() {
            protobuf::bytes(&mut out, 3, recording.trace_state.as_bytes());
        }
        if let Some(parent) = recording.parent_id {
            protobuf::bytes(&mut out, 4, &parent.to_be_bytes());
        }
        protobuf::bytes(&mut out, 5, recording.name.as_bytes());
        protobuf::int(&mut out, 6, recording.kind);
        // The duration is that of the monotonic clock, so that no span ends before it starts.
        let ended = recording.started + recording.clock.elapsed();
        protobuf::fixed64(&mut out, 7, nanoseconds(recording.started));
        protobuf::fixed64(&mut out, 8, nanoseconds(ended));
        for (key, value) in &recording.attributes {
            value.write(&mut out, 9, key);
        }
        out.extend_from_slice(&recording.events);
        if recording.dropped_events > 0 {
            protobuf::int(&mut out, 12, recording.dropped_events);
        }
        if recording.is_error {
            protobuf::message(&mut out, 15, |out| protobuf::int(out, 3, ERROR));
        }
        let remote = if recording.is_parent_remote { IS_REMOTE } else { 0 };
        protobuf::fixed32(&mut out, 16, SAMPLED | KNOWS_REMOTE | remote);
        Some(out.into_boxed_slice())
    }
}

/// Sets an attribute of a span or an event. Their keys are unique: the last value counts.
pub(crate) fn set(attributes: &mut Vec<(&'static str, Value)>, name: &'static str, value: Value) {
    match attributes.iter_mut().find(|(other, _)| *other == name) {
        Some((_, old)) => *old = value,
        None => attributes.push((name, value)),
    }
}

/// Returns the number of a kind; `internal` for any other word.
fn kind(name: &str) -> u64 {
    const KINDS: [&str; 5] = ["internal", "server", "client", "producer", "consumer"];
    KINDS
        .iter()
        .zip(1..)
        .find(|(kind, _)| kind.eq_ignore_ascii_case(name))
        .map_or(1, |found| found.1)
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_of_a_span_take_64_kib_and_at_most_one_event_more() {
        let mut recording = Recording::new("work", None);
        let value = Value::Text("x".repeat(100));
        let mut of_one = 0;
        while recording.dropped_events == 0 {
            let before = recording.events.len();
            recording.add_event("event", &[("text", value.clone())]);
            of_one = of_one.max(recording.events.len() - before);
        }
        let (events, enough) = (recording.events.len(), 64 * 1024);
        assert!((enough..enough + of_one).contains(&events), "{events}");
        recording.add_event("event", &[]);
        assert_eq!((recording.events.len(), recording.dropped_events), (events, 2));
    }
}
