//! Accepting new connections: up to the maximum, spread over the loops.

use std::io;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Token;

use super::{EventLoop, FIRST_LISTENER, Message, Readiness, Scarce, Turn};
use crate::engine::listener::{Accepted, Listener, is_connection_error, is_out_of_descriptors};

/// Maximum number of connections accepted in a row before ready connections are served.
const ACCEPTS_MAX: usize = 64;

/// How long a loop stops accepting after an error that persists, such as a lack of descriptors.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Accepting {
    pub(super) listener: Listener,
    /// Whether there may be more to accept. The poller is edge-triggered and reports it once.
    pub(super) is_ready: bool,
}

impl EventLoop {
    pub(crate) fn add_listener(&mut self, mut listener: Listener) -> io::Result<()> {
        listener.register(self.poll.registry(), Token(FIRST_LISTENER + self.listeners.len()))?;
        self.listeners.push(Accepting { listener, is_ready: false });
        Ok(())
    }

    /// Accepts one connection for this loop, or chooses another one to close to make room.
    /// Connections beyond the share of this loop go to other loops.
    pub(super) fn accept(&mut self, now: Instant) -> Option<Turn> {
        if self.accept_again_at.is_some_and(|at| now < at) {
            return None;
        }
        loop {
            // A connection is accepted before there is room for it: the poller does not say whether
            // one is still waiting, and no other connection must be closed without need.
            let accepted = match self.waiting.take() {
                Some(accepted) => accepted,
                None => match self.next_accepted(now) {
                    Continue(accepted) => accepted,
                    Break(turn) => return turn,
                },
            };
            if let Break(turn) = self.find_room(now) {
                self.waiting = Some(accepted);
                return turn;
            }
            // Counted before another loop has it: otherwise all connections of a burst would find
            // room.
            self.handle.engine.counters.connections.increment();
            let Some(accepted) = self.pass_to_lighter(accepted) else { continue };
            self.handle.count_connection();
            return Some(Turn::Serve(self.adopt(accepted, now), Readiness::Io));
        }
    }

    /// Returns whether the current connection is at least the second one in a row that was
    /// accepted, so that more are probably waiting. Each one is served before the next one is
    /// accepted, so those that wait are not in the ready queue.
    pub(super) fn is_crowd_arriving(&self) -> bool {
        self.accepts_in_row > 1 && self.listeners.iter().any(|accepting| accepting.is_ready)
    }

    /// Accepts one connection, from any listener that has one. If there is none, breaks with the
    /// turn that must come first, if any.
    fn next_accepted(&mut self, now: Instant) -> ControlFlow<Option<Turn>, Accepted> {
        while let Some(index) = self.next_ready_listener() {
            if self.accepts_in_row >= ACCEPTS_MAX {
                break;
            }
            self.accepts_in_row += 1;
            match self.accept_from(index) {
                Ok(mut accepted) => {
                    // A crowd at one address must not keep the others waiting.
                    self.next_listener = index + 1;
                    self.handle.engine.counters.accepted.increment();
                    if self.has_place(&mut accepted) {
                        return Continue(accepted);
                    }
                    // Closed at once: a response would have to wait for the request.
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.listeners[index].is_ready = false;
                    if self.is_draining {
                        self.listeners.remove(index);
                    }
                }
                Err(error) if is_connection_error(&error) => {}
                Err(error) => {
                    self.handle.engine.counters.accept_errors.increment();
                    if is_out_of_descriptors(&error) {
                        self.handle.engine.counters.accepts_without_descriptor.increment();
                        if let Some(shed) = self.make_room(Scarce::Descriptors, now) {
                            return Break(Some(Turn::Shed(shed)));
                        }
                    }
                    self.pause_accepting(&error, now);
                    break;
                }
            }
        }
        Break(None)
    }

    /// Returns a listener that may have a connection: the one after the last that had one, or the
    /// next in turn.
    fn next_ready_listener(&self) -> Option<usize> {
        let is_ready = |&index: &usize| self.listeners[index].is_ready;
        let (first, all) = (self.next_listener.min(self.listeners.len()), 0..self.listeners.len());
        (first..all.end).find(is_ready).or_else(|| (0..first).find(is_ready))
    }

    /// Stops accepting for a while. The poller does not report the backlog again, so the loop tries
    /// to accept again after that time.
    #[cold]
    pub(super) fn pause_accepting(&mut self, error: &io::Error, now: Instant) {
        self.accept_again_at = Some(now + ACCEPT_PAUSE);
        if is_out_of_descriptors(error) {
            self.ask_for_room(Scarce::Descriptors);
        }
        if let Some(left_out) = self.handle.engine.accept_log.admit() {
            tracing::warn!(%error, pause = ?ACCEPT_PAUSE, left_out, "accepting pauses");
        }
    }

    /// Uncounts the connections that were passed to this loop, because it has ended.
    pub(super) fn forget_adopted(&self) {
        let connections = &self.handle.engine.counters.connections;
        let adopted = self.inbox.try_iter().filter(|message| matches!(message, Message::Adopt(_)));
        adopted.for_each(|_| connections.decrement());
    }

    /// Continues if there may be one more connection. At the maximum of connections or descriptors,
    /// it breaks with the connection to close. If this loop has none, it asks another loop to close
    /// one and stops accepting meanwhile.
    fn find_room(&mut self, now: Instant) -> ControlFlow<Option<Turn>> {
        let engine = &self.handle.engine;
        let connections_max = engine.connections_max;
        let connections = engine.counters.connections.get();
        let scarce = if connections >= connections_max as u64 {
            Scarce::Connections
        } else if engine.descriptors.have_room(connections) {
            return Continue(());
        } else {
            Scarce::Descriptors
        };
        if let Some(shed) = self.make_room(scarce, now) {
            return Break(Some(Turn::Shed(shed)));
        }
        self.accept_again_at = Some(now + ACCEPT_PAUSE);
        self.ask_for_room(scarce);
        if let Some(left_out) = self.handle.engine.full_log.admit() {
            tracing::warn!(
                connections_max,
                connections,
                held_descriptors = self.handle.engine.descriptors.held(),
                left_out,
                "the maximum of connections or descriptors is reached: new ones wait"
            );
        }
        Break(None)
    }

    /// Asks another loop to close a connection. Repeated calls ask one loop
    /// after another until one succeeds.
    #[cold]
    pub(super) fn ask_for_room(&mut self, scarce: Scarce) {
        if let Some(other) = self.handle.engine.fuller_loop(&self.handle, self.failed_room_requests)
        {
            other.send(Message::MakeRoom(Arc::clone(&self.handle), scarce));
            self.failed_room_requests += 1;
        }
    }

    fn accept_from(&self, index: usize) -> io::Result<Accepted> {
        let listener = &self.listeners[index].listener;
        #[cfg(all(test, target_os = "linux"))]
        if let Some(plan) = &self.handle.engine.config.faults {
            plan.before(crate::faults::Call::Accept, 0)?;
            let mut accepted = listener.accept()?;
            accepted.transport.fail_as(plan);
            return Ok(accepted);
        }
        listener.accept()
    }

    /// Counts the connection for its client. Returns `false` if the client already has its maximum,
    /// and `true` if a PROXY header is expected, because the client is not known yet.
    fn has_place(&self, accepted: &mut Accepted) -> bool {
        let engine = &self.handle.engine;
        if accepted.entry.expects_proxy_header {
            return true;
        }
        let Ok(counts_for) = engine.admit(accepted.peer) else {
            engine.refusals.note_full_client(accepted.peer);
            return false;
        };
        accepted.counts_for = counts_for;
        true
    }

    /// Gives a connection to a loop with fewer connections, if this one has more than its share.
    /// Returns the connection otherwise.
    pub(super) fn pass_to_lighter(&self, accepted: Accepted) -> Option<Accepted> {
        let engine = &self.handle.engine;
        // A loop that drains may end before the message arrives.
        let lighter = if engine.is_draining() { None } else { engine.lighter_loop(&self.handle) };
        let Some(lighter) = lighter else { return Some(accepted) };
        // Counted here and not on arrival: otherwise all connections of a burst would go to the
        // same loop.
        lighter.count_connection();
        match lighter.try_send(Message::Adopt(accepted)) {
            Err(Message::Adopt(accepted)) => Some(accepted),
            _ => None,
        }
    }
}
