//! Runs the program against servers that are correct, slow, broken or hostile.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "these are tests, and a test may print why it is skipped"
)]

mod answers;
mod checks;
mod faults;
mod live;
mod loads;
mod program;
mod rates;
mod reports;
mod servers;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "top")]
mod top;
