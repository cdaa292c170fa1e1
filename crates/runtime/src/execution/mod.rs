//! Who runs a call: the event loop's own thread or one of the pool's, and how a loop changes hands.
//!
//! `README.md` beside this file explains the states and the races, and what is decided by what.

pub(crate) mod crowd;
pub(crate) mod doze;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod metrics;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod policy;
pub(crate) mod probe;
pub(crate) mod routes;
pub(crate) mod scheduling;
#[cfg(test)]
mod simulator;
pub(crate) mod slot;
pub(crate) mod watchdog;
