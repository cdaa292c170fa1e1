//! Writes small JSON texts.
//!
//! It does not use a JSON library, so that an app without the feature `json` writes the same texts.

use std::fmt::Write as _;

/// Writes a JSON object.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.raw(name, &string(value));
    }

    pub(crate) fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _ = write!(self.0, "{}:{json}", string(name));
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A JSON array of JSON texts.
pub(crate) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A JSON string (RFC 8259, 7).
pub(crate) fn string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            // RFC 8259 allows U+007F unescaped, but terminals do not show it.
            control if control.is_ascii_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_json() {
        assert_eq!(
            string("a\"b\\c\n\u{1}ö\u{2028}</script>"),
            "\"a\\\"b\\\\c\\n\\u0001ö\u{2028}</script>\""
        );
    }

    #[test]
    fn an_object_has_commas_between_its_members() {
        let mut object = Object::new();
        object.text("a", "1");
        object.raw("b", "2");
        assert_eq!(object.end(), r#"{"a":"1","b":2}"#);
        assert_eq!(Object::new().end(), "{}");
    }
}
