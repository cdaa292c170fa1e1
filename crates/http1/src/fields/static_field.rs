//! Fields that are known at compile time, and the names of the fields that the encoder handles
//! itself.

use std::fmt;

use super::secret::redacted;
use crate::syntax::{TOKEN, VALUE};

/// A field that is known and validated at compile time.
///
/// ```
/// use filoplume_http1::{Headers, StaticField};
///
/// // An invalid field line does not compile.
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
    pub(crate) is_encoder_field: bool,
}

impl StaticField {
    /// Returns the field of a complete line, such as `"content-type: text/html\r\n"`: a name, a
    /// colon and one space, a value, a line end.
    ///
    /// # Panics
    ///
    /// Panics if the line does not have that form. In a `const` or `static`, such a line does not
    /// compile.
    pub const fn new(line: &'static str) -> Self {
        let mut rest = line.as_bytes();
        let mut name_len: usize = 0;
        while let [byte, tail @ ..] = rest {
            if *byte == b':' {
                break;
            }
            assert!(TOKEN.has_const(*byte), "a field name may have only token bytes");
            name_len = name_len.saturating_add(1);
            rest = tail;
        }
        assert!(name_len > 0, "a field needs a name");
        let [b':', b' ', value @ .., b'\r', b'\n'] = rest else {
            panic!("a field line needs a colon and one space after the name, and CR LF at the end");
        };
        let mut value = value;
        while let [byte, tail @ ..] = value {
            assert!(VALUE.has_const(*byte), "a field value may not have control bytes");
            value = tail;
        }
        let (name, _) = line.as_bytes().split_at(name_len);
        Self { line, name_len, is_encoder_field: is_encoder_field(name) }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.line.get(..self.name_len).unwrap_or_default()
    }

    pub(crate) fn value(&self) -> &'static [u8] {
        let line = self.line.as_bytes();
        line.get(self.name_len.saturating_add(2)..line.len().saturating_sub(2)).unwrap_or_default()
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        let named = self.line.as_bytes().get(..self.name_len).unwrap_or_default();
        named.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Shows the field. The value of a [secret](super::Headers::is_secret) field is hidden.
impl fmt::Debug for StaticField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StaticField")
            .field(&self.name())
            .field(&redacted(self.name(), self.value()))
            .finish()
    }
}

/// Returns whether the encoder of responses handles a field of this name. If one is present, the
/// fields cannot be copied as a whole.
pub(crate) const fn is_encoder_field(name: &[u8]) -> bool {
    match name.len() {
        4 => is_same_name(name, b"date"),
        7 => is_same_name(name, b"upgrade"),
        10 => is_same_name(name, b"connection") || is_same_name(name, b"keep-alive"),
        14 => is_same_name(name, b"content-length"),
        17 => is_same_name(name, b"transfer-encoding"),
        _ => false,
    }
}

/// `eq_ignore_ascii_case` of slices is not `const` in the oldest supported Rust.
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

    /// A name is a token, and a value has no control byte except HTAB (RFC 9110 sections 5.1 and
    /// 5.5).
    #[test]
    fn a_static_field_is_a_line_with_a_token_and_a_value() {
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
    fn debug_shows_a_field_and_hides_a_secret() {
        let shown = |line| format!("{:?}", StaticField::new(line));
        assert_eq!(shown("x-a: b\r\n"), r#"StaticField("x-a", "b")"#);
        let hidden = shown("x-api-key: s3same\r\n");
        assert_eq!(hidden, r#"StaticField("x-api-key", "(hidden, 6 bytes)")"#);
    }

    #[test]
    fn names_are_compared_completely_and_without_case() {
        for name in
            ["date", "Upgrade", "CONNECTION", "Keep-Alive", "content-length", "Transfer-Encoding"]
        {
            assert!(is_encoder_field(name.as_bytes()), "{name}");
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
            assert!(!is_encoder_field(name.as_bytes()), "{name}");
        }
        assert!(is_same_name(b"", b"") && !is_same_name(b"ab", b"a") && !is_same_name(b"a", b"ab"));
    }
}
