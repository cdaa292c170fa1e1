//! Fields that are known when the program is built, and which fields the encoder has to look at.

use std::fmt;

use super::headers::shown;
use crate::syntax::{TOKEN, VALUE};

/// A field that is known when the program is built, and valid if it builds.
///
/// ```
/// use filoplume_http1::{Headers, StaticField};
///
/// // What is no field line is an error of the compiler.
/// static NO_STORE: StaticField = StaticField::new("cache-control: no-store\r\n");
///
/// let mut headers = Headers::new();
/// headers.insert_static(&NO_STORE);
/// assert_eq!(headers.get_str("cache-control"), Some("no-store"));
/// ```
#[derive(Clone, Copy)]
pub struct StaticField {
    pub(crate) line: &'static str,
    name_len: usize,
    pub(crate) is_deciding: bool,
}

impl StaticField {
    /// Returns the field of a whole line, such as `"content-type: text/html\r\n"`: a name, a colon
    /// and one space, a value, a line end.
    ///
    /// # Panics
    ///
    /// The line is not of that form. In a `const` that is an error of the compiler.
    pub const fn new(line: &'static str) -> Self {
        let mut rest = line.as_bytes();
        let mut name_len: usize = 0;
        while let [byte, tail @ ..] = rest {
            if *byte == b':' {
                break;
            }
            assert!(TOKEN.has_const(*byte), "a field name has a byte that is no token byte");
            name_len = name_len.saturating_add(1);
            rest = tail;
        }
        assert!(name_len > 0, "a field has a name");
        let [b':', b' ', value @ .., b'\r', b'\n'] = rest else {
            panic!("a field line has a colon and a space, and ends in CR LF");
        };
        let mut value = value;
        while let [byte, tail @ ..] = value {
            assert!(VALUE.has_const(*byte), "a field value has a control byte");
            value = tail;
        }
        let (name, _) = line.as_bytes().split_at(name_len);
        Self { line, name_len, is_deciding: is_deciding(name) }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.line.get(..self.name_len).unwrap_or_default()
    }

    pub(crate) fn value(&self) -> &'static [u8] {
        let line = self.line.as_bytes();
        line.get(self.name_len.saturating_add(2)..line.len().saturating_sub(2)).unwrap_or_default()
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }
}

/// Shows the field, but not the value of a [secret](super::Headers::is_secret) one.
impl fmt::Debug for StaticField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StaticField")
            .field(&self.name())
            .field(&shown(self.name(), self.value()))
            .finish()
    }
}

/// Whether a field of a response means something to the encoder, which then has to look at each.
pub(crate) const fn is_deciding(name: &[u8]) -> bool {
    match name.len() {
        4 => is_same_name(name, b"date"),
        7 => is_same_name(name, b"upgrade"),
        10 => is_same_name(name, b"connection") || is_same_name(name, b"keep-alive"),
        14 => is_same_name(name, b"content-length"),
        17 => is_same_name(name, b"transfer-encoding"),
        _ => false,
    }
}

/// `eq_ignore_ascii_case`, which is not `const` in the oldest Rust that we support.
const fn is_same_name(mut left: &[u8], mut right: &[u8]) -> bool {
    while let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right) {
        if !first.eq_ignore_ascii_case(second) {
            return false;
        }
        left = left_rest;
        right = right_rest;
    }
    left.is_empty() && right.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name is a token, and a value has no control byte but HTAB (RFC 9110 sections 5.1 and 5.5).
    #[test]
    fn a_static_field_is_the_line_of_a_token_and_a_value() {
        let is_taken = |line: String| {
            let line: &'static str = line.leak();
            std::panic::catch_unwind(|| StaticField::new(line)).is_ok()
        };
        for byte in 0..=0x7f {
            let shown = char::from(byte);
            assert_eq!(
                is_taken(format!("a{shown}b: c\r\n")),
                TOKEN.has(byte),
                "{byte:#04x} in the name"
            );
            assert_eq!(
                is_taken(format!("a: b{shown}c\r\n")),
                VALUE.has(byte),
                "{byte:#04x} in the value"
            );
        }
        for line in ["a: \r\n", "a: \u{e9}\r\n"] {
            assert!(is_taken(line.into()), "{line:?}");
        }
        for line in
            ["", "a", "\r\n", ": b\r\n", "a:b\r\n", "a: b", "a: b\n", "a: b\r", "\u{e9}: b\r\n"]
        {
            assert!(!is_taken(line.into()), "{line:?}");
        }
    }

    #[test]
    fn names_decide_whole_and_in_any_case() {
        for name in
            ["date", "Upgrade", "CONNECTION", "Keep-Alive", "content-length", "Transfer-Encoding"]
        {
            assert!(is_deciding(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "data",
            "upgrades",
            "upgrad3",
            "connectiom",
            "keep-alivf",
            "content-lengtg",
            "transfer-encodinh",
        ] {
            assert!(!is_deciding(name.as_bytes()), "{name}");
        }
        assert!(is_same_name(b"", b"") && !is_same_name(b"ab", b"a") && !is_same_name(b"a", b"ab"));
    }
}
