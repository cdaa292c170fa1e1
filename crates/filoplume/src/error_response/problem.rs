//! Renders errors as problem details (RFC 9457) and as plain text.
//!
//! It does not use a JSON library, so that it works the same with every set of features.

use std::fmt::Write as _;

use super::Report;
use super::development::Findings;

/// Returns the problem details as JSON. `type` is omitted if the problem has none (`about:blank`).
pub(super) fn details(report: &Report<'_>) -> String {
    let error = report.error;
    let mut object = Object::new();
    if let Some(problem_type) = error.problem_type() {
        object.text("type", problem_type);
    }
    object.text("title", &report.title);
    object.raw("status", report.status.as_str());
    if let Some(detail) = error.detail() {
        object.text("detail", detail);
    }
    if !error.fields().is_empty() {
        let fields = error.fields().iter().map(|field| {
            let mut object = Object::new();
            object.text("field", &field.field);
            object.text("message", &field.message);
            object.end()
        });
        object.raw("errors", &list(fields));
    }
    for (name, json) in error.members() {
        object.raw(name, json);
    }
    if let Some(findings) = &report.findings {
        object.raw("development", &development(findings));
    }
    object.end()
}

/// Returns the member `development`.
fn development(findings: &Findings<'_>) -> String {
    let mut object = Object::new();
    object.raw("causes", &list(findings.causes.iter().map(|cause| string(cause))));
    if let Some(route) = &findings.route {
        object.text("route", &format!("{} {}", route.methods, route.pattern));
        object.text("written_at", &route.written_at.to_string());
    }
    if let Some(hint) = &findings.hint {
        object.text("hint", hint);
    }
    object.end()
}

/// Returns the same information as plain text.
pub(super) fn text(report: &Report<'_>) -> String {
    let mut text = format!("{} {}\n", report.status.as_str(), report.title);
    if let Some(detail) = report.error.detail() {
        let _ = writeln!(text, "{detail}");
    }
    for field in report.error.fields() {
        let _ = writeln!(text, "- {}: {}", field.field, field.message);
    }
    if let Some(findings) = &report.findings {
        for cause in &findings.causes {
            let _ = writeln!(text, "caused by: {cause}");
        }
        if let Some(hint) = &findings.hint {
            let _ = writeln!(text, "hint: {hint}");
        }
    }
    text
}

/// Writes a JSON object.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, &string(value));
    }

    fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _ = write!(self.0, "{}:{json}", string(name));
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A JSON string (RFC 8259, 7).
fn string(text: &str) -> String {
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
