//! Patterns: what is written in an app, and what paths are matched against.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What stands encoded in a path (RFC 3986, 3.3) and may be written plainly in a pattern.
const ENCODED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`').add(b'\\').add(b'^').add(b'|');

/// Returns the pattern that raw paths are matched against: everything but captures percent-encoded, as it is on the wire.
///
/// A pattern begins with a slash. `{name}` captures a segment or what is left of one, `{*name}` at the end all the
/// rest; `{{` and `}}` are braces.
pub(crate) fn to_matched(pattern: &str) -> Result<String, String> {
    if !pattern.starts_with('/') {
        return Err("a pattern begins with `/`".to_owned());
    }
    if let Some(found) = pattern.chars().find(|found| matches!(found, '?' | '#')) {
        return Err(format!("`{found}` is no part of a path; queries are read with `Query`"));
    }
    if let Some(segment) = pattern.split('/').find(|segment| segment.starts_with([':', '*'])) {
        let name = &segment[1..];
        let braces = if segment.starts_with(':') { format!("{{{name}}}") } else { format!("{{*{name}}}") };
        return Err(format!("captures are written in braces: `{braces}` instead of `{segment}`"));
    }
    Ok(utf8_percent_encode(pattern, ENCODED).to_string())
}

/// Joins a prefix and the pattern of a nested route. The nested `/` is the prefix itself.
pub(crate) fn join(prefix: &str, pattern: &str) -> String {
    match pattern {
        "/" if !prefix.is_empty() => prefix.to_owned(),
        _ => format!("{prefix}{pattern}"),
    }
}

/// Whether a prefix can be one: `/api`, not `api`, `/api/` or `/{*rest}`.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), String> {
    if !prefix.starts_with('/') {
        return Err("a prefix begins with `/`".to_owned());
    }
    if prefix.ends_with('/') {
        return Err("a prefix ends without `/`; to join routers without a prefix use `merge`".to_owned());
    }
    if prefix.contains("{*") {
        return Err("a prefix cannot capture all the rest".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_matched_as_they_are_on_the_wire() {
        assert_eq!(to_matched("/café/{id}").as_deref(), Ok("/caf%C3%A9/{id}"));
        assert_eq!(to_matched("/a b").as_deref(), Ok("/a%20b"));
        assert_eq!(to_matched("/a%20b").as_deref(), Ok("/a%20b"));
    }

    #[test]
    fn patterns_of_other_frameworks_are_explained() {
        assert!(to_matched("users").is_err());
        assert!(to_matched("/users/:id").is_err_and(|message| message.contains("`{id}` instead of `:id`")));
        assert!(to_matched("/files/*rest").is_err_and(|message| message.contains("`{*rest}`")));
        assert!(to_matched("/a?b=1").is_err());
    }

    #[test]
    fn the_root_of_a_nested_router_is_the_prefix() {
        assert_eq!(join("/api", "/"), "/api");
        assert_eq!(join("/api", "/users"), "/api/users");
        assert_eq!(join("", "/"), "/");
    }
}
