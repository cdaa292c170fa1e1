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
#[cfg(feature = "redis")]
#[path = "../it/redis_server.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod redis_server;
mod rooms;
mod sockets;
