//! URI references (RFC 3986).

use std::borrow::Cow;
use std::fmt::Write as _;

/// Percent-encodes the characters that a reference cannot contain (RFC 3986, 2).
///
/// Delimiters are kept, because only the author knows which of them are data. Existing escapes are
/// kept too. A `%` that is not part of an escape is encoded. A backslash is encoded because
/// browsers treat it like a slash.
pub(crate) fn encoded(reference: &str) -> Cow<'_, str> {
    let bytes = reference.as_bytes();
    let stays = |at: usize| match bytes[at] {
        b'%' => {
            bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        }
        byte => byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=".contains(&byte),
    };
    if (0..bytes.len()).all(stays) {
        return Cow::Borrowed(reference);
    }
    let mut text = String::with_capacity(reference.len() + 16);
    for (at, &byte) in bytes.iter().enumerate() {
        if stays(at) {
            text.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_invalid_characters_are_encoded() {
        let rows = [
            ("/notes?page=2&a=b#top", "/notes?page=2&a=b#top"),
            ("https://[::1]:80/~ada/it's(1)", "https://[::1]:80/~ada/it's(1)"),
            ("/a b", "/a%20b"),
            ("/café", "/caf%C3%A9"),
            ("/\"<>^`{|}", "/%22%3C%3E%5E%60%7B%7C%7D"),
            ("/a%20b%zz%", "/a%20b%25zz%25"),
            ("/a%2", "/a%252"),
            ("/\\evil.example", "/%5Cevil.example"),
            ("/\t/evil.example", "/%09/evil.example"),
            ("/\r\nset-cookie: a=b", "/%0D%0Aset-cookie:%20a=b"),
            ("", ""),
        ];
        for (reference, expected) in rows {
            assert_eq!(encoded(reference), expected);
        }
    }

    proptest! {
        #[test]
        fn the_result_is_ascii_and_stable(reference in ".*") {
            let once = encoded(&reference);
            prop_assert!(once.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(&encoded(&once), &once);
        }
    }
}
