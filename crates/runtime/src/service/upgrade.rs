//! What follows on a connection after a `101`.

use std::fmt;

use super::blocking_stream::{OnThread, ReservedThread};
use super::tcp::Protocol;

/// What follows on a connection after a `101`.
pub(crate) enum Upgrade {
    /// A thread of the pool, which owns the connection.
    Thread(OnThread),
    /// As [`Thread`](Self::Thread), and the thread is reserved.
    Reserved(ReservedThread),
    /// A raw protocol on the event loop.
    Protocol(Box<dyn Protocol>),
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread(_) => "Thread",
            Self::Reserved(_) => "Reserved",
            Self::Protocol(_) => "Protocol",
        })
    }
}
