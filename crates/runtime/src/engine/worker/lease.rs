//! Leases. If a connection's requests block repeatedly and no request waits for a thread, a thread
//! keeps the connection and waits for its next request itself.

use super::Worker;
use crate::engine::connection::Connection;
use crate::execution::lease::QUIET;
use crate::protocol::http::Http;

impl Worker<'_> {
    /// Returns whether this thread, which leads no loop, keeps a connection that waits for its next
    /// request. It does if the connection's requests block repeatedly and no request waits for a
    /// thread.
    pub(super) fn keeps(&mut self, connection: &mut Connection) -> bool {
        let engine = &self.engine;
        if !connection.lease.is_due()
            || !self.buffers.input.is_empty()
            || connection.is_writing()
            || !connection.guest.as_http().is_some_and(Http::is_reading_request)
            || !engine.crowd.may_lease()
            || engine.pool.is_short()
            || engine.seats.is_short()
            || self.seat.as_ref().is_some_and(|seat| seat.is_vital() || seat.is_limited())
            || engine.is_draining()
        {
            return false;
        }
        if !connection.lease.is_on() {
            if connection.hold(QUIET).is_err() {
                return false;
            }
            connection.lease.begin();
            engine.counters.leases.increment();
            engine.counters.leased.increment();
        }
        true
    }

    pub(super) fn end_lease(&self, connection: &mut Connection) {
        if connection.lease.end() {
            self.engine.counters.leased.decrement();
        }
    }
}
