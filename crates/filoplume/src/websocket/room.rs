//! Rooms: sockets that receive the same messages.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
#[cfg(feature = "redis")]
use std::sync::OnceLock;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use filoplume_websocket::{CloseCode, Encoder};
use parking_lot::Mutex;

use super::message::{AsMessage, MessageRef};
use super::outbox::{Backlog, Form, Outbox};
use super::pace::{Overrun, note_crowded};
use super::room_counts::RoomCounts;
use super::socket::{SendError, Socket};
#[cfg(feature = "redis")]
use crate::instances::{Membership, RedisChannel};
use crate::observe::Samples;

/// A set of sockets that receive the same messages. Clones refer to the same room.
///
/// A message is encoded once, and all members share its bytes. They receive the messages of a room
/// in the same order. A member leaves when its socket closes. A member that reads too slowly is
/// disconnected, unless the room [skips](Self::skip_slow) it.
///
/// A socket whose closure sends more to a room than the members read is read more slowly: while
/// more than half of its [bound](super::WebSocketUpgrade::unsent_bytes_max) waits for a member, the
/// next message of the sender waits too, until that member has taken everything, and 3 seconds at
/// most. So fast senders get nobody disconnected who keeps reading, at half a megabyte per second
/// or more. A slow member slows down a fast sender, unless the room skips slow members.
///
/// Several senders at once may exceed the bound of a member. The member is disconnected only if it
/// has taken nothing for 3 seconds, if 16 times its bound waits for it, or if the memory of the
/// server is used up. Meanwhile the next message of every socket in that room waits, for 3 seconds
/// at most. A room that skips slow members skips them at the bound. What
/// threads of the program send, what sockets [on threads](super::WebSocketUpgrade::on_thread) send,
/// and what comes from other instances is not slowed down.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::websocket::{Room, Socket, WebSocketUpgrade};
///
/// let room = Room::new();
/// let everybody = room.clone();
/// let app = App::new().websocket("/chat", move |upgrade: WebSocketUpgrade| {
///     let (joined, everybody) = (everybody.clone(), everybody.clone());
///     upgrade.on_open(move |socket: &Socket| joined.join(socket)).on_message(
///         move |_: &Socket, text: String| {
///             everybody.broadcast(text);
///         },
///     )
/// });
/// # app.test();
/// assert_eq!(room.len(), 0);
/// ```
#[derive(Clone)]
pub struct Room {
    inner: Arc<RoomInner>,
}

pub(super) struct RoomInner {
    slow: SlowMembers,
    members: Mutex<Members>,
    pub(super) overrun: Overrun,
    /// Those of all its home, if it has one.
    counts: Arc<RoomCounts>,
    /// The rooms that this one belongs to, and its name there.
    home: Option<(Weak<RoomsInner>, Box<str>)>,
}

#[derive(Default)]
struct Members {
    /// By the number of the socket: in the order in which they were opened, which is mostly that of
    /// their memory.
    all: BTreeMap<u64, Arc<Outbox>>,
    /// Those that the last message found behind, or left there. Others may be here too.
    behind: Vec<Arc<Outbox>>,
}

impl Members {
    fn remove(&mut self, id: u64) {
        self.all.remove(&id);
        self.behind.retain(|outbox| outbox.id != id);
    }
}

/// What happens to members that read more slowly than others write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlowMembers {
    /// They are closed with 1008, and can connect again. Nobody misses a message without noticing.
    #[default]
    Disconnect,
    /// They miss messages.
    Skip,
}

/// How many members a message was sent to.
///
/// ```
/// use filoplume::websocket::Room;
///
/// let reached = Room::new().broadcast("is anybody here?");
/// assert_eq!((reached.sent, reached.slow), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broadcast {
    /// Members that the message was queued for.
    pub sent: usize,
    /// Members that read too slowly, and were disconnected or skipped.
    pub slow: usize,
}

impl Room {
    /// Returns an empty room that disconnects slow members.
    pub fn new() -> Self {
        Self::with(SlowMembers::default(), Arc::default(), None)
    }

    /// Returns an empty room whose slow members miss messages. For messages that replace each
    /// other, such as prices or positions.
    pub fn skip_slow() -> Self {
        Self::with(SlowMembers::Skip, Arc::default(), None)
    }

    fn with(
        slow: SlowMembers,
        counts: Arc<RoomCounts>,
        home: Option<(Weak<RoomsInner>, Box<str>)>,
    ) -> Self {
        let (members, overrun) = (Mutex::default(), Overrun::default());
        Self { inner: Arc::new(RoomInner { slow, members, overrun, counts, home }) }
    }

    /// Adds a socket. It leaves when it closes.
    pub fn join(&self, socket: &Socket) {
        let outbox = &socket.outbox;
        self.inner.members.lock().all.insert(outbox.id, Arc::clone(outbox));
        if !outbox.joined(&self.inner) {
            self.inner.remove(outbox.id);
        }
    }

    /// Removes a socket.
    pub fn leave(&self, socket: &Socket) {
        self.inner.remove(socket.id());
        socket.outbox.left(&self.inner);
    }

    /// Sends a message to all members.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn broadcast(&self, message: impl AsMessage) -> Broadcast {
        self.inner.pass_on(message.as_message());
        self.inner.broadcast(message.as_message(), None)
    }

    /// Sends a message to all members but one.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn broadcast_except(&self, except: &Socket, message: impl AsMessage) -> Broadcast {
        self.inner.pass_on(message.as_message());
        self.inner.broadcast(message.as_message(), Some(except.id()))
    }

    /// Sends a value as JSON to all members.
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized.
    #[cfg(feature = "json")]
    pub fn broadcast_json<T: serde::Serialize + ?Sized>(
        &self,
        value: &T,
    ) -> crate::Result<Broadcast> {
        Ok(self.broadcast(serde_json::to_string(value)?))
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.inner.members.lock().all.len()
    }

    /// Returns whether nobody is in the room.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("members", &self.len()).finish_non_exhaustive()
    }
}

impl RoomInner {
    /// The members stay locked, so that they all see the same order. Sending runs no code of the
    /// program and never waits for a peer.
    fn broadcast(self: &Arc<Self>, message: MessageRef<'_>, except: Option<u64>) -> Broadcast {
        let mut members = self.members.lock();
        let Members { all, behind } = &mut *members;
        behind.clear();
        let mut frames: Vec<(Form, Bytes)> = Vec::new();
        let mut result = Broadcast::default();
        let is_waited_for = self.slow == SlowMembers::Disconnect;
        let mut most = Backlog::Small;
        for outbox in all.values().filter(|outbox| Some(outbox.id) != except) {
            let form = outbox.form;
            let at = frames.iter().position(|(known, _)| *known == form).unwrap_or_else(|| {
                frames.push((form, form.encode(message).into()));
                frames.len() - 1
            });
            match outbox.share(&frames[at].1, is_waited_for) {
                Ok(backlog) => {
                    result.sent += 1;
                    if backlog >= Backlog::Behind && is_waited_for {
                        behind.push(Arc::clone(outbox));
                        most = most.max(backlog);
                    }
                }
                Err(SendError::Full | SendError::OutOfMemory) => {
                    result.slow += 1;
                    if is_waited_for {
                        let reason = "this client reads too slowly";
                        outbox.disconnect(CloseCode::POLICY_VIOLATION, reason);
                    }
                }
                Err(SendError::Closed) => {}
            }
        }
        if !behind.is_empty() {
            note_crowded(self);
        }
        self.overrun.set(most == Backlog::Overrun);
        self.counts.add(result);
        result
    }

    /// Makes a sender wait until another member is no longer behind. Returns how long the sender
    /// waits at most, or `None` if it does not wait.
    pub(super) fn wait_for_members(&self, sender: &Arc<Outbox>) -> Option<Duration> {
        let mut members = self.members.lock();
        let Members { behind, .. } = &mut *members;
        for index in (0..behind.len()).rev() {
            // What a sender is sent itself goes out before it is read again.
            if behind[index].id == sender.id {
                continue;
            }
            if let Some(time) = behind[index].wait_for(sender) {
                return Some(time);
            }
            behind.swap_remove(index);
        }
        if behind.is_empty() {
            self.overrun.set(false);
        }
        None
    }

    /// Sends a message to the members on other instances.
    fn pass_on(&self, message: MessageRef<'_>) {
        if let Some((home, name)) = &self.home {
            if let Some(home) = home.upgrade() {
                home.pass_on(name, message);
            }
        }
    }

    pub(super) fn remove(&self, id: u64) {
        let Some((home, name)) = &self.home else {
            self.members.lock().remove(id);
            return;
        };
        let home = home.upgrade();
        // Named rooms are removed with their last member. The lock on all of them comes first, as
        // it does when a socket joins.
        let mut rooms = home.as_ref().map(|home| home.rooms.lock());
        let mut members = self.members.lock();
        members.remove(id);
        let is_this = |room: &Room| std::ptr::eq(&*room.inner, self);
        if let (true, Some(rooms)) = (members.all.is_empty(), &mut rooms) {
            drop(members);
            if rooms.get(&**name).is_some_and(is_this) {
                rooms.remove(&**name);
            }
        }
    }
}

impl Form {
    fn encode(self, message: MessageRef<'_>) -> Vec<u8> {
        let mut encoder = Encoder::server();
        #[cfg(feature = "websocket-deflate")]
        if let Self::Deflated(window_bits, options) = self {
            let params = filoplume_websocket::DeflateParams {
                server_no_context_takeover: true,
                client_no_context_takeover: true,
                server_max_window_bits: window_bits,
                client_max_window_bits: 15,
            };
            encoder = encoder.with_deflate(&params, options);
        }
        let mut frame = Vec::new();
        match message {
            MessageRef::Text(text) => encoder.text(text, &mut frame),
            MessageRef::Binary(content) => encoder.binary(content, &mut frame),
        }
        frame
    }
}

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

#[derive(Default)]
struct RoomsInner {
    slow: SlowMembers,
    counts: Arc<RoomCounts>,
    rooms: Mutex<HashMap<Box<str>, Room>>,
    #[cfg(feature = "redis")]
    joined: OnceLock<Membership>,
}

impl RoomsInner {
    fn get(&self, name: &str) -> Option<Room> {
        self.rooms.lock().get(name).cloned()
    }

    /// Sends a message to the members of a room on other instances.
    #[cfg(feature = "redis")]
    fn pass_on(&self, name: &str, message: MessageRef<'_>) {
        if let Some(joined) = self.joined.get() {
            joined.send(|wire| super::joined::write(name, message, wire));
        }
    }

    #[cfg(not(feature = "redis"))]
    #[allow(clippy::unused_self, reason = "with Redis, there are other instances")]
    fn pass_on(&self, _: &str, _: MessageRef<'_>) {}
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
                    room.inner.broadcast(message, None);
                }
                Some(())
            })
        });
        self
    }

    /// Adds a socket to a room. It leaves when it closes.
    pub fn join(&self, name: &str, socket: &Socket) {
        let mut rooms = self.inner.rooms.lock();
        let room = rooms.entry(name.into()).or_insert_with(|| {
            let home = (Arc::downgrade(&self.inner), name.into());
            Room::with(self.inner.slow, Arc::clone(&self.inner.counts), Some(home))
        });
        let room = room.clone();
        room.inner.members.lock().all.insert(socket.id(), Arc::clone(&socket.outbox));
        drop(rooms);
        if !socket.outbox.joined(&room.inner) {
            room.inner.remove(socket.id());
        }
    }

    /// Removes a socket from a room.
    pub fn leave(&self, name: &str, socket: &Socket) {
        if let Some(room) = self.get(name) {
            room.leave(socket);
        }
    }

    /// Sends a message to all members of a room. Returns how many of this instance it was sent to.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn broadcast(&self, name: &str, message: impl AsMessage) -> Broadcast {
        let message = message.as_message();
        // There may be members on other instances only.
        self.inner.pass_on(name, message);
        self.get(name).map(|room| room.inner.broadcast(message, None)).unwrap_or_default()
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
    /// metrics, with the label `rooms` that has this name: the rooms and their members, the
    /// messages to them, and how many times a message was sent to a member or met a slow one. All
    /// rooms are added up, because clients may choose their names.
    pub fn collector(&self, name: &str) -> impl Fn(&mut Samples) + Send + Sync + use<> {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        move |samples| {
            // Copied, so that no lock of a room is waited for with that on all of them.
            let rooms: Vec<Room> = inner.rooms.lock().values().cloned().collect();
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
        self.inner.rooms.lock().keys().map(|name| name.to_string()).collect()
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms").field("rooms", &self.inner.rooms.lock().len()).finish()
    }
}
