//! Why a message is refused, and the status of the response to it.

use std::error::Error;
use std::fmt;

/// Why a message was refused. Each reason has the status of the response.
///
/// The response contains only the status; the reason is for the log.
///
/// ```
/// use filoplume_http1::{Limits, ParseError, parse_request_head};
///
/// let refused =
///     parse_request_head(b"GET / HTTP/1.1\r\n\r\n", &Limits::default()).unwrap_err();
/// assert_eq!(refused, ParseError::HostMissing);
/// assert_eq!(refused.status(), 400);
/// assert_eq!(refused.to_string(), "no host field");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// The request line is not `method SP target SP version` (RFC 9112 section 3).
    RequestLineInvalid,
    /// The status line of a response is not `version SP status SP [reason]` (RFC 9112 section 4).
    StatusLineInvalid,
    /// The method is longer than every registered method, so it is not a known one.
    MethodTooLong,
    /// The target has none of the four forms, or a form that the method does not allow (RFC 9112
    /// section 3.2).
    TargetInvalid,
    /// The target is longer than [`Limits::target_bytes_max`](crate::Limits::target_bytes_max).
    TargetTooLong,
    /// The version is not `HTTP/digit.digit`.
    VersionInvalid,
    /// The version is well-formed, but is neither 1.0 nor 1.1.
    VersionUnsupported,
    /// A line does not end in CR LF, or more than one empty line precedes the request.
    LineEndInvalid,
    /// A field name is empty, contains a byte that is not allowed in a token, or is followed by
    /// whitespace before the colon.
    FieldNameInvalid,
    /// A field value contains a control byte, or continues on the next line.
    FieldValueInvalid,
    /// There are more fields than [`Limits::fields_max`](crate::Limits::fields_max).
    TooManyFields,
    /// The head is longer than [`Limits::head_bytes_max`](crate::Limits::head_bytes_max).
    HeadTooLong,
    /// The request is HTTP/1.1 and has no `Host` (RFC 9112 section 3.2).
    HostMissing,
    /// `Host` occurs more than once.
    HostRepeated,
    /// `Host`, or the authority in the target, is not `host[:port]`.
    HostInvalid,
    /// `Content-Length` is not a single decimal number that fits in 64 bits.
    LengthInvalid,
    /// `Content-Length` occurs more than once.
    LengthRepeated,
    /// Both `Transfer-Encoding` and `Content-Length` are present (RFC 9112 section 6.1).
    AmbiguousLength,
    /// `Transfer-Encoding` occurs more than once, is malformed, or does not end in `chunked`.
    CodingInvalid,
    /// `Transfer-Encoding` names a coding before `chunked` that is not implemented.
    CodingUnsupported,
    /// An HTTP/1.0 request has `Transfer-Encoding`, so its framing is faulty (RFC 9112 section
    /// 6.1).
    CodingInHttp10,
    /// `Expect` has a value other than `100-continue` (RFC 9110 section 10.1.1).
    ExpectationUnknown,
    /// The content is longer than the caller of [`ContentDecoder::new`](crate::ContentDecoder::new)
    /// allows.
    ContentTooLong,
    /// A chunk size is missing, is not hexadecimal, or does not fit in 64 bits.
    ChunkSizeInvalid,
    /// A chunk line is longer than
    /// [`Limits::chunk_line_bytes_max`](crate::Limits::chunk_line_bytes_max).
    ChunkLineTooLong,
    /// A chunk extension is malformed (RFC 9112 section 7.1.1).
    ChunkExtensionInvalid,
    /// All chunk extensions together exceed
    /// [`Limits::chunk_extension_bytes_max`](crate::Limits::chunk_extension_bytes_max).
    ChunkExtensionsTooLong,
    /// A chunk line or the data of a chunk is not followed by CR LF.
    ChunkEndInvalid,
    /// A trailer field is malformed.
    TrailerInvalid,
    /// A trailer field would change framing or routing (RFC 9110 section 6.5.1).
    TrailerForbidden,
    /// The trailer section is longer than
    /// [`Limits::trailer_bytes_max`](crate::Limits::trailer_bytes_max).
    TrailerTooLong,
}

impl ParseError {
    /// Every reason, for tables with one row per reason.
    pub const ALL: [Self; 31] = [
        Self::RequestLineInvalid,
        Self::StatusLineInvalid,
        Self::MethodTooLong,
        Self::TargetInvalid,
        Self::TargetTooLong,
        Self::VersionInvalid,
        Self::VersionUnsupported,
        Self::LineEndInvalid,
        Self::FieldNameInvalid,
        Self::FieldValueInvalid,
        Self::TooManyFields,
        Self::HeadTooLong,
        Self::HostMissing,
        Self::HostRepeated,
        Self::HostInvalid,
        Self::LengthInvalid,
        Self::LengthRepeated,
        Self::AmbiguousLength,
        Self::CodingInvalid,
        Self::CodingUnsupported,
        Self::CodingInHttp10,
        Self::ExpectationUnknown,
        Self::ContentTooLong,
        Self::ChunkSizeInvalid,
        Self::ChunkLineTooLong,
        Self::ChunkExtensionInvalid,
        Self::ChunkExtensionsTooLong,
        Self::ChunkEndInvalid,
        Self::TrailerInvalid,
        Self::TrailerForbidden,
        Self::TrailerTooLong,
    ];

    /// Returns the status of the response that is sent before closing.
    pub const fn status(self) -> u16 {
        match self {
            Self::RequestLineInvalid
            | Self::TargetInvalid
            | Self::VersionInvalid
            | Self::LineEndInvalid
            | Self::FieldNameInvalid
            | Self::FieldValueInvalid
            | Self::HostMissing
            | Self::HostRepeated
            | Self::HostInvalid
            | Self::LengthInvalid
            | Self::LengthRepeated
            | Self::AmbiguousLength
            | Self::CodingInvalid
            | Self::CodingInHttp10
            | Self::ChunkSizeInvalid
            | Self::ChunkLineTooLong
            | Self::ChunkExtensionInvalid
            | Self::ChunkExtensionsTooLong
            | Self::ChunkEndInvalid
            | Self::TrailerInvalid
            | Self::TrailerForbidden => 400,
            Self::ContentTooLong => 413,
            Self::TargetTooLong => 414,
            Self::ExpectationUnknown => 417,
            Self::TooManyFields | Self::HeadTooLong | Self::TrailerTooLong => 431,
            Self::MethodTooLong | Self::CodingUnsupported => 501,
            // A proxy reports an invalid response of its upstream server with 502.
            Self::StatusLineInvalid => 502,
            Self::VersionUnsupported => 505,
        }
    }

    /// Returns [`status`](Self::status) as the type of the `http` crate.
    pub fn status_code(self) -> http::StatusCode {
        http::StatusCode::from_u16(self.status()).unwrap_or(http::StatusCode::BAD_REQUEST)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestLineInvalid => "request line is malformed",
            Self::StatusLineInvalid => "status line is malformed",
            Self::MethodTooLong => "method is too long",
            Self::TargetInvalid => "target is malformed or not allowed for the method",
            Self::TargetTooLong => "target is too long",
            Self::VersionInvalid => "version is malformed",
            Self::VersionUnsupported => "version is neither HTTP/1.0 nor HTTP/1.1",
            Self::LineEndInvalid => "line does not end in CR LF",
            Self::FieldNameInvalid => "field name is malformed",
            Self::FieldValueInvalid => "field value is malformed",
            Self::TooManyFields => "too many fields",
            Self::HeadTooLong => "head is too long",
            Self::HostMissing => "no host field",
            Self::HostRepeated => "more than one host field",
            Self::HostInvalid => "host is malformed",
            Self::LengthInvalid => "content-length is malformed",
            Self::LengthRepeated => "more than one content-length field",
            Self::AmbiguousLength => "both transfer-encoding and content-length are present",
            Self::CodingInvalid => "transfer-encoding is malformed or does not end in chunked",
            Self::CodingUnsupported => "transfer coding is not implemented",
            Self::CodingInHttp10 => "transfer-encoding in HTTP/1.0",
            Self::ExpectationUnknown => "expectation is not 100-continue",
            Self::ContentTooLong => "content is too long",
            Self::ChunkSizeInvalid => "chunk size is malformed",
            Self::ChunkLineTooLong => "chunk line is too long",
            Self::ChunkExtensionInvalid => "chunk extension is malformed",
            Self::ChunkExtensionsTooLong => "chunk extensions are too long together",
            Self::ChunkEndInvalid => "chunk does not end in CR LF",
            Self::TrailerInvalid => "trailer field is malformed",
            Self::TrailerForbidden => "trailer field would change framing or routing",
            Self::TrailerTooLong => "trailer section is too long",
        })
    }
}

impl Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_has_every_reason_once_and_in_order() {
        let numbers: Vec<usize> = ParseError::ALL.iter().map(|error| *error as usize).collect();
        let expected: Vec<usize> = (0..=ParseError::TrailerTooLong as usize).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn every_reason_has_an_error_status_and_a_unique_text() {
        let mut texts = std::collections::HashSet::new();
        for error in ParseError::ALL {
            assert_eq!(error.status_code().as_u16(), error.status());
            assert!(error.status() >= 400, "{error:?}");
            let text = error.to_string();
            assert!(!text.is_empty() && texts.insert(text), "{error:?}");
        }
    }
}
