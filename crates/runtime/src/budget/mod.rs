//! What all clients share, and who may take how much of it. What is over a budget is refused,
//! counted by its reason, and logged at a bounded rate.

pub(crate) mod clients;
pub(crate) mod descriptors;
pub(crate) mod memory;
pub(crate) mod permits;
pub(crate) mod refusal;
pub(crate) mod seats;
pub(crate) mod streams;
pub(crate) mod throttle;
