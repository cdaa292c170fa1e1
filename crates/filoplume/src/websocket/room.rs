//! Rooms: sockets that receive the same messages.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use filoplume_runtime::tcp::LastingMemory;
use filoplume_websocket::{CloseCode, Encoder};
use parking_lot::{Mutex, MutexGuard};

use super::message::{AsMessage, MessageRef};
use super::outbox::{Backlog, Form, Outbox};
use super::pace::{Overrun, note_crowded};
use super::room_counts::RoomCounts;
use super::rooms::RoomsInner;
use super::socket::{SendError, Socket};

/// What a room with a name takes in addition to its name: itself, its entry among the others, and
/// the list of its members.
const NAMED_ROOM_BYTES: usize = 512;

/// A set of sockets that receive the same messages. Clones refer to the same room.
///
/// A message is encoded once, and all members share its bytes. They receive the messages of a room
/// in the same order. A member leaves when its socket closes. A member that reads too slowly is
/// disconnected, unless the room [skips](Self::skip_slow) it.
///
/// A socket whose closure sends more to a room than the members read is read more slowly: while
/// more than half of its [bound](super::WebSocketUpgrade::unsent_bytes_max) waits for a member, the
/// next message of the sender waits too, until that member has caught up, and 3 seconds at most. So
/// fast senders cause no disconnect of a member that keeps reading half a megabyte per second or
/// more. A slow member slows down a fast sender, unless the room skips slow members.
///
/// Several senders at once may exceed the bound of a member. The member is disconnected only if it
/// has taken nothing for 3 seconds, if 16 times its bound waits for it, or if the memory of the
/// server is used up. While its bound is exceeded, the next message of every socket in that room
/// waits, for 3 seconds at most. A room that skips slow members skips them at the bound. What
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
    pub(super) inner: Arc<RoomInner>,
}

pub(super) struct RoomInner {
    slow: SlowMembers,
    members: Mutex<Members>,
    pub(super) overrun: Overrun,
    /// The counts of all rooms of its home, if it has one.
    counts: Arc<RoomCounts>,
    /// The rooms that this one belongs to, and its name there.
    home: Option<(Weak<RoomsInner>, Arc<str>)>,
}

#[derive(Default)]
struct Members {
    /// By the ID of the socket. That is the order in which the sockets were opened, and mostly the
    /// order of their memory.
    all: BTreeMap<u64, Arc<Outbox>>,
    /// Members that were behind after the last message was queued. Some may have caught up since.
    behind: Vec<Arc<Outbox>>,
    /// The member that is charged for this room.
    carrier: Option<u64>,
    /// Whether this room has a name, and its last member has left. From then on another room has
    /// the name, and this one stays empty.
    is_over: bool,
}

impl Members {
    fn remove(&mut self, id: u64) {
        self.all.remove(&id);
        self.behind.retain(|outbox| outbox.id != id);
    }
}

/// What happens to members that read more slowly than others write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SlowMembers {
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

    pub(super) fn with(
        slow: SlowMembers,
        counts: Arc<RoomCounts>,
        home: Option<(Weak<RoomsInner>, Arc<str>)>,
    ) -> Self {
        let (members, overrun) = (Mutex::default(), Overrun::default());
        Self { inner: Arc::new(RoomInner { slow, members, overrun, counts, home }) }
    }

    /// Adds a socket. It leaves when it closes.
    pub fn join(&self, socket: &Socket) {
        if self.inner.add(socket) {
            return;
        }
        if let Some((home, name)) = self.inner.home() {
            home.join(name, socket);
        }
    }

    /// Removes a socket.
    pub fn leave(&self, socket: &Socket) {
        if let Some(inner) = self.now() {
            inner.leave(socket);
        }
    }

    /// Returns this room, or the room that has its name now if the last member has left this one.
    fn now(&self) -> Option<Arc<RoomInner>> {
        if !self.inner.members.lock().is_over {
            return Some(Arc::clone(&self.inner));
        }
        let (home, name) = self.inner.home()?;
        home.get(name).map(|room| room.inner)
    }

    /// Sends a message to all members.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn broadcast(&self, message: impl AsMessage) -> Broadcast {
        self.inner.pass_on(message.as_message());
        self.send(message.as_message(), None)
    }

    /// Sends a message to all members but one.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn broadcast_except(&self, except: &Socket, message: impl AsMessage) -> Broadcast {
        self.inner.pass_on(message.as_message());
        self.send(message.as_message(), Some(except.id()))
    }

    /// Sends a message to the members on this instance.
    pub(super) fn send(&self, message: MessageRef<'_>, except: Option<u64>) -> Broadcast {
        self.now().map(|inner| inner.broadcast(message, except)).unwrap_or_default()
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
        self.now().map_or(0, |inner| inner.members.lock().all.len())
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
    /// The members stay locked, so that all of them get the messages in the same order. Sending
    /// runs no code of the program and never waits for a peer.
    fn broadcast(self: &Arc<Self>, message: MessageRef<'_>, except: Option<u64>) -> Broadcast {
        let mut members = self.members.lock();
        let Members { all, behind, .. } = &mut *members;
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

    /// Notes a sender at a member that is behind, so that it is woken when that member has caught
    /// up. Returns how long the sender has to wait at most, or `None` if it does not have to.
    pub(super) fn wait_for_members(&self, sender: &Arc<Outbox>) -> Option<Duration> {
        let mut members = self.members.lock();
        let Members { behind, .. } = &mut *members;
        for index in (0..behind.len()).rev() {
            // A sender does not wait for itself: what waits for it is sent before it is read again.
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

    /// Returns the rooms that this one belongs to, while they exist, and its name there.
    fn home(&self) -> Option<(Arc<RoomsInner>, &str)> {
        let (home, name) = self.home.as_ref()?;
        Some((home.upgrade()?, name))
    }

    /// Sends a message to the members on other instances.
    fn pass_on(&self, message: MessageRef<'_>) {
        if let Some((home, name)) = self.home() {
            home.pass_on(name, message);
        }
    }

    /// Adds a socket, unless this room is over. If the socket is closed, it leaves at once.
    pub(super) fn add(self: &Arc<Self>, socket: &Socket) -> bool {
        let outbox = &socket.outbox;
        // Without the lock on the members: peers that join again and again must not keep others
        // from it.
        if outbox.is_in(self) {
            return true;
        }
        let mut members = self.members.lock();
        if members.is_over {
            return false;
        }
        let carries = members.carrier.is_none();
        members.all.insert(outbox.id, Arc::clone(outbox));
        // With the lock, as in `leave`: a socket that knows a room is always a member of it.
        let has_joined = outbox.joined(self, if carries { self.bytes() } else { 0 });
        if !has_joined {
            members.remove(outbox.id);
            self.end_if_empty(members);
        } else if carries {
            members.carrier = Some(outbox.id);
        }
        true
    }

    /// The socket forgets the room first, so that it joins again if it does not find the room.
    fn leave(self: &Arc<Self>, socket: &Socket) {
        let mut members = self.members.lock();
        let is_carrier = members.carrier == Some(socket.id());
        let was_in = socket.outbox.left(self, if is_carrier { self.bytes() } else { 0 });
        members.remove(socket.id());
        // A socket that has closed is charged until `remove_closed`.
        if is_carrier && was_in {
            self.hand_over(&mut members);
        }
        self.end_if_empty(members);
    }

    /// Returns how much memory this room takes without its members. The program makes those without
    /// a name, and clients those with one.
    fn bytes(&self) -> usize {
        self.home.as_ref().map_or(0, |(_, name)| NAMED_ROOM_BYTES + name.len())
    }

    /// Removes a socket that has closed. `memory` is what is charged for the rooms that it was in.
    pub(super) fn remove_closed(self: &Arc<Self>, id: u64, memory: Option<&mut LastingMemory>) {
        let mut members = self.members.lock();
        members.remove(id);
        if members.carrier == Some(id) {
            // Before another member is charged, which would find no memory if both were.
            if let Some(memory) = memory {
                memory.try_set(memory.bytes().saturating_sub(self.bytes()));
            }
            self.hand_over(&mut members);
        }
        self.end_if_empty(members);
    }

    /// Charges a member for this room. If there is memory for it at none of them, members are
    /// closed and leave at once, which releases memory, until one of the others can be charged. So
    /// a room with members is charged to one of them, or to a closed socket until it has left.
    fn hand_over(self: &Arc<Self>, members: &mut Members) {
        let bytes = self.bytes();
        let next = members.all.values().find(|next| next.carry(self, bytes));
        members.carrier = next.map(|next| next.id);
        if members.carrier.is_some() {
            return;
        }
        while let Some((id, next)) = members.all.pop_first() {
            if next.carry(self, bytes) {
                members.carrier = Some(id);
                members.all.insert(id, next);
                break;
            }
            // Or it is closed already, and waits until it leaves.
            next.close_out_of_memory();
            next.left(self, 0);
        }
        let Members { all, behind, .. } = members;
        behind.retain(|outbox| all.contains_key(&outbox.id));
    }

    /// Notes that members have left. A room with a name is over when its last member has left.
    fn end_if_empty(self: &Arc<Self>, mut members: MutexGuard<'_, Members>) {
        if members.behind.is_empty() {
            self.overrun.set(false);
        }
        if self.home.is_none() || !members.all.is_empty() {
            return;
        }
        members.is_over = true;
        drop(members);
        if let Some((home, name)) = self.home() {
            home.forget(name, self);
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

#[cfg(test)]
mod tests;
