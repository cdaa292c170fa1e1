//! Decides where a call runs, on the event loop's thread or on a thread of the pool, and how a loop
//! passes to another thread.
//!
//! `README.md` beside this file explains the states, the races, and the inputs of each decision.

pub(crate) mod crowd;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod looks;
pub(crate) mod metrics;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod policy;
pub(crate) mod probe;
pub(crate) mod routes;
pub(crate) mod scheduling;
#[cfg(test)]
mod simulator;
pub(crate) mod sleep;
pub(crate) mod slot;
pub(crate) mod stuck;
pub(crate) mod watchdog;
