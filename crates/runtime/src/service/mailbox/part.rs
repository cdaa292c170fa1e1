//! What is queued at once.

use bytes::Bytes;

/// Bytes that are sent in one piece, unless they are long.
#[derive(Debug)]
pub(crate) struct Part {
    pub(super) bytes: Bytes,
    /// A later part with the same key replaces this one while it waits.
    pub(super) key: Option<u64>,
}

impl Part {
    pub(crate) fn keyed(key: u64, bytes: Bytes) -> Self {
        Self { bytes, key: Some(key) }
    }
}

impl From<Bytes> for Part {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, key: None }
    }
}
