//! The fields of a message.

pub(crate) mod headers;
pub(crate) mod span;
