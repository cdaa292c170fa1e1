//! Passing listeners and idle connections on to the next process.
//!
//! While the server hands over, it drains, with one difference: a plain connection that waits for
//! its next request is given to a thread that sends it to the next process. The worker does that
//! where it would otherwise park or close the connection, so this also covers connections that
//! finish their requests later.

use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use super::Engine;
use super::connection::Connection;
use super::event_loop::Message;
use super::listener::Accepted;
use crate::budget::memory::WakeLoops;
use crate::protocol::{Guest, Waiting};

/// How long a server that has ended waits until its last connections are sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a loop may take to return its listeners.
const LISTENERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The way to the thread that sends connections to the next process.
#[derive(Debug, Default)]
pub(super) struct Handover {
    is_active: AtomicBool,
    /// Whether the previous process still sends connections.
    is_receiving: AtomicBool,
    outbox: Mutex<Option<Outbox>>,
}

#[derive(Debug)]
struct Outbox {
    connections: Sender<Box<Connection>>,
    /// Disconnected when the last connection was sent.
    is_flushed: Receiver<()>,
}

impl Engine {
    /// Returns whether the connection is given to the next process as soon as it is idle.
    #[cold]
    pub(crate) fn may_hand_over(&self, connection: &Connection) -> bool {
        // The caller has read that the server drains. The fence lets it read the reason too.
        fence(Ordering::Acquire);
        self.is_handing_over()
            && connection.transport.is_plain()
            && match &connection.guest {
                Guest::Http(_) => true,
                Guest::Preamble(preamble) => preamble.precedes_http(),
                _ => false,
            }
    }

    /// Returns whether the connection is given to the next process now.
    #[cold]
    pub(crate) fn hands_over(&self, connection: &Connection, has_input: bool) -> bool {
        self.may_hand_over(connection)
            && !connection.is_writing()
            && matches!(connection.guest.waits_for(has_input), Waiting::Idle | Waiting::Head)
    }

    pub(crate) fn is_handing_over(&self) -> bool {
        self.handover.is_active.load(Ordering::Relaxed)
    }

    /// Returns whether connections of the previous process may still come.
    pub(crate) fn is_receiving(&self) -> bool {
        self.handover.is_receiving.load(Ordering::Acquire)
    }

    /// Records that the previous process begins to send its connections.
    pub(crate) fn begin_receiving(&self) {
        self.handover.is_receiving.store(true, Ordering::Release);
    }

    /// Records that the previous process has sent its last connection. Loops that have waited for
    /// this may end.
    pub(crate) fn end_receiving(&self) {
        self.handover.is_receiving.store(false, Ordering::Release);
        self.wake_loops();
    }

    /// Begins to hand over to the next process, which serves already. The caller sends the returned
    /// connections. When the last one is sent, it drops the sender of `flushed`.
    pub(crate) fn begin_handover(&self, flushed: Receiver<()>) -> Receiver<Box<Connection>> {
        let (connections, receiver) = unbounded();
        *self.handover.outbox.lock() = Some(Outbox { connections, is_flushed: flushed });
        self.handover.is_active.store(true, Ordering::SeqCst);
        self.shutdown(self.config.drain_timeout);
        receiver
    }

    /// Sends a connection to the next process. If it cannot be sent, it is closed.
    #[cold]
    pub(crate) fn hand_over(&self, mut connection: Box<Connection>) {
        // The next process has the same socket, so closing it here would not end its registration
        // with the poller.
        if connection.release_hold().and_then(|()| connection.unwatch()).is_err() {
            return;
        }
        if let Some(outbox) = &*self.handover.outbox.lock() {
            let _ = outbox.connections.send(connection);
        }
    }

    /// Waits until all connections are sent. Called when the last loop has ended.
    pub(super) fn flush_handover(&self) {
        let outbox = self.handover.outbox.lock().take();
        if let Some(Outbox { connections, is_flushed }) = outbox {
            drop(connections);
            let _ = is_flushed.recv_timeout(FLUSH_TIMEOUT);
        }
    }

    /// Returns further handles of all listeners.
    pub(crate) fn clone_listeners(&self) -> Vec<OwnedFd> {
        let (sender, receiver) = unbounded();
        for handle in self.loops.get().into_iter().flatten().filter_map(Weak::upgrade) {
            handle.send(Message::CloneListeners(sender.clone()));
        }
        drop(sender);
        let mut listeners = Vec::new();
        while let Ok(listener) = receiver.recv_timeout(LISTENERS_TIMEOUT) {
            listeners.push(listener);
        }
        listeners
    }

    /// Continues a connection of the previous process. `number` selects the loop.
    pub(crate) fn resume(&self, mut resumed: Resumed, number: usize) {
        let accepted = &mut resumed.accepted;
        // The connection is not refused, because the previous process has accepted it.
        accepted.counts_for = self.admit(accepted.peer).unwrap_or_default();
        let loops = self.loops.get().map(|loops| &**loops).unwrap_or_default();
        let handle = loops.get(number % loops.len().max(1)).and_then(Weak::upgrade);
        if let Some(handle) = handle {
            self.counters.accepted.increment();
            handle.resume(resumed);
        }
    }
}

/// A connection of the previous process, and the bytes that were read there and not used.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) accepted: Accepted,
    pub(crate) leftover: Vec<u8>,
    /// How long the head may still take, if it has begun or is the first one.
    pub(crate) head_ends_in: Option<Duration>,
}
