//! Closing connections to make room for new ones.

use std::sync::Arc;

use super::{Outcome, Worker};
use crate::engine::connection::Connection;
use crate::engine::event_loop::{Message, Scarce, Shed};
use crate::protocol::Guest;

impl Worker<'_> {
    /// Closes a connection that its loop has chosen. If it was chosen as slow and its peer is no
    /// longer slow, it stays open, and the loop chooses another one.
    #[cold]
    pub(super) fn shed(&mut self, shed: Shed) {
        let Shed { mut connection, scarce, only_if_slow, asker, waiting } = shed;
        let loop_handle = Arc::clone(connection.loop_handle());
        if only_if_slow {
            // Served once more, as if its socket were ready.
            connection = self.load(connection);
            connection.can_read = true;
            match self.serve(connection) {
                Outcome::Parked(parked)
                    if parked.is_slow(&self.engine.config, self.buffers.clock.now()) =>
                {
                    connection = parked;
                }
                outcome => {
                    self.put(outcome);
                    self.count_moved();
                    if let Some(asker) = asker {
                        loop_handle.send(Message::MakeRoom(asker, scarce));
                    }
                    return;
                }
            }
        }
        self.note_shed(scarce);
        let outcome = if only_if_slow { self.end_slow(connection) } else { self.end(connection) };
        self.put(outcome);
        self.count_moved();
        if let Some(asker) = asker {
            asker.send(Message::RoomMade);
        }
        if let Some(waiting) = waiting {
            // The thread may have given up.
            let _ = waiting.try_send(());
        }
    }

    /// Closes an idle connection at once, also while another one is served.
    #[cold]
    pub(super) fn close_idle(&mut self, shed: Shed) {
        self.note_shed(shed.scarce);
        let outcome = self.end(shed.connection);
        // Not `put`, which clears the output: it belongs to the connection that is served.
        self.put_cold(outcome);
    }

    /// Ends the connection of a slow peer. A request that is not complete gets its response, if the
    /// socket takes it at once.
    fn end_slow(&mut self, connection: Box<Connection>) -> Outcome {
        if matches!(connection.guest, Guest::Raw(_)) {
            return self.end(connection);
        }
        let connection = self.load(connection);
        match self.expire(connection) {
            Outcome::Parked(connection) | Outcome::Yielded(connection) => self.end(connection),
            outcome => outcome,
        }
    }

    fn end(&mut self, mut connection: Box<Connection>) -> Outcome {
        self.set_resets(&mut connection);
        connection.guest.shed();
        Outcome::Closed(connection)
    }

    #[cold]
    #[inline(never)]
    fn note_shed(&self, scarce: Scarce) {
        let engine = &self.engine;
        engine.counters.connections_shed.increment();
        let why = match scarce {
            Scarce::Connections => "the maximum of connections is reached",
            Scarce::Descriptors => {
                engine.counters.shed_for_descriptors.increment();
                "no descriptor is free"
            }
        };
        if let Some(left_out) = engine.shed_log.admit() {
            tracing::warn!(
                connections_max = engine.connections_max,
                held_descriptors = engine.descriptors.held(),
                left_out,
                "a connection without a running request is closed, because {why}"
            );
        }
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::io::Read;

    use super::*;
    use crate::buffers::Buffers;
    use crate::engine::tests::{connection, event_loops, serving};
    use crate::engine::worker::tests::worker;

    #[test]
    fn a_slow_client_gets_an_answer_to_the_request_that_it_has_begun() {
        let engine = serving(Default::default(), |_: crate::Request| crate::Response::new(204));
        let [event_loop] = event_loops(&engine);
        let (mut connection, mut client) = connection(&event_loop);
        connection.leftover.extend(b"GET / HT");
        let mut buffers = Buffers::take();
        let mut worker = worker(engine, &mut buffers, None);
        let outcome = worker.end_slow(connection);
        assert!(matches!(outcome, Outcome::Closed(_)), "{outcome:?}");
        drop(outcome);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}
