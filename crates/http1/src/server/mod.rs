//! One connection of a server: which bytes may come next, and what follows an exchange.
//!
//! It keeps the order of messages and decides how a response is framed, whatever the handler says.
//! It has no buffer, no socket and no clock, and knows nothing of clients.

mod connection;
mod exchange;
mod framing;

pub use crate::server::connection::ServerConnection;
pub use crate::server::exchange::{CloseReason, Next};

#[cfg(test)]
mod tests;
