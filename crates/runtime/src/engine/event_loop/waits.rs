//! Counting what the idle connections of a loop wait for. Nothing is counted while nobody asks, so
//! that requests do not pay for it.

use crossbeam_channel::Sender;

use super::{EventLoop, Turn};
use crate::engine::connection::Connection;
use crate::metrics::timeouts::Awaited;
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
        match connection.awaited(!connection.leftover.is_empty()) {
            Awaited::Handshake => &mut self.handshake,
            Awaited::FirstByte => &mut self.first_byte,
            Awaited::Head => &mut self.head,
            Awaited::Content => &mut self.content,
            Awaited::ResponseTaken => &mut self.response,
            Awaited::NextRequest => &mut self.request,
            Awaited::Stream => &mut self.stream,
            Awaited::Close => &mut self.close,
            Awaited::Other => &mut self.other,
        }
    }
}
