//! Resources that all clients share, and the share that each client may have. A request over a
//! budget is refused, counted by its reason, and logged at a bounded rate.

pub(crate) mod account;
pub(crate) mod clients;
pub(crate) mod counts;
pub(crate) mod descriptors;
#[cfg(feature = "spool")]
pub(crate) mod disk;
pub(crate) mod estimates;
pub(crate) mod fair_queue;
#[cfg(feature = "spool")]
pub(crate) mod freed;
#[cfg(feature = "tls")]
pub(crate) mod handshakes;
pub(crate) mod held;
#[cfg(any(feature = "tls", feature = "spool"))]
pub(crate) mod line;
pub(crate) mod memory;
pub(crate) mod networks;
pub(crate) mod permits;
pub(crate) mod refusal;
pub(crate) mod seats;
#[cfg(feature = "spool")]
pub(crate) mod spool;
pub(crate) mod streams;
pub(crate) mod thresholds;
pub(crate) mod throttle;
pub(crate) mod turns;
