//! The part of an event loop that all threads share.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use mio::{Poll, Registry, Waker};

use super::{EventLoop, Scarce, WAKER};
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::exchange::Call;
#[cfg(unix)]
use crate::engine::handover::Resumed;
use crate::engine::listener::Accepted;
use crate::engine::task::Task;
use crate::execution::key::{Route, RouteId};
use crate::execution::looks::Looks;
use crate::execution::probe;
use crate::execution::sleep::{FOR_EVER, LeaderSleep};
use crate::execution::slot::Slot;
use crate::execution::stuck::{Caught, Turn};
use crate::execution::watchdog::{PERIOD_AFTER_WAIT, Watched};
use crate::metrics::MovedOnLoop;
use crate::service::latch::Latch;
use crate::service::mailbox::WakeConnection;
#[cfg(feature = "waits")]
use crate::service::monitor::IdleConnections;

/// A message from another thread to an event loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection is returned to its loop.
    Returned(Box<Connection>),
    /// A connection that was taken is closed, or no longer belongs to the engine.
    Closed(usize),
    /// Other threads have put bytes into a connection's mailbox.
    Notify(usize),
    /// The handler of a connection that was taken wants to be told when its client has gone.
    WatchClient(usize, Arc<Latch>),
    /// A request has waited too long for a thread.
    Late(Box<Call>),
    /// A response that has begun has waited for a thread for a long time.
    StillWaiting(Box<Connection>, Route),
    /// A connection that another loop accepted beyond its share.
    Adopt(Accepted),
    /// A loop has accepted a connection at the maximum, or lacks a descriptor, and asks this loop
    /// to close a connection.
    MakeRoom(Arc<LoopHandle>, Scarce),
    /// Descriptors are scarce, and a connection must be closed. A thread may wait for that: it gets
    /// an answer, or the end of the channel if there is no connection to close.
    Shed(Option<Sender<()>>),
    /// Another thread asks for further handles of the listeners.
    #[cfg(unix)]
    CloneListeners(Sender<std::os::fd::OwnedFd>),
    /// A connection of the previous process.
    #[cfg(unix)]
    Resume(Box<Resumed>),
    /// Another thread checks whether the loop responds.
    #[cfg(unix)]
    Ping(Sender<()>),
    /// Another thread asks what the idle connections wait for.
    #[cfg(feature = "waits")]
    CountWaits(Sender<IdleConnections>),
    /// Another loop has closed a connection.
    RoomMade,
}

/// The part of an event loop that all threads share.
pub(crate) struct LoopHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) slot: Slot<EventLoop>,
    outbox: Sender<Message>,
    waker: Waker,
    registry: Registry,
    /// Whether the leader sleeps in the poller, so that a message needs a wake-up.
    pub(super) sleep: LeaderSleep,
    born: Instant,
    pub(super) connections: AtomicUsize,
    pub(super) parked: AtomicUsize,
    /// What its connections have read and written. Only the leader adds to it.
    pub(crate) moved: MovedOnLoop,
    /// The route of the handler that runs while the loop is in its slot.
    pub(super) running: AtomicU64,
    /// The system's ID of the current or last leader's thread. 0 if the system has none.
    leader: AtomicU32,
    /// How often the loop was taken from a handler that did not return.
    handed_over: AtomicU64,
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
            sleep: LeaderSleep::new(),
            born: Instant::now(),
            connections: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            moved: MovedOnLoop::default(),
            running: AtomicU64::new(0),
            leader: AtomicU32::new(0),
            handed_over: AtomicU64::new(0),
        })
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the number of this loop's connections, parked or taken.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that were parked when the loop last waited.
    pub(crate) fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    /// Returns how often the loop was taken from a handler that did not return.
    pub(crate) fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Returns the route of the handler that runs, or ran last.
    fn running(&self) -> RouteId {
        RouteId::from_bits(self.running.load(Ordering::Relaxed))
    }

    /// Records that a thread has taken the loop from a running call, which began at `since`. Must
    /// be called before [`led_by`](Self::led_by) names the new leader.
    #[cold]
    pub(crate) fn note_lost(&self, turn: u64, since: Instant) {
        let caught = Caught { thread: self.leader(), route: self.running(), since };
        self.engine.calls.lost(self.turn_of(turn), caught);
    }

    /// Called by a late leader that has taken the loop from a running call, as the watchdog does.
    /// If the thread of that call waits, its route must leave the loops. Otherwise late leaders
    /// could take a loop from each other for ever, each from a call that waits, and the watchdog
    /// would hardly see one.
    #[cold]
    pub(crate) fn taken_by_late_leader(&self, event_loop: &mut EventLoop, turn: u64) {
        self.note_lost(turn, Instant::now());
        if probe::is_at_work(self.leader()) != Some(false) {
            return;
        }
        let key = self.running().key;
        // How long the call has been running is not known. The watchdog would take its loop within
        // this time.
        let held = 2 * PERIOD_AFTER_WAIT;
        if let Some(left) = self.engine.routes.caught(key, event_loop.route_mut(key), held) {
            self.engine.counters.routes_learned.increment();
            left.tell();
        }
    }

    /// Records that the call of this turn has returned and found its loop taken.
    #[cold]
    pub(crate) fn note_returned(&self, turn: u64) {
        self.engine.calls.returned(self.turn_of(turn), Instant::now());
    }

    /// Records a call that keeps the loop, because no other thread can lead it.
    #[cold]
    fn note_kept(&self, turn: u64, held: Duration) {
        let now = Instant::now();
        let since = now.checked_sub(held).unwrap_or(now);
        let caught = Caught { thread: self.leader(), route: self.running(), since };
        // If the turn has changed, another call may have begun, and what was read is of no use.
        if self.slot.turn() == turn {
            self.engine.calls.kept(self.turn_of(turn), caught);
        }
    }

    fn turn_of(&self, turn: u64) -> Turn {
        Turn { event_loop: self.number(), turn }
    }

    /// Returns a number that tells the loop from others.
    pub(crate) fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Records the thread that leads from now on.
    pub(crate) fn led_by(&self, thread: u32) {
        self.leader.store(thread, Ordering::Relaxed);
    }

    /// Counts one more connection for this loop, even if it has not arrived yet.
    pub(super) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Continues a connection of the previous process.
    #[cfg(unix)]
    pub(crate) fn resume(&self, resumed: Resumed) {
        self.count_connection();
        self.send(Message::Resume(Box::new(resumed)));
    }

    /// Sends a message. If the loop has ended, the message is dropped.
    pub(crate) fn send(&self, message: Message) {
        // Dropping a connection closes it, like all other connections of a loop that has ended.
        let _ = self.try_send(message);
    }

    /// Returns a connection to its loop. The loop is woken only if it would otherwise sleep past
    /// the connection's deadline, or the connection has missed readiness. In all other cases an
    /// event of the connection wakes the loop.
    pub(crate) fn return_parked(&self, connection: Box<Connection>) {
        let deadline = self.time(connection.deadline);
        // While memory is short, the loop must check what this connection holds.
        if self.engine.is_draining() || self.engine.memory.is_pressed() {
            self.send(Message::Returned(connection));
            return;
        }
        // Counted as parked until the leader counts again before it sleeps.
        self.parked.fetch_add(1, Ordering::Relaxed);
        if self.outbox.send(Message::Returned(connection)).is_ok()
            && self.sleep.needs_waking_before(deadline)
        {
            self.wake();
        }
    }

    /// Converts a point in time to the representation that `LeaderSleep` uses.
    pub(super) fn time(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.born).as_nanos();
        u64::try_from(since).unwrap_or(FOR_EVER - 1).min(FOR_EVER - 1)
    }

    /// Sends a message, or gives it back if the loop has ended.
    pub(super) fn try_send(&self, message: Message) -> Result<(), Message> {
        self.outbox.send(message).map_err(|failed| failed.0)?;
        // No wake-up is lost: either the leader sees the message in its check before it sleeps, or
        // this thread sees that the leader is asleep.
        if self.sleep.needs_waking() {
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
        self.sleep.is_asleep()
    }

    fn reserve_leader(&self) {
        let mut spare = self.engine.spare.lock();
        if spare.is_none() {
            *spare = self.engine.pool.reserve();
        }
    }

    fn release_leader(&self) {
        drop(self.engine.spare.lock().take());
    }

    fn look_at_calls(&self, looks: &mut Looks) -> bool {
        self.engine.look_at_calls(looks)
    }

    fn hand_over(&self, turn: u64, held: Duration) -> bool {
        // The thread is reserved before the loop is taken: a loop without a leader would not be
        // served.
        let mut spare = self.engine.spare.lock();
        let Some(leader) = spare.take().or_else(|| self.engine.pool.reserve()) else {
            self.engine.counters.hand_overs_failed.increment();
            self.note_kept(turn, held);
            // The route must leave the loops anyway: its next call would block another loop.
            let key = self.running().key;
            drop(spare);
            let is_current = self.slot.turn() == turn;
            if let Some(left) = is_current.then(|| self.engine.routes.stuck(key, held)).flatten() {
                self.engine.counters.routes_learned.increment();
                left.tell();
            }
            return true;
        };
        let Some((mut event_loop, taken_turn)) = self.slot.take() else {
            *spare = Some(leader);
            return false;
        };
        drop(spare);
        self.engine.counters.hand_overs.increment();
        self.handed_over.fetch_add(1, Ordering::Relaxed);
        // Between the check and the taking, the handler may have returned and another one may have
        // begun, which has not run for long. The loop cannot be put back, because its leader may
        // already have found the slot empty.
        let is_caught = taken_turn == turn;
        let now = Instant::now();
        let since = if is_caught { now.checked_sub(held).unwrap_or(now) } else { now };
        self.note_lost(taken_turn, since);
        let key = self.running().key;
        let left = is_caught
            .then(|| self.engine.caught(key, event_loop.route_mut(key), self.leader(), held))
            .flatten();
        leader.run(Task::Lead(event_loop));
        // Only now: what logs may block, such as the handler that was caught.
        if is_caught {
            let key = key.index();
            tracing::debug!(key, "a handler did not return in time: its loop changes hands");
        }
        if let Some(left) = left {
            left.tell();
        }
        is_caught
    }
}

impl WakeConnection for LoopHandle {
    fn wake_connection(&self, token: usize) {
        self.send(Message::Notify(token));
    }
}

impl fmt::Debug for LoopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandle")
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}
