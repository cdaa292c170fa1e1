//! What the general parsers of requests and responses share: both read the tokens of httparse, and
//! refuse fields for the same reasons.

use crate::error::ParseError;

/// Number of fields that the first attempt has room for. Almost every head has fewer, and a larger
/// index uses more of the CPU cache.
pub(crate) const FIELDS_FEW: usize = 32;

/// Returns whether CR LF comes before `start`, as it must before each field. httparse also accepts
/// a bare LF.
#[inline]
pub(crate) fn is_after_crlf(window: &[u8], start: usize) -> bool {
    window.get(start.wrapping_sub(2)..start) == Some(b"\r\n")
}

/// Returns the reason for an error of httparse, or `first_line` if the first line is malformed.
#[cold]
pub(crate) fn reason(error: httparse::Error, first_line: ParseError) -> ParseError {
    match error {
        httparse::Error::HeaderName => ParseError::FieldNameInvalid,
        httparse::Error::HeaderValue => ParseError::FieldValueInvalid,
        httparse::Error::NewLine => ParseError::LineEndInvalid,
        httparse::Error::TooManyHeaders => ParseError::TooManyFields,
        httparse::Error::Version | httparse::Error::Token | httparse::Error::Status => first_line,
    }
}
