//! TLS handshakes: computed on the pool, a few at a time, so that they do not delay the requests of
//! other connections. A loop on which nobody waits computes a short step itself.

use std::ops::ControlFlow::{Break, Continue};

use super::lined::Lined;
use super::{Flow, Outcome, Worker};
use crate::engine::connection::Connection;
use crate::execution::probe::on_processor;
use crate::metrics::timeouts::Awaited;
use crate::protocol::Guest;

impl Worker<'_> {
    /// Computes a step of a handshake, or gives it to the pool.
    #[cold]
    pub(super) fn advance_handshake(&mut self, mut connection: Box<Connection>) -> Flow {
        let Guest::Handshake(handshake) = &mut connection.guest else {
            return Continue(connection);
        };
        if self.lead.is_none() || !handshake.is_costly() {
            handshake.advance(self.buffers);
            return Continue(connection);
        }
        if self.may_compute_here() {
            self.compute_step(&mut connection);
            return Continue(connection);
        }
        self.stand_in_line(connection, Lined::Handshake)
    }

    /// Returns whether a leader may compute a step: no other connection waits for the loop, and
    /// steps are short enough for those that become ready meanwhile. Under load some connection
    /// always waits, and the pool computes.
    fn may_compute_here(&self) -> bool {
        let is_needed = self.lead.as_ref().is_none_or(|event_loop| event_loop.others().are_ready);
        !is_needed && self.engine.handshakes.are_short()
    }

    fn compute_step(&mut self, connection: &mut Connection) {
        let Guest::Handshake(handshake) = &mut connection.guest else { return };
        // Only processor time is measured. Where the system does not report it, no step counts as
        // short.
        let began = on_processor();
        handshake.advance(self.buffers);
        if let (Some(began), Some(ended)) = (began, on_processor()) {
            self.engine.handshakes.took(ended.saturating_sub(began));
        }
    }

    /// Continues in the session that the handshake has established.
    #[cold]
    pub(super) fn secure(&mut self, mut connection: Box<Connection>) -> Flow {
        // Sends the output of an earlier step. The output of the last step goes with the first
        // response.
        if connection.is_writing() {
            connection = self.flush(connection)?;
        }
        if let Guest::Handshake(handshake) = &mut connection.guest {
            if let Some(session) = handshake.finish(self.buffers) {
                connection.transport.secure(session);
                self.engine.counters.handshakes.increment();
                if connection.transport.tls_info().is_some_and(|info| info.is_resumed()) {
                    self.engine.counters.handshakes_resumed.increment();
                }
            }
        }
        self.replace_guest(connection)
    }

    /// Computes a step on a pool thread. The connection goes on there only until it waits or is
    /// secure: its requests belong to its loop.
    pub(super) fn compute(&mut self, mut connection: Box<Connection>) -> Outcome {
        self.buffers.clock.refresh();
        if connection.deadline <= self.buffers.clock.now() {
            self.engine.counters.timeouts.count(Awaited::Handshake);
            connection.guest.expire(false, self.buffers);
        } else {
            self.compute_step(&mut connection);
        }
        if !connection.guest.is_ready() {
            return self.serve(connection);
        }
        let mut connection = match self.flush_and_unload(connection) {
            Continue(connection) => connection,
            Break(outcome) => return outcome,
        };
        let is_writing = connection.is_writing();
        match connection.watch(is_writing) {
            Ok(()) => Outcome::Yielded(connection),
            Err(error) => self.give_up(connection, error),
        }
    }

    /// Charges what the session has received and nobody has read yet.
    #[inline(always)]
    pub(super) fn charge_held(&self, connection: &mut Connection) {
        let held = connection.transport.held_bytes();
        if held != connection.held_charge.bytes() {
            connection.held_charge.set(&connection.account, held);
        }
    }
}
