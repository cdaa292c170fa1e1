//! Listeners and connections that move to another process.

use std::os::fd::OwnedFd;
use std::time::Instant;

use crossbeam_channel::Sender;

use super::{EventLoop, Readiness, Turn};
use crate::buffers::Content;
use crate::engine::handover::Resumed;

impl EventLoop {
    /// Sends further handles of the listeners.
    #[cold]
    pub(super) fn clone_listeners(&self, sender: &Sender<OwnedFd>) {
        for accepting in &self.listeners {
            match accepting.listener.try_clone() {
                // The thread that asked may have given up.
                Ok(listener) => _ = sender.send(listener),
                Err(error) => tracing::warn!(%error, "a listener cannot be handed over"),
            }
        }
    }

    /// Stops accepting. The backlog belongs to the next process, which has the same sockets.
    pub(super) fn leave_listeners(&mut self) {
        for mut accepting in self.listeners.drain(..) {
            // Closing the socket would not end its registration.
            if let Err(error) = accepting.listener.leave(self.poll.registry()) {
                tracing::warn!(%error, "a listener could not be deregistered");
            }
        }
    }

    /// Continues a connection of the previous process.
    #[cold]
    pub(super) fn resume(&mut self, resumed: Resumed, now: Instant) -> Turn {
        let Resumed { accepted, leftover, head_ends_in } = resumed;
        self.handle.engine.counters.connections.increment();
        let mut connection = self.adopt(accepted, now);
        connection.guest.resume(head_ends_in.is_some());
        if let Some(remaining) = head_ends_in {
            // Never later than that of a new connection, whatever the previous process says.
            connection.deadline = connection.deadline.min(now + remaining);
        }
        connection.leftover = Content::of(leftover);
        Turn::Serve(connection, Readiness::Io)
    }
}
