//! One connection of a server: which bytes may come next, and what follows a request and its
//! response.
//!
//! This module keeps the order of messages and decides how a response is framed; the handler cannot
//! override it. It has no buffer, no socket and no clock, and does not use the client modules.

mod connection;
mod exchange;
mod framing;
mod partial;

pub use crate::server::connection::ServerConnection;
pub use crate::server::exchange::{CloseReason, Next};
