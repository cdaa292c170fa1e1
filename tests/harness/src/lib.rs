//! What tests use to look at a server from outside: a client that sends raw bytes, a browser,
//! processes, and waiting for conditions. None of it depends on our other crates, so a test of a
//! program does not compile features that the program does not have.
//!
//! Helpers panic like assertions do. A failure names the expected and the actual result.

#![allow(clippy::unwrap_used, reason = "these are tests, and a panic is how one fails")]
#![allow(clippy::missing_panics_doc, reason = "every helper panics if the test fails")]

mod browser;
mod child;
mod client;
mod free;
mod latency;
mod load;
mod process;
mod redis;
mod stream;
mod wait;

pub use browser::Browser;
pub use child::{Child, Example, cargo, installed};
pub use client::{Client, Ended, Framing, Response, ask, reset};
pub use free::free_address;
pub use latency::{GoodClient, Latencies};
pub use load::{Load, beside_others, one_at_a_time};
pub use process::{Process, may_open, with_descriptors};
pub use redis::Redis;
pub use stream::{is_cut_off, receive};
pub use wait::{DEADLINE, eventually, eventually_within, holds_for};
