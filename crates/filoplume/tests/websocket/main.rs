//! WebSockets over loopback.

#![cfg(feature = "websocket-deflate")]
#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

mod bounds;
mod client;
mod handshakes;
#[cfg(feature = "redis")]
mod joined;
mod memory;
mod on_thread;
mod pace;
mod rooms;
mod sockets;
mod zero_timeouts;
