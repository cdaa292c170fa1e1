//! Counting what the idle connections of a loop wait for. Nothing is counted while nobody asks, so
//! that requests do not pay for it.

use crossbeam_channel::Sender;

use super::{EventLoop, Turn};
use crate::engine::connection::Connection;
#[cfg(feature = "tls")]
use crate::protocol::Guest;
use crate::protocol::Waiting;
use crate::service::monitor::IdleConnections;

/// The loop looks at about this many connections, and scales up. Looking at one may be a cache
/// miss: the whole count then takes about a tenth of a millisecond.
const SAMPLE: usize = 1024;

impl EventLoop {
    /// Answers a message that asks what the idle connections wait for. No turn follows from it.
    pub(super) fn tell_waits(&self, sender: &Sender<IdleConnections>) -> Option<Turn> {
        // The thread that asked may have given up.
        let _ = sender.send(self.count_waits());
        None
    }

    fn count_waits(&self) -> IdleConnections {
        let step = self.slab.parked_len().div_ceil(SAMPLE).max(1);
        let mut idle = IdleConnections::default();
        for (_, connection) in self.slab.parked().step_by(step) {
            *idle.of(connection) += step as u64;
        }
        idle
    }
}

impl IdleConnections {
    /// Returns the count to which the connection belongs.
    fn of(&mut self, connection: &Connection) -> &mut u64 {
        if connection.unsent.is_some() {
            return &mut self.response;
        }
        #[cfg(feature = "tls")]
        if matches!(connection.guest, Guest::Handshake(_)) {
            return &mut self.handshake;
        }
        match connection.waits_for() {
            Waiting::Idle => &mut self.request,
            Waiting::Head if connection.leftover.is_empty() => &mut self.first_byte,
            Waiting::Head => &mut self.head,
            Waiting::Content { .. } => &mut self.content,
            Waiting::Stream { .. } => &mut self.stream,
            Waiting::Lingering => &mut self.close,
            Waiting::Other => &mut self.other,
        }
    }
}
