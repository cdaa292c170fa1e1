//! Rooms that are found by their names.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::sync::OnceLock;

use filoplume_websocket::CloseCode;
use parking_lot::RwLock;

use super::message::{AsMessage, MessageRef};
use super::room::{Broadcast, Room, RoomInner, SlowMembers};
use super::room_counts::RoomCounts;
use super::socket::Socket;
#[cfg(feature = "redis")]
use crate::instances::{Membership, RedisChannel};
use crate::observe::Samples;

/// Longest name of a room. A socket may be in many rooms, and a long name uses up more of the
/// memory budget.
const NAME_BYTES_MAX: usize = 1024;

/// Rooms with names. A room exists while it has members. Clones refer to the same rooms.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::websocket::{Rooms, Socket, WebSocketUpgrade};
///
/// let app = App::new().state(Rooms::new()).websocket(
///     "/chat/{room}",
///     |Path(name): Path<String>, State(rooms): State<Rooms>, upgrade: WebSocketUpgrade| {
///         let (joined, sent_to) = ((rooms.clone(), name.clone()), (rooms, name));
///         upgrade
///             .on_open(move |socket: &Socket| joined.0.join(&joined.1, socket))
///             .on_message(move |_: &Socket, text: String| {
///                 sent_to.0.broadcast(&sent_to.1, text);
///             })
///     },
/// );
/// # app.test();
/// ```
#[derive(Clone, Default)]
pub struct Rooms {
    inner: Arc<RoomsInner>,
}

/// The lock on the rooms is never held together with the lock on the members of a room. So a
/// message to thousands of members does not keep a socket from joining another room.
#[derive(Default)]
pub(super) struct RoomsInner {
    slow: SlowMembers,
    counts: Arc<RoomCounts>,
    rooms: RwLock<HashMap<Arc<str>, Room>>,
    #[cfg(feature = "redis")]
    joined: OnceLock<Membership>,
}

impl RoomsInner {
    pub(super) fn get(&self, name: &str) -> Option<Room> {
        self.rooms.read().get(name).cloned()
    }

    /// Adds a socket to the room of this name. If that room has no members left, a new one takes
    /// its place: the thread that removed the last member may not have removed the room yet.
    pub(super) fn join(self: &Arc<Self>, name: &str, socket: &Socket) {
        let mut room = self.get(name).unwrap_or_else(|| {
            let owned = name.into();
            self.entry(&mut self.rooms.write(), owned).clone()
        });
        while !room.inner.add(socket) {
            let mut rooms = self.rooms.write();
            if rooms.get(name).is_some_and(|other| Arc::ptr_eq(&other.inner, &room.inner)) {
                rooms.remove(name);
            }
            room = self.entry(&mut rooms, name.into()).clone();
        }
    }

    /// Returns the room of this name, and makes it if there is none. The room and its entry share
    /// the name.
    fn entry<'a>(
        self: &Arc<Self>,
        rooms: &'a mut HashMap<Arc<str>, Room>,
        name: Arc<str>,
    ) -> &'a Room {
        rooms.entry(name).or_insert_with_key(|name| self.room(Arc::clone(name)))
    }

    fn room(self: &Arc<Self>, name: Arc<str>) -> Room {
        let home = (Arc::downgrade(self), name);
        Room::with(self.slow, Arc::clone(&self.counts), Some(home))
    }

    /// Removes a room that is over, unless another one has taken its place.
    pub(super) fn forget(&self, name: &str, room: &RoomInner) {
        let mut rooms = self.rooms.write();
        if rooms.get(name).is_some_and(|other| std::ptr::eq(&*other.inner, room)) {
            rooms.remove(name);
        }
    }

    /// Sends a message to the members of a room on other instances.
    #[cfg(feature = "redis")]
    pub(super) fn pass_on(&self, name: &str, message: MessageRef<'_>) {
        if let Some(joined) = self.joined.get() {
            joined.send(|wire| super::joined::write(name, message, wire));
        }
    }

    #[cfg(not(feature = "redis"))]
    #[allow(clippy::unused_self, reason = "with Redis, there are other instances")]
    pub(super) fn pass_on(&self, _: &str, _: MessageRef<'_>) {}
}

impl Rooms {
    /// Returns rooms that disconnect slow members.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns rooms whose slow members miss messages.
    pub fn skip_slow() -> Self {
        let inner = RoomsInner { slow: SlowMembers::Skip, ..RoomsInner::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Joins these rooms to those of other instances: see [`instances`](crate::instances). What is
    /// sent to a room reaches its members on all of them. Members are counted per instance. A
    /// second call has no effect.
    ///
    /// ```no_run
    /// use filoplume::instances::RedisChannel;
    /// use filoplume::websocket::Rooms;
    ///
    /// # fn main() -> filoplume::Result<()> {
    /// let rooms = Rooms::new().joined(&RedisChannel::new("redis://10.0.0.5/", "chat")?);
    /// rooms.broadcast("lobby", "hello");
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
    #[must_use]
    pub fn joined(self, channel: &RedisChannel) -> Self {
        let here = Arc::downgrade(&self.inner);
        self.inner.joined.get_or_init(|| {
            channel.join(super::joined::KIND, move |wire| {
                let (name, message) = super::joined::read(wire)?;
                if let Some(room) = here.upgrade().and_then(|here| here.get(name)) {
                    room.send(message, None);
                }
                Some(())
            })
        });
        self
    }

    /// Adds a socket to a room. It leaves when it closes.
    ///
    /// The name has at most 1,024 bytes, because it often comes from the client and stays in
    /// memory. With a longer one the socket stays out of the room and is closed with 1008.
    pub fn join(&self, name: &str, socket: &Socket) {
        if name.len() > NAME_BYTES_MAX {
            socket.outbox.close(CloseCode::POLICY_VIOLATION, "the name of the room is too long");
            return;
        }
        self.inner.join(name, socket);
    }

    /// Removes a socket from a room.
    pub fn leave(&self, name: &str, socket: &Socket) {
        if let Some(room) = self.get(name) {
            room.leave(socket);
        }
    }

    /// Sends a message to all members of a room. Returns how many members of this instance it was
    /// sent to.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn broadcast(&self, name: &str, message: impl AsMessage) -> Broadcast {
        let message = message.as_message();
        // There may be members on other instances only.
        self.inner.pass_on(name, message);
        self.get(name).map(|room| room.send(message, None)).unwrap_or_default()
    }

    /// Sends a value as JSON to all members of a room.
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized.
    #[cfg(feature = "json")]
    pub fn broadcast_json<T: serde::Serialize + ?Sized>(
        &self,
        name: &str,
        value: &T,
    ) -> crate::Result<Broadcast> {
        Ok(self.broadcast(name, serde_json::to_string(value)?))
    }

    /// Returns a room, if it has members.
    pub fn get(&self, name: &str) -> Option<Room> {
        self.inner.get(name)
    }

    /// Returns the number of members of a room.
    pub fn len_of(&self, name: &str) -> usize {
        self.get(name).map_or(0, |room| room.len())
    }

    /// Returns a collector for [`App::collector`](crate::App::collector), which adds these to the
    /// metrics, with this name as the label `rooms`: the rooms and their members, the messages to
    /// them, and how many times a message was sent to a member or met a slow one. All rooms are
    /// added up, because clients may choose their names.
    pub fn collector(&self, name: &str) -> impl Fn(&mut Samples) + Send + Sync + use<> {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        move |samples| {
            // Copied, so that the lock on the rooms is not held while this waits for the lock of
            // one.
            let rooms: Vec<Room> = inner.rooms.read().values().cloned().collect();
            let members = rooms.iter().map(Room::len).sum();
            let label = ("rooms", &*name);
            samples.gauge_of("filoplume_rooms", "Rooms with members.", &[label], rooms.len());
            samples.gauge_of(
                "filoplume_room_members",
                "Members of rooms. A socket in two rooms counts twice.",
                &[label],
                members,
            );
            inner.counts.collect(label, samples);
        }
    }

    /// Returns the names of all rooms with members, in no order.
    pub fn names(&self) -> Vec<String> {
        self.inner.rooms.read().keys().map(|name| name.to_string()).collect()
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms").field("rooms", &self.inner.rooms.read().len()).finish()
    }
}
