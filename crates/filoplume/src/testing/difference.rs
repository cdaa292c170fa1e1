//! Lists the places where two JSON values differ.

use serde_json::Value;

/// Returns the places where `found` differs from `expected`, one line per place.
pub(super) fn differences(expected: &Value, found: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", expected, found, &mut lines);
    lines
}

fn compare(place: &str, expected: &Value, found: &Value, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (name, expected) in expected {
                let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
                match found.get(name) {
                    Some(found) => compare(&place, expected, found, lines),
                    None => lines.push(format!("{place}: expected {expected}, and it is missing")),
                }
            }
            for (name, found) in found.iter().filter(|(name, _)| !expected.contains_key(*name)) {
                let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
                lines.push(format!("{place}: not expected, got {found}"));
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            for (index, pair) in expected.iter().zip(found).enumerate() {
                compare(&format!("{place}[{index}]"), pair.0, pair.1, lines);
            }
            for (index, expected) in expected.iter().enumerate().skip(found.len()) {
                lines.push(format!("{place}[{index}]: expected {expected}, and it is missing"));
            }
            for (index, found) in found.iter().enumerate().skip(expected.len()) {
                lines.push(format!("{place}[{index}]: not expected, got {found}"));
            }
        }
        _ if expected == found => {}
        _ => {
            let place = if place.is_empty() { "the value" } else { place };
            lines.push(format!("{place}: expected {expected}, got {found}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_is_named_by_its_place() {
        let expected = json!({"id": 1, "tags": ["a", "b", "c"], "owner": {"name": "ada"}});
        let found = json!({"id": 2, "tags": ["a", "x"], "owner": {}, "more": null});
        assert_eq!(
            differences(&expected, &found),
            [
                "id: expected 1, got 2",
                "owner.name: expected \"ada\", and it is missing",
                "tags[1]: expected \"b\", got \"x\"",
                "tags[2]: expected \"c\", and it is missing",
                "more: not expected, got null",
            ]
        );
        assert!(differences(&expected, &expected).is_empty());
        assert_eq!(differences(&json!(1), &json!("1")), ["the value: expected 1, got \"1\""]);
    }
}
