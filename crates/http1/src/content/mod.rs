//! The content of a message.

pub(crate) mod chunked;
pub(crate) mod decoder;
