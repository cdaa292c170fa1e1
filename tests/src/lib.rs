//! Helpers for the tests of this package: servers in this process, attacks on them, and what
//! `harness` has for servers in other processes as well.
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
mod contents;
pub mod corpus;
mod gate;
mod noise;
pub mod record_client;
mod server;
pub mod tls;

pub use contents::{Buffered, Streamed, chunked, incompressible, pattern};
pub use gate::{Gate, gated};
pub use harness::{
    Browser, Child, Client, DEADLINE, Ended, Example, Framing, GoodClient, Latencies, Load,
    Process, Redis, Response, ask, eventually, eventually_within, free_address, holds_for,
    installed, is_cut_off, may_open, one_at_a_time, receive, reset, with_descriptors,
};
pub use noise::Noise;
pub use server::{TestServer, site};
