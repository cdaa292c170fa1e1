//! The heads of responses.

pub(crate) mod encode;
pub(crate) mod head;
mod plain;
