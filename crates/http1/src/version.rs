//! The versions of the protocol.

use std::fmt;

use crate::error::ParseError;

/// The supported versions of HTTP. Any other version is refused with 505.
///
/// ```
/// use filoplume_http1::Version;
///
/// assert_eq!(http::Version::from(Version::Http11), http::Version::HTTP_11);
/// assert!(Version::try_from(http::Version::HTTP_2).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0. A connection closes after a response unless both sides send `keep-alive`. There is
    /// no chunked coding.
    Http10,
    /// HTTP/1.1 (RFC 9112).
    Http11,
}

impl From<Version> for http::Version {
    fn from(version: Version) -> Self {
        match version {
            Version::Http10 => Self::HTTP_10,
            Version::Http11 => Self::HTTP_11,
        }
    }
}

impl TryFrom<http::Version> for Version {
    type Error = ParseError;

    fn try_from(version: http::Version) -> Result<Self, ParseError> {
        match version {
            http::Version::HTTP_10 => Ok(Self::Http10),
            http::Version::HTTP_11 => Ok(Self::Http11),
            _ => Err(ParseError::VersionUnsupported),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_versions_convert_in_both_directions() {
        let both = [
            (Version::Http10, http::Version::HTTP_10, "HTTP/1.0"),
            (Version::Http11, http::Version::HTTP_11, "HTTP/1.1"),
        ];
        for (ours, theirs, text) in both {
            assert_eq!(http::Version::from(ours), theirs);
            assert_eq!(Version::try_from(theirs), Ok(ours));
            assert_eq!(ours.to_string(), text);
        }
        for other in [http::Version::HTTP_09, http::Version::HTTP_2, http::Version::HTTP_3] {
            assert_eq!(Version::try_from(other), Err(ParseError::VersionUnsupported));
        }
    }
}
