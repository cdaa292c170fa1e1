//! The text of an error with its causes, in one line for the log.

use std::error::Error as StdError;

/// Returns the text of an error with its causes. The error is not an [`Error`](super::Error).
pub(crate) fn in_one_line(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    with_causes(error.to_string(), causes)
}

/// Appends causes to a text.
pub(super) fn with_causes<'e>(
    text: String,
    causes: impl Iterator<Item = &'e (dyn StdError + 'static)>,
) -> String {
    causes.map(ToString::to_string).fold(text, |text, cause| {
        // The text of many errors already includes their cause.
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}
