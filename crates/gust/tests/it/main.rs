//! The program against servers that are good, slow, broken or hostile.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "these are tests, and one may say why it skips"
)]

mod answers;
mod checks;
mod faults;
mod loads;
mod program;
mod rates;
mod reports;
mod servers;
