//! State machines that are guests of the engine: they are given bytes and give bytes.

pub(crate) mod http;
pub(crate) mod proxy;
pub(crate) mod tcp;
