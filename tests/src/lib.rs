//! Helpers for the tests of this package: servers in this process and in others, a client that
//! sends raw bytes, and waiting for conditions.
//!
//! Helpers panic like assertions do. A failure names the expected and the actual result.

#![allow(clippy::unwrap_used, reason = "these are tests, and a panic is how one fails")]
#![allow(
    clippy::print_stderr,
    reason = "what a server in a test logs is for those who read its output"
)]
#![allow(clippy::print_stdout, reason = "figures are for those who read the output of a test")]
#![allow(clippy::missing_panics_doc, reason = "every helper panics if the test fails")]

pub mod attack;
mod browser;
mod child;
mod client;
mod contents;
pub mod corpus;
mod gate;
mod latency;
mod load;
mod noise;
mod process;
pub mod record_client;
mod redis;
mod server;
mod stream;
pub mod tls;
mod wait;

pub use browser::Browser;
pub use child::{Child, Example, free_address, installed};
pub use client::{Client, Ended, Framing, Response, ask, reset};
pub use contents::{Buffered, Streamed, chunked, incompressible, pattern};
pub use gate::{Gate, gated};
pub use latency::{GoodClient, Latencies};
pub use load::{Load, one_at_a_time};
pub use noise::Noise;
pub use process::{Process, may_open, with_descriptors};
pub use redis::Redis;
pub use server::{TestServer, site};
pub use stream::{is_cut_off, receive};
pub use wait::{DEADLINE, eventually, eventually_within, holds_for};
