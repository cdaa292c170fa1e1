//! Prints an exchange when a test fails.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use filoplume_runtime::{Headers, Method};

/// The request of an exchange.
pub(super) struct SentRequest {
    pub(super) method: Method,
    /// As it was sent, with its line ends.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl SentRequest {
    pub(super) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// Longest content that is printed, in characters. Use `assert_contains` for longer ones.
const SHOWN_CHARS_MAX: usize = 2000;

impl fmt::Display for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.head.lines() {
            match line.split_once(": ") {
                Some((name, value)) => {
                    writeln!(f, "> {name}: {}", printable(name, value.as_bytes()))?;
                }
                None => writeln!(f, "> {line}")?,
            }
        }
        write_content(f, "> ", &self.body)
    }
}

/// Returns a header's value for printing. Secret values are hidden, because many people read the
/// logs of failed tests.
pub(super) fn printable<'a>(name: &str, value: &'a [u8]) -> Cow<'a, str> {
    if Headers::is_secret(name) {
        return format!("(hidden, {} bytes)", value.len()).into();
    }
    String::from_utf8_lossy(value)
}

/// Writes a content: JSON with line breaks, other text unchanged, and the length of other bytes.
pub(super) fn write_content(
    f: &mut fmt::Formatter<'_>,
    margin: &str,
    content: &[u8],
) -> fmt::Result {
    if content.is_empty() {
        return Ok(());
    }
    writeln!(f, "{}", margin.trim_end())?;
    let text = match std::str::from_utf8(content) {
        Ok(text) => pretty(text).unwrap_or_else(|| text.to_owned()),
        Err(_) => return writeln!(f, "{margin}({} bytes that are not text)", content.len()),
    };
    let (printable, left) = match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => (&text[..end], text[end..].chars().count()),
        None => (text.as_str(), 0),
    };
    for line in printable.lines() {
        writeln!(f, "{margin}{line}")?;
    }
    if left > 0 {
        writeln!(f, "{margin}... and {left} characters more")?;
    }
    Ok(())
}

/// Formats JSON with line breaks.
#[cfg(feature = "json")]
pub(super) fn pretty(text: &str) -> Option<String> {
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    serde_json::to_string_pretty(&value).ok()
}

#[cfg(not(feature = "json"))]
pub(super) fn pretty(_: &str) -> Option<String> {
    None
}

/// Describes the difference of two texts, with the position where it begins.
pub(super) fn compare(expected: &str, found: &str) -> String {
    let same =
        expected.chars().zip(found.chars()).take_while(|(left, right)| left == right).count();
    let around = |text: &str| -> String {
        let start = same.saturating_sub(30);
        let mut printable: String = text.chars().skip(start).take(80).collect();
        if start > 0 {
            printable.insert(0, '…');
        }
        if text.chars().count() > start + 80 {
            printable.push('…');
        }
        printable
    };
    let mut text = String::new();
    let _ = write!(
        text,
        "expected {:?}\n     got {:?}\n(the first {same} characters are equal)",
        around(expected),
        around(found)
    );
    text
}
