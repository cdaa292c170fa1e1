//! The location of errors in typed input, and the length of their messages.

/// The maximum length of client input in a message: this much from its beginning, and this much
/// from its end. Serde quotes values and names in full, so without a limit a response and a log
/// line could be several times as long as the input.
const BEGIN_CHARS_MAX: usize = 300;
const END_CHARS_MAX: usize = 100;

/// Removes the middle of a text that is too long.
pub(crate) fn shortened(text: String) -> String {
    let begin = text.char_indices().nth(BEGIN_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    let end = text.char_indices().nth_back(END_CHARS_MAX).map_or(0, |(at, _)| at);
    if end <= begin {
        return text;
    }
    format!("{} … {}", &text[..begin], &text[end..])
}

/// Returns whether `short` is what [`shortened`] makes of a text, in which something is removed.
#[cfg(feature = "form")]
pub(crate) fn is_shortened(text: &str, short: &str) -> bool {
    // Most texts have too few bytes to be shortened, and are not copied.
    text.len() > BEGIN_CHARS_MAX + END_CHARS_MAX && shortened(text.to_owned()) == short
}

/// Returns the location of a serde error, such as `items[2].price`. Returns `None` if the error
/// concerns the whole input.
#[cfg(any(feature = "json", feature = "form"))]
pub(crate) fn field_path(path: &serde_path_to_error::Path, message: &str) -> Option<String> {
    let path = Some(path.to_string()).filter(|path| path != ".").map(shortened);
    // The path of a missing field ends at its parent; only serde's message has the name of the
    // field.
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match (path, missing) {
        (Some(path), Some(field)) => Some(format!("{path}.{field}")),
        (None, Some(field)) => Some(field.to_owned()),
        (path, None) => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_in_the_middle_and_between_characters() {
        for short in ["", "a", &"ä".repeat(BEGIN_CHARS_MAX + END_CHARS_MAX)] {
            assert_eq!(shortened(short.to_owned()), short);
        }
        let long = shortened(format!("{}{}", "ä".repeat(10_000), "ö".repeat(10_000)));
        assert!(long.starts_with('ä') && long.ends_with('ö') && long.contains(" … "));
        assert_eq!(long.chars().filter(|char| "äö".contains(*char)).count(), 401);
    }
}
