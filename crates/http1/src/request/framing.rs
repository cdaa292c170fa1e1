//! How a message ends, and what else the fields of a request decide.

use crate::error::ParseError;
use crate::request::target::validate_host;
use crate::syntax::{is_token, list_members};
use crate::version::Version;

/// How the content of a request ends (RFC 9112 section 6). There is no value for "not sure".
///
/// ```
/// use filoplume_http1::{Framing, Limits, parse_request_head};
///
/// let input = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nHello";
/// let (head, _) = parse_request_head(input, &Limits::default())?.expect("the head is whole");
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
    /// Returns whether there is content to be read behind the head.
    #[inline]
    pub const fn has_content(self) -> bool {
        !matches!(self, Self::Empty | Self::Length(0))
    }
}

/// What is known after the last field, decided once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) framing: Framing,
    pub(crate) expects_continue: bool,
    pub(crate) is_persistent: bool,
    pub(crate) connection_has_upgrade: bool,
}

impl Facts {
    /// What follows from no field at all.
    pub(crate) const NONE: Self = Self {
        framing: Framing::Empty,
        expects_continue: false,
        is_persistent: true,
        connection_has_upgrade: false,
    };
}

/// Collects what single fields say, one after the other.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one independent fact: a field or an option was seen"
)]
pub(crate) struct FieldFacts {
    host: bool,
    length: Option<u64>,
    coding: bool,
    expects_continue: bool,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl FieldFacts {
    /// Takes note of one field. The length of the name rules out most fields before a byte is compared.
    #[inline]
    pub(crate) fn note(&mut self, version: Version, name: &[u8], value: &[u8]) -> Result<(), ParseError> {
        match name.len() {
            // The one field that every request has is worth a comparison without a loop.
            4 if matches!(name, [b'h' | b'H', b'o' | b'O', b's' | b'S', b't' | b'T']) => {
                self.note_host(value)
            }
            6 if name.eq_ignore_ascii_case(b"expect") => self.note_expect(version, value),
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.note_connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.note_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.note_coding(version, value),
            _ => Ok(()),
        }
    }

    /// Returns what the fields mean together. `host_required` is false only for heads made in this process.
    #[inline]
    pub(crate) fn finish(self, version: Version, host_required: bool) -> Result<Facts, ParseError> {
        if host_required && !self.host && version == Version::Http11 {
            return Err(ParseError::HostMissing);
        }
        let framing = match (self.coding, self.length) {
            (true, Some(_)) => return Err(ParseError::AmbiguousLength),
            (true, None) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Empty,
        };
        Ok(Facts {
            framing,
            // Without content there is nothing to wait for.
            expects_continue: self.expects_continue
                && !matches!(framing, Framing::Empty | Framing::Length(0)),
            is_persistent: !self.close && (version == Version::Http11 || self.keep_alive),
            // An HTTP/1.0 peer cannot upgrade (RFC 9110 section 7.8).
            connection_has_upgrade: self.upgrade && version == Version::Http11,
        })
    }

    #[inline]
    fn note_host(&mut self, value: &[u8]) -> Result<(), ParseError> {
        self.note_valid_host()?;
        // Empty is legal: the target then has no authority (RFC 9112 section 3.2).
        if value.is_empty() { Ok(()) } else { validate_host(value).map(|_| ()) }
    }

    /// Takes note of a `Host` whose value is known to be one.
    #[inline]
    pub(crate) fn note_valid_host(&mut self) -> Result<(), ParseError> {
        if self.host {
            return Err(ParseError::HostRepeated);
        }
        self.host = true;
        Ok(())
    }

    fn note_expect(&mut self, version: Version, value: &[u8]) -> Result<(), ParseError> {
        // HTTP/1.0 does not know expectations (RFC 9110 section 10.1.1).
        if version == Version::Http10 {
            return Ok(());
        }
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(ParseError::ExpectationUnknown);
        }
        self.expects_continue = true;
        Ok(())
    }

    fn note_connection(&mut self, value: &[u8]) {
        for option in list_members(value) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                _ => {}
            }
        }
    }

    fn note_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        // Repeated is refused even if equal: a peer that sends it so has been tampered with.
        if self.length.is_some() {
            return Err(ParseError::LengthRepeated);
        }
        self.length = Some(parse_length(value).ok_or(ParseError::LengthInvalid)?);
        Ok(())
    }

    fn note_coding(&mut self, version: Version, value: &[u8]) -> Result<(), ParseError> {
        if version == Version::Http10 {
            return Err(ParseError::CodingInHttp10);
        }
        if self.coding {
            return Err(ParseError::CodingInvalid);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(refusal_of_coding(value));
        }
        self.coding = true;
        Ok(())
    }
}

/// `1*DIGIT`, nothing around it. `str::parse` would take a plus sign.
pub(crate) fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |length, &byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit <= 9)?;
        length.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A list that ends in its only `chunked` could be decoded by somebody (501); any other has no known end (400).
pub(crate) fn refusal_of_coding(value: &[u8]) -> ParseError {
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

    /// What one field means, without a `Host`.
    fn facts(version: Version, name: &str, value: &str) -> Result<Facts, ParseError> {
        let mut facts = FieldFacts::default();
        facts.note(version, name.as_bytes(), value.as_bytes())?;
        facts.finish(version, false)
    }

    #[test]
    fn there_is_content_unless_its_length_is_zero() {
        assert!(!Framing::Empty.has_content());
        assert!(!Framing::Length(0).has_content());
        assert!(Framing::Length(1).has_content());
        assert!(Framing::Chunked.has_content());
    }

    #[test]
    fn a_name_of_the_same_length_is_another_field() {
        for (name, value) in [
            ("hose", "a b"),
            ("expert", "100-continue"),
            ("expert", "200-ok"),
            ("connexions", "close, upgrade"),
            ("content-weight", "5"),
            ("transfer-recoding", "chunked"),
        ] {
            assert_eq!(facts(Version::Http11, name, value), Ok(Facts::NONE), "{name}");
        }
    }

    #[test]
    fn an_option_of_the_same_length_is_another_one() {
        assert_eq!(facts(Version::Http11, "connection", "clone, upgrape"), Ok(Facts::NONE));
        // With HTTP/1.0 only one option keeps the connection.
        let is_persistent =
            |value: &str| facts(Version::Http10, "connection", value).map(|facts| facts.is_persistent);
        assert_eq!(is_persistent("keep-alive"), Ok(true));
        assert_eq!(is_persistent("keep-aline"), Ok(false));
    }
}
