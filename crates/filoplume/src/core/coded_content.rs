//! The error of a content whose coding cannot be undone.

use std::error::Error as StdError;
use std::{fmt, io};

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
