//! Where a typed input is wrong, as its sender would name it, and what is said of it.

/// How much is repeated of what a client sent: from the beginning of a text, and from its end.
/// Serde quotes values and names whole, so that an answer, and a line in the log, would be a
/// multiple of what came.
const BEGIN_CHARS_MAX: usize = 300;
const END_CHARS_MAX: usize = 100;

/// Returns the text without what is too much in its middle.
pub(crate) fn shortened(text: String) -> String {
    let begin = text.char_indices().nth(BEGIN_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    let end = text.char_indices().nth_back(END_CHARS_MAX).map_or(0, |(at, _)| at);
    if end <= begin {
        return text;
    }
    format!("{} … {}", &text[..begin], &text[end..])
}

/// Returns the place of an error of serde, such as `items[2].price`; `None` if it is the whole
/// input.
#[cfg(any(feature = "json", feature = "form"))]
pub(crate) fn place(path: &serde_path_to_error::Path, message: &str) -> Option<String> {
    let path = Some(path.to_string()).filter(|path| path != ".").map(shortened);
    // A field that is not there has no path: the path ends at what should have it, and only serde's
    // text names it.
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
