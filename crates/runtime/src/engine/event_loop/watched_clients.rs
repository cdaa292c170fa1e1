//! Telling handlers that their clients have gone.
//!
//! A connection whose handler runs is taken, but its socket stays registered with the poller. An
//! event for it reaches only the slab, which keeps it for later. If the event says that the peer
//! has closed its direction, the handler is told at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::EventLoop;
use crate::engine::Engine;
use crate::engine::connection::slab::Missed;
use crate::service::latch::Latch;

/// The clients whose handlers are told when they have gone, by token. A handler that has returned
/// may still have an entry, until its connection is back. Its latch is sealed.
#[derive(Debug, Default)]
pub(super) struct WatchedClients {
    latches: HashMap<usize, Arc<Latch>>,
}

impl WatchedClients {
    /// Tells all handlers that the server does not wait for them any more.
    #[cold]
    pub(super) fn cancel_all(&mut self, engine: &Arc<Engine>) {
        for (_, latch) in self.latches.drain() {
            engine.cancel(latch);
        }
    }
}

impl EventLoop {
    /// Arranges that the latch is set when the peer of a taken connection closes its direction.
    #[cold]
    pub(crate) fn watch_client(&mut self, token: usize, latch: Arc<Latch>) {
        if self.slab.missed(token) == Missed::IoAndEnd {
            self.handle.engine.cancel(latch);
        } else {
            self.watched.latches.insert(token, latch);
        }
    }

    /// Ends [`watch_client`](Self::watch_client).
    #[inline]
    pub(crate) fn unwatch_client(&mut self, token: usize) {
        if !self.watched.latches.is_empty() {
            self.watched.latches.remove(&token);
        }
    }

    /// Called when the peer of a taken connection has closed its direction.
    #[cold]
    pub(super) fn client_has_gone(&mut self, token: usize) {
        if let Some(latch) = self.watched.latches.remove(&token) {
            self.handle.engine.cancel(latch);
        }
    }
}
