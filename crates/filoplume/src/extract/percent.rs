//! Strict percent-decoding (RFC 3986, 2.1): invalid input is an error.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode;

/// An error in percent-encoded text.
///
/// ```
/// use filoplume::extract::{EncodingError, PathRejection};
/// use filoplume::prelude::*;
///
/// let app =
///     App::new().get("/{name}", |name: Result<Path<String>, PathRejection>| match name {
///         Ok(Path(name)) => name,
///         Err(PathRejection::Encoding { error: EncodingError::NotUtf8, .. }) => {
///             "write UTF-8, please".to_owned()
///         }
///         Err(rejection) => rejection.to_string(),
///     });
/// app.test().get("/caf%E9").send().assert_text("write UTF-8, please");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodingError {
    /// A `%` is not followed by two hexadecimal digits.
    Escape,
    /// The decoded text is not UTF-8.
    NotUtf8,
}

impl fmt::Display for EncodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Escape => "has a `%` without two hexadecimal digits after it",
            Self::NotUtf8 => "is not UTF-8",
        })
    }
}

/// Decodes percent-encoded bytes.
pub(crate) fn decode(text: &[u8]) -> Result<Cow<'_, str>, EncodingError> {
    if text.contains(&b'%') && !escapes_are_whole(text) {
        return Err(EncodingError::Escape);
    }
    percent_decode(text).decode_utf8().map_err(|_| EncodingError::NotUtf8)
}

/// Like [`decode`], for a string. Most strings contain no escapes.
#[inline]
pub(crate) fn decode_text(text: &str) -> Result<Cow<'_, str>, EncodingError> {
    if text.as_bytes().contains(&b'%') { decode(text.as_bytes()) } else { Ok(Cow::Borrowed(text)) }
}

fn escapes_are_whole(text: &[u8]) -> bool {
    let mut parts = text.split(|&byte| byte == b'%');
    // The part before the first `%`.
    parts.next();
    parts.all(|part| part.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_is_a_percent_sign_and_two_digits() {
        assert_eq!(decode(b"plain").as_deref(), Ok("plain"));
        assert_eq!(decode(b"K%C3%B6ln").as_deref(), Ok("Köln"));
        assert_eq!(decode(b"%25").as_deref(), Ok("%"));
        for broken in ["%", "%4", "%zz", "%%41", "a%4%41", "%4g"] {
            assert_eq!(decode(broken.as_bytes()), Err(EncodingError::Escape), "{broken}");
        }
        assert_eq!(decode(b"%ff"), Err(EncodingError::NotUtf8));
        assert_eq!(decode(b"\xff"), Err(EncodingError::NotUtf8));
    }
}
