//! Renders errors as problem details (RFC 9457) and as plain text.
//!
//! This module does not use a JSON library, so that it works the same with every set of features.

use std::fmt::Write as _;

use super::Report;
use super::development::Findings;
use crate::core::json_text::{Object, list, string};

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
