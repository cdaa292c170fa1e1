//! Writes JSON into one text.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use crate::core::json_text::string;

/// Writes the members of an object. Names come from the program and need no escapes.
pub(super) struct Object<'t> {
    text: &'t mut String,
    is_empty: bool,
}

/// Returns an object as text.
pub(super) fn object(capacity: usize, write: impl FnOnce(&mut Object<'_>)) -> String {
    let mut text = String::with_capacity(capacity);
    Object::write(&mut text, write);
    text
}

impl<'t> Object<'t> {
    fn write(text: &'t mut String, write: impl FnOnce(&mut Object<'_>)) {
        text.push('{');
        write(&mut Object { text, is_empty: true });
        text.push('}');
    }

    fn name(&mut self, name: &str) {
        if !self.is_empty {
            self.text.push(',');
        }
        self.is_empty = false;
        for part in ["\"", name, "\":"] {
            self.text.push_str(part);
        }
    }

    /// Writes a number; `None` is `null`.
    pub(super) fn number(&mut self, name: &str, number: impl Into<Option<u64>>) {
        self.display(name, number.into());
    }

    /// Writes a time in seconds; `None` is `null`.
    pub(super) fn seconds(&mut self, name: &str, time: impl Into<Option<Duration>>) {
        self.display(name, time.into().map(|time| format!("{:.6}", time.as_secs_f64())));
    }

    /// Writes a time in milliseconds; `None` is `null`.
    pub(super) fn milliseconds(&mut self, name: &str, time: impl Into<Option<Duration>>) {
        self.display(name, time.into().map(|time| format!("{:.3}", time.as_secs_f64() * 1e3)));
    }

    pub(super) fn boolean(&mut self, name: &str, is_true: bool) {
        self.display(name, Some(is_true));
    }

    /// Writes a text; `None` is `null`.
    pub(super) fn text<'a>(&mut self, name: &str, text: impl Into<Option<&'a str>>) {
        self.display(name, text.into().map(string));
    }

    pub(super) fn object(&mut self, name: &str, write: impl FnOnce(&mut Object<'_>)) {
        self.name(name);
        Object::write(self.text, write);
    }

    /// Writes a list of objects.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Object<'_>, T),
    ) {
        self.name(name);
        self.text.push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            Object::write(self.text, |object| write(object, item));
        }
        self.text.push(']');
    }

    fn display(&mut self, name: &str, value: Option<impl Display>) {
        self.name(name);
        match value {
            // Writing to a `String` cannot fail.
            Some(value) => _ = write!(self.text, "{value}"),
            None => self.text.push_str("null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_json() {
        let text = object(0, |json| {
            json.number("count", 3);
            json.number("unknown", None);
            json.text("text", "a \"quote\"\n");
            json.text("none", None);
            json.boolean("yes", true);
            json.object("times", |json| {
                json.seconds("s", Duration::from_millis(1500));
                json.milliseconds("ms", Duration::from_micros(1500));
                json.seconds("none", None);
            });
            json.list("list", [1, 2], |json, item| json.number("item", item));
            json.list("empty", [0; 0], |json, item| json.number("item", item));
        });
        assert_eq!(
            text,
            r#"{"count":3,"unknown":null,"text":"a \"quote\"\n","none":null,"yes":true,"times":{"s":1.500000,"ms":1.500,"none":null},"list":[{"item":1},{"item":2}],"empty":[]}"#
        );
    }
}
