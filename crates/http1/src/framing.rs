//! How a message ends according to its fields: one rule for requests and responses (RFC 9112
//! section 6).
//!
//! This module does not know which of the two it reads. `request::framing` applies the rule to
//! requests, and `response::framing` to responses, where the status and the request take precedence
//! over the fields.

use crate::error::ParseError;
use crate::syntax::{is_token, list_members};
use crate::version::Version;

/// How the content of a request ends (RFC 9112 section 6). There is no value for "not sure".
///
/// ```
/// use filoplume_http1::{Framing, Limits, parse_request_head};
///
/// let input = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nHello";
/// let (head, _) =
///     parse_request_head(input, &Limits::default())?.expect("the head is whole");
/// assert_eq!(head.framing(), Framing::Length(5));
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no content.
    Empty,
    /// The content has this many bytes.
    Length(u64),
    /// The content ends with the chunk of size zero and the trailer section.
    Chunked,
}

impl Framing {
    /// Returns whether the head is followed by content.
    #[inline]
    pub const fn has_content(self) -> bool {
        !matches!(self, Self::Empty | Self::Length(0))
    }
}

/// The `Content-Length` and `Transfer-Encoding` found so far. Each may occur once.
#[derive(Default)]
pub(crate) struct FramingFields {
    length: Option<u64>,
    is_chunked: bool,
}

impl FramingFields {
    /// Records a `Content-Length`, which must be one number and not a list (RFC 9110 section 8.6).
    pub(crate) fn note_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        self.note_number(parse_length(value))
    }

    /// Records a length. `None` means that the value was not a number.
    #[inline]
    pub(crate) fn note_number(&mut self, length: Option<u64>) -> Result<(), ParseError> {
        // A repeated field is refused even if the values are equal, because it is a sign of
        // tampering.
        if self.length.is_some() {
            return Err(ParseError::LengthRepeated);
        }
        self.length = Some(length.ok_or(ParseError::LengthInvalid)?);
        Ok(())
    }

    /// Records a `Transfer-Encoding` (RFC 9112 section 6.1). Only a single `chunked` is decoded,
    /// and HTTP/1.0 does not have it. We never send `TE`, so a server has no reason to use another
    /// coding.
    pub(crate) fn note_coding(&mut self, version: Version, value: &[u8]) -> Result<(), ParseError> {
        if version == Version::Http10 {
            return Err(ParseError::CodingInHttp10);
        }
        if self.is_chunked {
            return Err(ParseError::CodingInvalid);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(refusal_of_coding(value));
        }
        self.is_chunked = true;
        Ok(())
    }

    /// Returns the framing that the fields describe together (RFC 9112 section 6.3). Without either
    /// field it is [`Framing::Empty`], which is right for a request.
    ///
    /// If both fields are present, the message is refused. The RFC would let the coding override
    /// the length, but another reader on the path may have used the length.
    #[inline]
    pub(crate) fn finish(&self) -> Result<Framing, ParseError> {
        match (self.is_chunked, self.length) {
            (true, Some(_)) => Err(ParseError::AmbiguousLength),
            (true, None) => Ok(Framing::Chunked),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::Empty),
        }
    }
}

/// Parses `1*DIGIT` without anything around it. `str::parse` would accept a plus sign.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |length, &byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit <= 9)?;
        length.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Returns why a value other than `chunked` is refused. A list that ends in its only `chunked` is
/// valid but not implemented here (501); with any other list the end of the message is unknown
/// (400).
fn refusal_of_coding(value: &[u8]) -> ParseError {
    let mut codings = list_members(value).rev();
    match codings.next() {
        Some(last) if last.eq_ignore_ascii_case(b"chunked") => {}
        _ => return ParseError::CodingInvalid,
    }
    if codings.all(|coding| is_token(coding) && !coding.eq_ignore_ascii_case(b"chunked")) {
        ParseError::CodingUnsupported
    } else {
        ParseError::CodingInvalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_content_unless_its_length_is_zero() {
        assert!(!Framing::Empty.has_content());
        assert!(!Framing::Length(0).has_content());
        assert!(Framing::Length(1).has_content());
        assert!(Framing::Chunked.has_content());
    }

    /// Returns the framing for these values of `Transfer-Encoding`, each in its own field.
    fn framing_of_codings(version: Version, values: &[&str]) -> Result<Framing, ParseError> {
        let mut fields = FramingFields::default();
        for value in values {
            fields.note_coding(version, value.as_bytes())?;
        }
        fields.finish()
    }

    /// Returns the framing for these values of `Content-Length`, each in its own field.
    fn framing_of_lengths(values: &[&str]) -> Result<Framing, ParseError> {
        let mut fields = FramingFields::default();
        for value in values {
            fields.note_length(value.as_bytes())?;
        }
        fields.finish()
    }

    #[test]
    fn only_chunked_is_decoded() {
        for value in ["chunked", "Chunked", "CHUNKED"] {
            assert_eq!(
                framing_of_codings(Version::Http11, &[value]),
                Ok(Framing::Chunked),
                "{value}"
            );
            assert_eq!(
                framing_of_codings(Version::Http10, &[value]),
                Err(ParseError::CodingInHttp10),
                "{value}"
            );
        }
        for value in ["gzip, chunked", "gzip,chunked", "a, b, Chunked", "identity, chunked"] {
            assert_eq!(
                framing_of_codings(Version::Http11, &[value]),
                Err(ParseError::CodingUnsupported),
                "{value}"
            );
        }
        for value in [
            "",
            ",",
            "gzip",
            "identity",
            "xchunked",
            "chunke",
            "chunked;a",
            "chunked, gzip",
            "chunked,",
            ", chunked",
            "chunked, chunked",
            "gzip,, chunked",
            "a b, chunked",
        ] {
            assert_eq!(
                framing_of_codings(Version::Http11, &[value]),
                Err(ParseError::CodingInvalid),
                "{value}"
            );
        }
    }

    #[test]
    fn a_length_is_one_number_of_64_bits() {
        for (value, length) in [("0", 0), ("5", 5), ("005", 5), ("18446744073709551615", u64::MAX)]
        {
            assert_eq!(framing_of_lengths(&[value]), Ok(Framing::Length(length)), "{value}");
        }
        for value in ["", "+5", "-5", "5 ", "0x5", "5, 5", "5,", "18446744073709551616"] {
            assert_eq!(framing_of_lengths(&[value]), Err(ParseError::LengthInvalid), "{value}");
        }
    }

    #[test]
    fn only_one_of_the_two_fields_may_occur_and_only_once() {
        assert_eq!(
            framing_of_codings(Version::Http11, &["chunked", "chunked"]),
            Err(ParseError::CodingInvalid)
        );
        assert_eq!(framing_of_lengths(&["5", "5"]), Err(ParseError::LengthRepeated));
        assert_eq!(framing_of_lengths(&["5", "x"]), Err(ParseError::LengthRepeated));
        assert_eq!(FramingFields::default().finish(), Ok(Framing::Empty));
        let both = FramingFields { length: Some(5), is_chunked: true };
        assert_eq!(both.finish(), Err(ParseError::AmbiguousLength));
    }
}
