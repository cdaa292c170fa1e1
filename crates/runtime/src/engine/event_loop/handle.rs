//! The side of an event loop that every thread may use.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use mio::{Poll, Registry, Waker};

use super::{EventLoop, WAKER};
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::listener::Accepted;
use crate::engine::task::{Call, Task};
use crate::execution::doze::{Doze, FOR_EVER};
use crate::execution::key::ExecutionKey;
use crate::execution::slot::Slot;
use crate::execution::watchdog::Watched;
use crate::service::tcp::Look;

/// What a loop is told by other threads.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection comes back.
    Returned(Box<Connection>),
    /// A connection that was away is closed, or has become somebody else's.
    Closed(usize),
    /// Other threads have left something for a connection.
    Look(usize),
    /// A request has waited for a thread for too long.
    Late(Box<Call>),
    /// Another loop accepted more than its share.
    Adopt(Accepted),
    /// A loop has a new connection and no place for it: this one closes a connection that is idle.
    MakeRoom(Arc<LoopHandle>),
    /// Another loop has closed one.
    RoomMade,
}

/// The side of an event loop that every thread may use.
pub(crate) struct LoopHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) slot: Slot<EventLoop>,
    outbox: Sender<Message>,
    waker: Waker,
    registry: Registry,
    /// Whether the leader waits in the poller, so that a message needs a wake-up.
    pub(super) doze: Doze,
    born: Instant,
    pub(super) connections: AtomicUsize,
    pub(super) parked: AtomicUsize,
    /// The route of the handler that runs while the loop lies in its slot.
    pub(super) running: AtomicUsize,
    /// The system's number of the thread that leads, or led last; 0 if the system has none.
    leader: AtomicU32,
}

impl LoopHandle {
    pub(super) fn new(
        engine: &Arc<Engine>,
        poll: &Poll,
        outbox: Sender<Message>,
    ) -> io::Result<Self> {
        Ok(Self {
            engine: Arc::clone(engine),
            slot: Slot::new(),
            outbox,
            waker: Waker::new(poll.registry(), WAKER)?,
            registry: poll.registry().try_clone()?,
            doze: Doze::new(),
            born: Instant::now(),
            connections: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            leader: AtomicU32::new(0),
        })
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Connections of this loop, wherever they are.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that were parked when the loop last waited.
    pub(crate) fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    /// The route whose handler runs, or ran last.
    fn running(&self) -> ExecutionKey {
        ExecutionKey::at(self.running.load(Ordering::Relaxed))
    }

    /// The current thread leads from now on.
    pub(crate) fn led_by(&self, thread: u32) {
        self.leader.store(thread, Ordering::Relaxed);
    }

    /// One more connection is this loop's, even if it is still on its way.
    pub(super) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends a message. A loop that is gone takes nothing: its connections are closed then.
    pub(crate) fn send(&self, message: Message) {
        // Dropped is closed, which is what becomes of all connections of a loop that ends.
        let _ = self.try_send(message);
    }

    /// Sends a connection back. Its peer wakes the loop when it moves, so there is no need to:
    /// unless the peer has moved already, or nothing else wakes the loop before the connection's
    /// deadline.
    pub(crate) fn send_back(&self, connection: Box<Connection>) {
        let deadline = self.time(connection.deadline);
        // While memory is short the loop has to see what this one holds.
        if self.engine.is_draining() || self.engine.memory.is_pressed() {
            self.send(Message::Returned(connection));
            return;
        }
        // It waits for its peer from now on; the leader counts anew before it sleeps.
        self.parked.fetch_add(1, Ordering::Relaxed);
        if self.outbox.send(Message::Returned(connection)).is_ok()
            && self.doze.needs_waking_before(deadline)
        {
            self.wake();
        }
    }

    /// A point in time as the sleep of the leader has it.
    pub(super) fn time(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.born).as_nanos();
        u64::try_from(since).unwrap_or(FOR_EVER - 1).min(FOR_EVER - 1)
    }

    /// Sends a message, or gives it back if the loop is gone.
    pub(super) fn try_send(&self, message: Message) -> Result<(), Message> {
        self.outbox.send(message).map_err(|failed| failed.0)?;
        // Either the leader sees the message when it looks before it sleeps, or this sees it
        // asleep.
        if self.doze.needs_waking() {
            self.wake();
        }
        Ok(())
    }

    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "an event loop could not be woken");
        }
    }
}

impl Watched for LoopHandle {
    fn turn(&self) -> u64 {
        self.slot.turn()
    }

    fn leader(&self) -> u32 {
        self.leader.load(Ordering::Relaxed)
    }

    fn is_asleep(&self) -> bool {
        self.doze.is_asleep()
    }

    fn stand_by(&self) {
        let mut spare = self.engine.spare.lock();
        if spare.is_none() {
            *spare = self.engine.pool.reserve();
        }
    }

    fn stand_down(&self) {
        drop(self.engine.spare.lock().take());
    }

    fn hand_over(&self, turn: u64, held: Duration) -> bool {
        // First the thread, then the loop: a loop that was taken must not wait for a leader.
        let mut spare = self.engine.spare.lock();
        let Some(leader) = spare.take().or_else(|| self.engine.pool.reserve()) else {
            self.engine.counters.hand_overs_failed.increment();
            // The route is to leave the loops all the same: the next of its calls would hold
            // another one.
            let key = self.running();
            if self.slot.turn() == turn && self.engine.routes.stuck(key, held) {
                self.engine.counters.routes_learned.increment();
            }
            return true;
        };
        let Some((mut event_loop, taken_turn)) = self.slot.take() else {
            *spare = Some(leader);
            return false;
        };
        drop(spare);
        self.engine.counters.hand_overs.increment();
        // Between the look and the taking the handler may have returned and another one begun,
        // which is not to blame. The loop cannot be put back: its leader may have missed it
        // already.
        let is_caught = taken_turn == turn;
        if is_caught {
            let key = self.running();
            tracing::debug!(
                key = key.index(),
                "a handler did not return in time: its loop changes hands"
            );
            if self.engine.routes.caught(key, event_loop.route_mut(key), held) {
                self.engine.counters.routes_learned.increment();
            }
        }
        leader.run(Task::Lead(event_loop));
        is_caught
    }
}

impl Look for LoopHandle {
    fn look(&self, token: usize) {
        self.send(Message::Look(token));
    }
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle")
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}
