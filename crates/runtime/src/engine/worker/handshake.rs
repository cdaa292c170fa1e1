//! TLS handshakes. A loop computes short steps itself, for a millisecond before it looks for events
//! again. All others are computed on the pool, a few at a time, so that they do not delay the
//! requests of other connections.

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

    /// Returns whether a leader may compute a step, after those that it has computed since its loop
    /// looked for events.
    fn may_compute_here(&self) -> bool {
        let computed = self.lead.as_ref().map(|event_loop| event_loop.computed_in_turn());
        computed.is_some_and(|computed| self.engine.handshakes.may_delay(computed))
    }

    fn compute_step(&mut self, connection: &mut Connection) {
        let Guest::Handshake(handshake) = &mut connection.guest else { return };
        // Only processor time is measured. Where the system does not report it, no step counts as
        // short.
        let began = on_processor();
        handshake.advance(self.buffers);
        if let (Some(began), Some(ended)) = (began, on_processor()) {
            let took = ended.saturating_sub(began);
            self.engine.handshakes.took(took);
            if let Some(event_loop) = &mut self.lead {
                event_loop.note_computed(took);
            }
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

#[cfg(all(test, feature = "tls-dev", not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::time::Duration;

    use super::super::tests::worker;
    use super::*;
    use crate::buffers::Buffers;
    use crate::engine::tests::{connection, event_loops, serving};
    use crate::protocol::handshake::Handshake;
    use crate::protocol::http::Http;
    use crate::tls::Tls;
    use crate::tls::acceptor::Acceptor;
    use crate::tls::handshake::Handshake as InMemory;

    #[test]
    fn a_loop_computes_short_steps_for_a_while_and_the_pool_the_others() {
        let engine = serving(Default::default(), |_: crate::Request| crate::Response::new(204));
        let [event_loop] = event_loops(&engine);
        let (mut connection, _client) = connection(&event_loop);
        let acceptor = Acceptor::new(Tls::development().unwrap()).unwrap();
        let next = Guest::Http(Http::new(None));
        let handshake = Handshake::before(next, InMemory::new(acceptor));
        connection.guest = Guest::Handshake(Box::new(handshake));
        let mut buffers = Buffers::take();
        let mut worker = worker(engine, &mut buffers, Some(Box::new(event_loop)));
        assert!(!worker.may_compute_here(), "nobody knows how long a step takes");
        worker.compute_step(&mut connection);
        let computed = |worker: &Worker<'_>| worker.lead.as_ref().unwrap().computed_in_turn();
        assert!(computed(&worker) > Duration::ZERO);
        assert!(worker.may_compute_here());
        worker.lead.as_mut().unwrap().note_computed(Duration::from_millis(1));
        assert!(!worker.may_compute_here(), "others have waited for a millisecond");
        let event_loop = worker.lead.take();
        assert!(!worker.may_compute_here(), "this thread has no loop");
        drop(event_loop);
        drop(worker);
        buffers.give_back();
    }
}
