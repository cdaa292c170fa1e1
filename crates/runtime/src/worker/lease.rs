//! The lease: a thread keeps a connection that blocks it again and again, as long as nobody else
//! waits for a thread, and waits for its next request itself.

use std::time::Duration;

use super::Worker;
use crate::connection::Connection;

/// Blocking requests in a row on one connection after which its thread keeps it.
const LEASE_ROW: u8 = 2;

/// How long the thread waits before it gives the connection back. A client in a closed loop comes
/// sooner; and this is how long others may have to wait for a thread on a lease.
const LEASE_QUIET: Duration = Duration::from_millis(4);

impl Worker<'_> {
    /// Whether this thread keeps a connection that waits for its next request: it has blocked its
    /// thread again and again, and nobody else waits for one.
    pub(super) fn keeps(&mut self, connection: &mut Connection) -> bool {
        let engine = &self.engine;
        if self.lead.is_some()
            || connection.blocked_row < LEASE_ROW
            || !self.buffers.input.is_empty()
            || connection.is_writing()
            || !connection.http.is_reading_request()
            || engine.pool.is_anyone_waiting()
            || engine.is_draining()
        {
            return false;
        }
        if !connection.is_leased {
            if connection.hold(LEASE_QUIET).is_err() {
                return false;
            }
            connection.is_leased = true;
            engine.counters.leases.increment();
            engine.counters.leased.increment();
        }
        true
    }

    pub(super) fn end_lease(&self, connection: &mut Connection) {
        if std::mem::take(&mut connection.is_leased) {
            self.engine.counters.leased.decrement();
        }
    }
}
