//! The heads of requests.

pub(crate) mod encode;
pub(crate) mod framing;
pub(crate) mod head;
pub(crate) mod parse;
mod plain;
pub(crate) mod target;
