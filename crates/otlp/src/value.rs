//! Values of fields, and how `tracing` passes them on.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};

use crate::limits::VALUE_BYTES;
use crate::protobuf;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Bool(bool),
    Int(i64),
    Double(f64),
}

/// Receives the fields of a span or an event.
pub(crate) struct Visitor<F>(pub(crate) F);

impl Value {
    fn of_text(text: &str) -> Self {
        let mut kept = Kept::default();
        let _ = kept.write_str(text);
        Self::Text(kept.0)
    }

    fn of_display(value: fmt::Arguments<'_>) -> Self {
        let mut kept = Kept::default();
        // An error only says that the rest was cut.
        let _ = kept.write_fmt(value);
        Self::Text(kept.0)
    }

    /// Returns the text, if it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Writes a `KeyValue` as a field of a message.
    pub(crate) fn write(&self, out: &mut Vec<u8>, field: u32, key: &str) {
        protobuf::message(out, field, |out| {
            protobuf::bytes(out, 1, key.as_bytes());
            protobuf::message(out, 2, |out| match self {
                Self::Text(text) => protobuf::bytes(out, 1, text.as_bytes()),
                Self::Bool(value) => protobuf::int(out, 2, u64::from(*value)),
                // Two's complement.
                Self::Int(value) => protobuf::int(out, 3, u64::from_ne_bytes(value.to_ne_bytes())),
                Self::Double(value) => protobuf::fixed64(out, 4, value.to_bits()),
            });
        });
    }
}

/// The beginning of a text. Writing fails when it is full, so that the rest is not even formatted.
#[derive(Default)]
struct Kept(String);

impl fmt::Write for Kept {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(VALUE_BYTES - self.0.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

impl<F: FnMut(&'static str, Value)> Visit for Visitor<F> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        (self.0)(field.name(), Value::Double(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        (self.0)(field.name(), Value::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value =
            i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Int);
        (self.0)(field.name(), value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        let value =
            i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Int);
        (self.0)(field.name(), value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        let value =
            i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Int);
        (self.0)(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        (self.0)(field.name(), Value::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        (self.0)(field.name(), Value::of_text(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        (self.0)(field.name(), Value::of_display(format_args!("{value}")));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        (self.0)(field.name(), Value::of_display(format_args!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "\u{e4}".repeat(VALUE_BYTES);
        for value in [Value::of_text(&text), Value::of_display(format_args!("x{text}"))] {
            let kept = value.as_text().unwrap();
            assert!(kept.len() <= VALUE_BYTES && kept.len() > VALUE_BYTES - 2, "{}", kept.len());
        }
    }

    #[test]
    fn nothing_is_formatted_after_the_cut() {
        /// Counts how often it is formatted.
        struct Part<'a>(&'a std::cell::Cell<usize>);

        impl fmt::Debug for Part<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.set(self.0.get() + 1);
                f.write_str(&"x".repeat(100))
            }
        }
        let count = std::cell::Cell::new(0);
        let parts: Vec<_> = (0..1000).map(|_| Part(&count)).collect();
        Value::of_display(format_args!("{parts:?}"));
        assert!(count.get() < 20, "{}", count.get());
    }
}
