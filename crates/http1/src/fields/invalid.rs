//! Which fields are valid, and why a field is refused.

use std::error::Error;
use std::fmt;

use crate::scan::{is_value, name_run};
use crate::syntax::{Class, TOKEN, VALUE};

/// Why a field cannot be sent.
///
/// ```
/// use filoplume_http1::Headers;
///
/// let error = Headers::new().append("content type", "text/html").unwrap_err();
/// assert_eq!(error.to_string(), "field name has byte 0x20 at 7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidHeader {
    /// The name is empty.
    NameEmpty,
    /// The name has a byte that is not allowed in a token (RFC 9110 section 5.6.2).
    Name {
        /// The byte.
        byte: u8,
        /// Its position in the name.
        at: usize,
    },
    /// The value has a control byte (RFC 9110 section 5.5).
    Value {
        /// The byte.
        byte: u8,
        /// Its position in the value, without leading whitespace.
        at: usize,
    },
    /// All fields together would exceed 4 GiB.
    TooLong,
}

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameEmpty => f.write_str("field name is empty"),
            Self::Name { byte, at } => write!(f, "field name has byte {byte:#04x} at {at}"),
            Self::Value { byte, at } => write!(f, "field value has byte {byte:#04x} at {at}"),
            Self::TooLong => f.write_str("fields are too long together"),
        }
    }
}

impl Error for InvalidHeader {}

#[inline]
pub(crate) fn validate(name: &[u8], value: &[u8]) -> Result<(), InvalidHeader> {
    // Nearly all names have only letters, digits and hyphens.
    let is_name = !name.is_empty() && (name_run(name, 0) == name.len() || TOKEN.has_all(name));
    if is_name && is_value(value) { Ok(()) } else { Err(reason(name, value)) }
}

/// Returns why a field is invalid. The field must be invalid.
#[cold]
fn reason(name: &[u8], value: &[u8]) -> InvalidHeader {
    let first_outside = |class: &Class, bytes: &[u8]| {
        bytes.iter().copied().enumerate().find(|&(_, byte)| !class.has(byte))
    };
    match (first_outside(&TOKEN, name), first_outside(&VALUE, value)) {
        (Some((at, byte)), _) => InvalidHeader::Name { byte, at },
        (None, Some((at, byte))) => InvalidHeader::Value { byte, at },
        (None, None) => InvalidHeader::NameEmpty,
    }
}
