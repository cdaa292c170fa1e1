//! The exporter against collectors on loopback.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod bounds;
mod collector;
mod decode;
mod foreign;
mod requests;
mod spans;
