//! Serde's messages in words for clients, who need not know Rust.
//!
//! Serde has no other form of its errors than their text. A text that is not recognised is returned
//! as it is, so a new version of serde makes a message less clear at worst.

/// How much of a text is repeated to the client that sent it. It is enough to recognise the value,
/// and a long secret in the wrong place is not logged in full.
const VALUE_CHARS_MAX: usize = 40;

/// Texts of the standard library and of the deserializers, and what they mean.
const TEXTS: [(&str, &str); 10] = [
    ("invalid digit found in string", "expected a whole number, in digits"),
    ("cannot parse integer from empty string", "expected a whole number, and got nothing"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("number would be zero for non-zero type", "the number must not be 0"),
    ("invalid float literal", "expected a number"),
    ("cannot parse float from empty string", "expected a number, and got nothing"),
    ("provided string was not `true` or `false`", "expected `true` or `false`"),
    ("invalid number", "expected a number"),
    ("number out of range", "the number is too large"),
];

/// Returns the message of a serde error without the names of Rust types.
///
/// The position in the content is kept only if there is no field that says where the error is.
pub(crate) fn in_plain_words(message: &str, has_field: bool) -> String {
    let (message, position) = split_position(message);
    let words = translated(message);
    match position {
        Some((line, column)) if !has_field => format!("{words} (line {line}, column {column})"),
        _ => words,
    }
}

/// Splits what `serde_json` appends to its messages.
fn split_position(message: &str) -> (&str, Option<(u64, u64)>) {
    let split = || {
        let (before, position) = message.rsplit_once(" at line ")?;
        let (line, column) = position.split_once(" column ")?;
        Some((before, (line.parse().ok()?, column.parse().ok()?)))
    };
    split().map_or((message, None), |(before, position)| (before, Some(position)))
}

fn translated(message: &str) -> String {
    if let Some((_, words)) = TEXTS.iter().find(|(text, _)| *text == message) {
        return (*words).to_owned();
    }
    if message.starts_with("missing field `") {
        return "it is missing".to_owned();
    }
    if message.starts_with("duplicate field `") {
        return "it occurs more than once".to_owned();
    }
    if message.starts_with("data did not match any variant of untagged enum ") {
        return "it has none of the expected forms".to_owned();
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        return format!("unknown value `{rest}");
    }
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    for kind in kinds {
        // The value may contain these words too, so the last ones count: the type follows them.
        let parts = message.strip_prefix(kind).and_then(|rest| rest.rsplit_once(", expected "));
        if let Some((found, expected)) = parts {
            let expected = expected_words(expected);
            return match kind {
                // Serde reads an object from a list as well, but clients do not expect that.
                "invalid length " if expected == "an object" => {
                    "expected an object, and got a list".to_owned()
                }
                "invalid length " => format!("expected {expected}, and got {found}"),
                _ => format!("expected {expected}, and got {}", found_words(found)),
            };
        }
    }
    message.to_owned()
}

/// Returns what the client sent.
fn found_words(found: &str) -> String {
    let quoted = |prefix: &str, end: char| found.strip_prefix(prefix)?.strip_suffix(end);
    if let Some(text) = quoted("string \"", '"') {
        return format!("the text \"{}\"", cut(text));
    }
    if let Some(text) = quoted("character `", '`') {
        return format!("the text \"{text}\"");
    }
    for kind in ["integer `", "floating point `", "boolean `"] {
        if let Some(value) = quoted(kind, '`') {
            return value.to_owned();
        }
    }
    let words = match found {
        "map" => "an object",
        "sequence" => "a list",
        "unit value" => "nothing",
        other => other,
    };
    words.to_owned()
}

/// Removes the end of a text that is too long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns what the type of a field takes.
fn expected_words(expected: &str) -> String {
    let (number, lowest) = match expected.strip_prefix("a nonzero ") {
        Some(number) => (number, 1),
        None => (expected, 0),
    };
    if let Some(number) = number_words(number, lowest) {
        return number;
    }
    if let Some(count) = elements(expected) {
        return format!("a list of {count}");
    }
    let words = match expected {
        "a string" | "a borrowed string" | "string" | "str" | "path string" => "a text",
        "a boolean" => "`true` or `false`",
        "a sequence" | "a set" => "a list",
        "a map" => "an object",
        "string or map" => "a text or an object",
        "unit" => "`null`",
        other if other.starts_with("struct ") => "an object",
        other if other.starts_with("enum ") => "one of its values",
        other => other,
    };
    words.to_owned()
}

fn number_words(number: &str, lowest: u8) -> Option<String> {
    let (low, high) = match number {
        "u8" => (None, u64::from(u8::MAX)),
        "u16" => (None, u64::from(u16::MAX)),
        "u32" => (None, u64::from(u32::MAX)),
        "u64" | "usize" => (None, u64::MAX),
        "i8" => (Some(i64::from(i8::MIN)), 127),
        "i16" => (Some(i64::from(i16::MIN)), 32_767),
        "i32" => (Some(i64::from(i32::MIN)), 2_147_483_647),
        "i64" | "isize" => (Some(i64::MIN), 9_223_372_036_854_775_807),
        "i128" | "u128" => return Some("a whole number".to_owned()),
        "f32" | "f64" => return Some("a number".to_owned()),
        _ => return None,
    };
    Some(match low {
        None => format!("a whole number from {lowest} to {high}"),
        Some(low) if lowest == 0 => format!("a whole number from {low} to {high}"),
        Some(low) => format!("a whole number from {low} to {high} other than 0"),
    })
}

/// Returns the number of values in a list of fixed length, which is the last number of the text.
fn elements(expected: &str) -> Option<String> {
    let is_list = ["a tuple of size ", "an array of length ", "tuple struct ", "tuple variant "]
        .iter()
        .any(|prefix| expected.starts_with(prefix));
    let count = expected.split(' ').rev().find_map(|word| word.parse::<u64>().ok());
    let count = count.filter(|_| is_list)?;
    Some(if count == 1 { "1 value".to_owned() } else { format!("{count} values") })
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use std::fmt::Debug;
    use std::num::{NonZeroI8, NonZeroU8};

    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Size {
        Small,
        Large,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its errors matter")]
    enum Either {
        Number(u8),
        Pair(u8, u8),
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its errors matter")]
    struct Order {
        count: u8,
        name: String,
    }

    /// Returns the message for this JSON as a `T`, as serde writes it today.
    fn refused<T: DeserializeOwned + Debug>(json: &str) -> String {
        in_plain_words(&serde_json::from_str::<T>(json).expect_err("it is wrong").to_string(), true)
    }

    #[test]
    fn messages_of_serde_have_no_words_of_rust() {
        let long = format!("\"{}\"", "x".repeat(1000));
        for (words, expected) in [
            (
                refused::<u32>("\"x\""),
                "a whole number from 0 to 4294967295, and got the text \"x\"",
            ),
            (refused::<u64>("-1"), "a whole number from 0 to 18446744073709551615, and got -1"),
            (refused::<u8>("256"), "a whole number from 0 to 255, and got 256"),
            (refused::<i8>("128"), "a whole number from -128 to 127, and got 128"),
            (refused::<i16>("1.5"), "a whole number from -32768 to 32767, and got 1.5"),
            (refused::<i32>("null"), "a whole number from -2147483648 to 2147483647, and got null"),
            (
                refused::<i64>("true"),
                "a whole number from -9223372036854775808 to 9223372036854775807, and got true",
            ),
            (refused::<NonZeroU8>("0"), "a whole number from 1 to 255, and got 0"),
            (refused::<NonZeroI8>("0"), "a whole number from -128 to 127 other than 0, and got 0"),
            (refused::<f64>("[]"), "a number, and got a list"),
            (refused::<String>("17"), "a text, and got 17"),
            (refused::<bool>("\"yes\""), "`true` or `false`, and got the text \"yes\""),
            (refused::<Vec<u8>>("1"), "a list, and got 1"),
            (refused::<std::collections::HashMap<String, u8>>("1"), "an object, and got 1"),
            (refused::<(u8, u8)>("[1]"), "a list of 2 values, and got 1"),
            (refused::<[u8; 1]>("[]"), "a list of 1 value, and got 0"),
            (refused::<Order>("17"), "an object, and got 17"),
            (refused::<Order>("[1]"), "an object, and got a list"),
            (
                refused::<u8>("\"a, expected b at line 1 column\""),
                "a whole number from 0 to 255, and got the text \"a, expected b at line 1 column\"",
            ),
            (
                refused::<bool>(&long),
                "`true` or `false`, and got the text \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…\"",
            ),
        ] {
            assert_eq!(words, format!("expected {expected}"));
        }
        for (words, expected) in [
            (refused::<Order>("{}"), "it is missing"),
            (refused::<Order>(r#"{"count":1,"count":2}"#), "it occurs more than once"),
            (refused::<Order>(r#"{"no":1}"#), "unknown field `no`, expected `count` or `name`"),
            (refused::<Size>("\"huge\""), "unknown value `huge`, expected `small` or `large`"),
            (refused::<Either>("\"x\""), "it has none of the expected forms"),
            (refused::<u128>("{}"), "expected a number"),
        ] {
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn the_position_is_kept_where_nothing_else_says_where_the_error_is() {
        let message = "invalid type: map, expected u8 at line 2 column 3";
        let words = "expected a whole number from 0 to 255, and got an object";
        assert_eq!(in_plain_words(message, true), words);
        assert_eq!(in_plain_words(message, false), format!("{words} (line 2, column 3)"));
        assert_eq!(in_plain_words("look at line 3", false), "look at line 3");
    }

    #[test]
    fn texts_of_the_standard_library_are_known() {
        for (message, expected) in [
            ("x".parse::<u8>().unwrap_err().to_string(), "expected a whole number, in digits"),
            ("".parse::<u8>().unwrap_err().to_string(), "expected a whole number, and got nothing"),
            ("256".parse::<u8>().unwrap_err().to_string(), "the number is too large"),
            ("-129".parse::<i8>().unwrap_err().to_string(), "the number is too small"),
            ("0".parse::<NonZeroU8>().unwrap_err().to_string(), "the number must not be 0"),
            ("x".parse::<f32>().unwrap_err().to_string(), "expected a number"),
            ("".parse::<f32>().unwrap_err().to_string(), "expected a number, and got nothing"),
            ("x".parse::<bool>().unwrap_err().to_string(), "expected `true` or `false`"),
            ("what the app says".to_owned(), "what the app says"),
        ] {
            assert_eq!(in_plain_words(&message, true), expected);
        }
    }
}
