//! The unit in which bytes are queued for a peer.

use bytes::Bytes;

/// Bytes that are queued together. Only long ones are sent in several pieces.
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
