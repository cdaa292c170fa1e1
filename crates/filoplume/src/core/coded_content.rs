//! Content with a `Content-Encoding`: which routes refuse such content, and the error if it cannot
//! be decoded.

use std::error::Error as StdError;
use std::{fmt, io};

use filoplume_runtime::Request;

use super::takes::Takes;
use crate::semantics::content_coding::{is_coded, is_decodable};

/// What happens to content with a `Content-Encoding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CodedContent {
    /// Extractors refuse it.
    #[default]
    AsSent,
    /// Middleware decodes it.
    Decoded,
}

impl CodedContent {
    /// Returns whether the content has a coding that a route refuses.
    pub(super) fn is_refused(self, takes: Takes, request: &Request) -> bool {
        let codings = request.headers().get_all("content-encoding");
        match self {
            Self::Decoded => !is_decodable(codings),
            Self::AsSent => matches!(takes, Takes::Content | Takes::Stream) && is_coded(codings),
        }
    }

    /// Returns whether middleware decodes the content of a request.
    pub(super) fn is_decoded(self, request: &Request) -> bool {
        self == Self::Decoded && request.headers().contains("content-encoding")
    }
}

/// The content is not what its `Content-Encoding` says: it is malformed, ends early, or has bytes
/// after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodedContentError;

impl fmt::Display for CodedContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the content cannot be decoded as its `Content-Encoding` says")
    }
}

impl StdError for CodedContentError {}

impl From<CodedContentError> for io::Error {
    fn from(error: CodedContentError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}
