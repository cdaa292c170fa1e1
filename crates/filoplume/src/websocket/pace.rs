//! Slows down members of a room that send faster than the others read.
//!
//! Without this, one fast sender fills the bound of what waits for each member, and a room
//! disconnects members that would have read everything a moment later.
//!
//! A member is *behind* when more than half of its bound waits for it. A broadcast notes which
//! members are behind ([`Behind`] in the queue of each, and a list in the room). If the broadcast
//! was called by the closure of a socket, that socket is told which room was crowded ([`during`]),
//! and reads no further message while a member of that room is behind ([`Io::pause`]). No thread
//! waits: TCP's flow control makes the sender wait. The socket continues when that member has taken
//! what waits for it, which wakes the senders that are noted in its queue, or when [`PATIENCE`] is
//! over. Then it looks for another member that is behind. After [`PATIENCE`] it reads one message
//! in any case, so that many fast senders do not keep another one from being heard.
//!
//! A member that takes nothing for [`PATIENCE`] no longer holds up the room, and is disconnected
//! when its bound is reached. So the slowest member that senders wait for takes half of its bound
//! in that time, and no member makes a room slower than that. The time runs for all members that
//! are behind at once: it begins when a member gets behind, and again when it has taken about its
//! bound ([`Outbox::end`]) and is still behind.
//!
//! A message from a sender that is slowed down always has room: at most half of the bound waits for
//! each member before it, and such a member accepts one message of any length ([`Outbox::share`]).
//! Several senders at once may exceed the bound. That is not the fault of a slow member, so it is
//! not disconnected while senders wait for it, unless 16 times its bound waits already, or the
//! memory of the server is used up.
//!
//! A room is *overrun* while more than its bound waits for a member ([`Overrun`]). Then the next
//! message of each socket in that room, whether it has sent to the room before or not, is read only
//! when no member is behind, or after [`PATIENCE`]. So however many sockets send one message each
//! at once, only those whose messages are being handled exceed the bound: one per event loop and
//! per thread. Sockets that send to a room without being in it are not slowed down by this.
//!
//! No wake-up is lost: a sender is noted under the lock of the member's queue, while bytes wait
//! there, and the call that takes these bytes takes the notes under the same lock. If the member
//! closes, its notes are taken too. The lock on the members of a room is taken before the lock of a
//! queue, and senders are woken while neither is held.
//!
//! Senders to rooms that skip slow members, threads of the program, sockets on threads of their own
//! and other instances are not slowed down.
//!
//! [`Io::pause`]: filoplume_runtime::tcp::Io::pause

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::outbox::Outbox;
use super::room::RoomInner;

/// How long senders wait for a member that takes nothing. Linux reports that a socket has room when
/// a third of its buffer has become free, which is up to 1.4 MB. A member that reads 1 MiB per
/// second then takes nothing for 1.4 seconds, and this leaves it twice the time.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

thread_local! {
    /// Whether a closure of a socket runs on this thread, and the crowded room that it sent to.
    static NOTED: RefCell<Option<Noted>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Noted {
    crowded: Option<Weak<RoomInner>>,
}

/// Runs the closure of a socket. Returns the last room that it sent to and that has members that
/// are behind, if there was one.
pub(super) fn during(closure: impl FnOnce()) -> Option<Weak<RoomInner>> {
    NOTED.set(Some(Noted::default()));
    closure();
    NOTED.take().and_then(|noted| noted.crowded)
}

/// Tells the socket whose closure runs on this thread, if there is one, that members of the room
/// are behind.
#[cold]
pub(super) fn note_crowded(room: &Arc<RoomInner>) {
    NOTED.with_borrow_mut(|noted| {
        if let Some(noted) = noted {
            noted.crowded = Some(Arc::downgrade(room));
        }
    });
}

/// The number of overrun rooms. While it is zero, a message costs one load.
static OVERRUN: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any room is overrun.
pub(super) fn is_any_overrun() -> bool {
    OVERRUN.load(Ordering::Relaxed) > 0
}

/// Whether more than its bound waits for a member of a room. It changes under the lock on the
/// members.
#[derive(Default)]
pub(super) struct Overrun(AtomicBool);

impl Overrun {
    pub(super) fn set(&self, is_overrun: bool) {
        if self.is_set() == is_overrun {
            return;
        }
        self.0.store(is_overrun, Ordering::Relaxed);
        if is_overrun {
            OVERRUN.fetch_add(1, Ordering::Relaxed);
        } else {
            OVERRUN.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Overrun {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A member that is behind, and the senders that wait for it.
pub(super) struct Behind {
    since: Instant,
    /// In the order in which they were noted, by their ids.
    senders: Distinct<u64, Weak<Outbox>>,
}

impl Behind {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), senders: Distinct::new() }
    }

    /// Notes a sender. Returns how long it waits at most, or `None` if it does not wait.
    pub(super) fn wait(&mut self, sender: &Arc<Outbox>) -> Option<Duration> {
        let left = PATIENCE.checked_sub(self.since.elapsed()).filter(|left| !left.is_zero())?;
        // The sender may have been noted before, and woken for another reason.
        self.senders.insert_with(sender.id, || Arc::downgrade(sender));
        Some(left)
    }

    /// Returns whether senders still wait for this member: less than [`PATIENCE`] ago it took
    /// something, or was not yet behind.
    pub(super) fn has_time(&self) -> bool {
        self.since.elapsed() < PATIENCE
    }

    /// Restarts the time, because the member has taken something and is still behind.
    pub(super) fn start_again(&mut self) {
        self.since = Instant::now();
    }

    pub(super) fn wake_senders(self) {
        for sender in self.senders.values.iter().filter_map(Weak::upgrade) {
            sender.wake();
        }
    }
}

/// Values with different keys, in the order in which they were inserted. Senders insert themselves
/// under the locks of the room and of the member, so this must not take longer the more there are.
struct Distinct<K, V> {
    keys: HashSet<K>,
    values: Vec<V>,
}

impl<K: Eq + Hash, V> Distinct<K, V> {
    fn new() -> Self {
        Self { keys: HashSet::new(), values: Vec::new() }
    }

    /// Inserts a value, unless there is one with this key.
    fn insert_with(&mut self, key: K, value: impl FnOnce() -> V) {
        if self.keys.insert(key) {
            self.values.push(value());
        }
    }
}

#[cfg(test)]
impl Behind {
    pub(super) fn wait_as_if_for(&mut self, time: Duration) {
        self.since = Instant::now().checked_sub(time).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use filoplume_websocket::Encoder;

    use super::super::outbox::{Bounds, Form};
    use super::*;

    fn sender(id: u64) -> Arc<Outbox> {
        let bounds = Bounds { unsent_bytes_max: 1000, rooms_max: 1000 };
        Arc::new(Outbox::new(id, None, Form::Plain, Encoder::server(), bounds, None))
    }

    #[test]
    fn a_member_that_is_behind_is_waited_for_until_the_patience_is_over() {
        let (first, second) = (sender(1), sender(2));
        let mut behind = Behind::new();
        assert!(behind.has_time());
        for sender in [&first, &second, &first] {
            assert!(behind.wait(sender).is_some_and(|left| left <= PATIENCE));
        }
        assert_eq!(behind.senders.values.len(), 2, "each is woken once");

        behind.wait_as_if_for(PATIENCE);
        assert!(!behind.has_time());
        assert_eq!(behind.wait(&sender(3)), None);
        assert_eq!(behind.senders.values.len(), 2);
        behind.start_again();
        assert!(behind.has_time() && behind.wait(&first).is_some());
    }

    /// Regression: each of many senders was compared with all others, while the room was locked.
    #[test]
    fn many_senders_are_noted_again_without_comparing_all_of_them() {
        const SENDERS: u64 = 2000;

        thread_local! {
            static COMPARED: Cell<u64> = const { Cell::new(0) };
        }

        #[derive(Hash)]
        #[expect(clippy::derived_hash_with_manual_eq, reason = "equality is that of the ids")]
        struct Counted(u64);

        impl PartialEq for Counted {
            fn eq(&self, other: &Self) -> bool {
                COMPARED.set(COMPARED.get() + 1);
                self.0 == other.0
            }
        }

        impl Eq for Counted {}

        let mut noted = Distinct::new();
        for id in (0..SENDERS).chain((0..SENDERS).rev()) {
            noted.insert_with(Counted(id), || id);
        }
        assert!(noted.values.iter().copied().eq(0..SENDERS), "each once, in their order");
        let compared = COMPARED.get();
        assert!(compared <= 4 * SENDERS, "{compared} comparisons");
    }

    #[test]
    fn only_a_closure_of_a_socket_is_told_that_a_room_is_crowded() {
        let room = super::super::room::Room::new().inner;
        note_crowded(&room);
        assert!(during(|| {}).is_none(), "a thread of the program was told");
        let noted = during(|| note_crowded(&room)).and_then(|noted| noted.upgrade());
        assert!(noted.is_some_and(|noted| Arc::ptr_eq(&noted, &room)));
        assert!(during(|| {}).is_none(), "it is told once");
    }
}
