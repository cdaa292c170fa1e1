//! What one attempt to read a type has shown.

use std::fmt;

use serde::de;

/// The result of one attempt.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The type cannot be read from any path.
    Mismatch(String),
    /// A value has several parts, and cannot be read from a text.
    Several(&'static str),
    /// A value cannot be read from a text.
    RefusesText,
    /// It depends on the path.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch(reason) => f.write_str(reason),
            Self::Several(what) => f.write_str(what),
            Self::RefusesText | Self::Unknown => f.write_str("it depends on the path"),
        }
    }
}

impl std::error::Error for Verdict {}

impl de::Error for Verdict {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Unknown
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, _: &dyn de::Expected) -> Self {
        if let de::Unexpected::Str(_) = unexpected { Self::RefusesText } else { Self::Unknown }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Mismatch(format!(
            "there is no capture for the field `{field}`: write `{{{field}}}` in the pattern, or \
             make the field an `Option` or `#[serde(default)]`"
        ))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let fields = list(expected);
        Self::Mismatch(format!(
            "it has no field for the capture `{field}`: its fields are {fields}"
        ))
    }
}

/// Formats names as a list.
pub(super) fn list(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
