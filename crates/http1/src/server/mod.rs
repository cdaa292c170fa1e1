//! One connection of a server.

pub(crate) mod connection;
pub(crate) mod exchange;
