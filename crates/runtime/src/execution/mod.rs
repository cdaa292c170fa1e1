//! Who runs a call: the event loop's own thread or one of the pool's, and how a loop changes hands.
//!
//! `README.md` beside this file explains the states and the races.

pub(crate) mod doze;
pub(crate) mod learn;
pub(crate) mod lease;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod slot;
pub(crate) mod watchdog;
