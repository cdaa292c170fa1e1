//! What a socket has to send, shared by all threads that send to it.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use filoplume_runtime::tcp::{self, LastingMemory};
use filoplume_websocket::{CloseCode, CloseFrame, Encoder};
use parking_lot::Mutex;

use super::config::Config;
use super::frames::Frames;
use super::leaving::Leaving;
use super::memberships::{Memberships, NotJoined};
use super::message::MessageRef;
use super::pace::{self, Behind};
use super::room::RoomInner;
use super::socket::SendError;
use crate::observe::SocketCounts;

/// A buffer that grew beyond this is not kept by its thread.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// A call of the protocol may send this much, even if the bound is lower.
const CALL_BYTES_MIN: usize = 64 * 1024;
/// While the senders of a room wait for a member, up to this many times its bound may wait for that
/// member. Several senders at once exceed the bound by one message each, and a member that reads
/// nothing must not hold much.
const OVERRUN_FACTOR: usize = 16;

thread_local! {
    /// The buffer for what a closure sends. Idle sockets have none.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The bounds on what a socket holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) unsent_bytes_max: usize,
    pub(super) rooms_max: usize,
}

impl Bounds {
    pub(super) fn of(config: &Config) -> Self {
        let Config { unsent_bytes_max, rooms_max, .. } = *config;
        Self { unsent_bytes_max, rooms_max }
    }
}

/// A socket as the threads that send to it see it.
pub(super) struct Outbox {
    pub(super) id: u64,
    pub(super) subprotocol: Option<Box<str>>,
    /// The form of messages that are encoded once for several sockets.
    pub(super) form: Form,
    bounds: Bounds,
    /// Wakes the connection. Set when it opens.
    waker: OnceLock<tcp::Sender>,
    queue: Mutex<Queue>,
    /// Where the socket is counted, if the app counts sockets.
    counts: Option<Arc<SocketCounts>>,
}

/// How a message is encoded once for all sockets of the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Uncompressed. Sockets whose compression keeps a context accept this too.
    Plain,
    /// Compressed on its own, with a window of this many bits.
    #[cfg(feature = "websocket-deflate")]
    Deflated(u8, filoplume_websocket::DeflateOptions),
}

#[cfg(feature = "websocket-deflate")]
impl Form {
    /// Returns the form for a client that accepts a window of this many bits. Data that was
    /// compressed with a smaller window is valid for it too. The window is rounded down to one of
    /// few sizes, because each size costs every broadcast another compression.
    pub(super) fn deflated(
        window_bits_max: u8,
        options: filoplume_websocket::DeflateOptions,
    ) -> Self {
        let window_bits = match window_bits_max {
            15.. => 15,
            12..15 => 12,
            _ => 9,
        };
        Self::Deflated(window_bits, options)
    }
}

struct Queue {
    /// Frames in the order in which they are sent. Encoding and appending are one step, because
    /// compressed messages may refer to earlier ones.
    frames: Frames,
    encoder: Encoder,
    stage: Stage,
    turn: Turn,
    rooms: Memberships,
    /// Set while the socket is behind: from the message that exceeds half of its bound until at
    /// most half is unsent. Boxed, because few sockets are behind.
    behind: Option<Box<Behind>>,
}

/// How much waits for a member of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Backlog {
    /// At most half of the bound.
    Small,
    /// More than half: the member is behind.
    Behind,
    /// More than the bound.
    Overrun,
}

/// How far the closing handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// A close frame was queued: nothing may follow it.
    Closing,
    Closed,
}

/// When the frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// No call of the protocol is due: the next append wakes the connection.
    Waiting,
    /// The connection was woken.
    Woken,
    /// A call of the protocol runs, and sends the frames at its end.
    Running,
}

impl Turn {
    /// Returns whether the caller, which appends, has to wake the connection. Only the first one
    /// has to.
    fn must_wake(&mut self) -> bool {
        let must_wake = *self == Self::Waiting;
        if must_wake {
            *self = Self::Woken;
        }
        must_wake
    }
}

impl Outbox {
    pub(super) fn new(
        id: u64,
        subprotocol: Option<Box<str>>,
        form: Form,
        encoder: Encoder,
        bounds: Bounds,
        counts: Option<Arc<SocketCounts>>,
    ) -> Self {
        let queue = Queue {
            frames: Frames::default(),
            encoder,
            stage: Stage::Open,
            turn: Turn::Running,
            rooms: Memberships::default(),
            behind: None,
        };
        let (waker, queue) = (OnceLock::new(), Mutex::new(queue));
        Self { id, subprotocol, form, bounds, waker, queue, counts }
    }

    /// Appends what the closure writes, if the socket is open and has room for `bytes` more.
    fn append(
        &self,
        bytes: usize,
        write: impl FnOnce(&mut Encoder, &mut Frames),
    ) -> Result<(), SendError> {
        // A message that is longer than the bound is accepted if nothing else waits. Otherwise it
        // could never be sent.
        let has_room = |queue: &Queue| {
            queue.frames.is_empty() || queue.bytes_with(bytes) <= self.bounds.unsent_bytes_max
        };
        self.append_if(has_room, bytes, write).map(drop)
    }

    /// Appends what the closure writes, if the socket is open and the queue has room. Returns how
    /// much waits now.
    fn append_if(
        &self,
        has_room: impl FnOnce(&Queue) -> bool,
        bytes: usize,
        write: impl FnOnce(&mut Encoder, &mut Frames),
    ) -> Result<Backlog, SendError> {
        let mut queue = self.queue.lock();
        if queue.stage != Stage::Open {
            return Err(SendError::Closed);
        }
        if !has_room(&queue) {
            return Err(SendError::Full);
        }
        // Frames that are appended during a call of the protocol are sent and counted at its end.
        if queue.turn != Turn::Running {
            let cost = queue.frames.cost().saturating_add(bytes);
            self.waker.get().map_or(Ok(()), |waker| waker.set_queued(cost))?;
        }
        let Queue { frames, encoder, .. } = &mut *queue;
        write(encoder, frames);
        let backlog = self.backlog(&queue);
        if backlog >= Backlog::Behind && queue.behind.is_none() {
            queue.behind = Some(Box::new(Behind::new()));
        }
        let must_wake = queue.turn.must_wake();
        drop(queue);
        if must_wake {
            self.wake();
        }
        Ok(backlog)
    }

    pub(super) fn send(&self, message: MessageRef<'_>) -> Result<(), SendError> {
        self.append(message.len(), |encoder, frames| match message {
            MessageRef::Text(text) => encoder.text(text, frames.own()),
            MessageRef::Binary(content) => encoder.binary(content, frames.own()),
        })
        .inspect(|()| self.count_sent())
    }

    /// Appends a frame that was encoded for all sockets of this form, and is shared with them.
    /// Unless the socket is behind, a frame of any length is accepted. If it is behind and
    /// `is_waited_for`, frames beyond the bound are accepted for a while. Returns how much waits
    /// now.
    pub(super) fn share(&self, frame: &Bytes, is_waited_for: bool) -> Result<Backlog, SendError> {
        let has_room = |queue: &Queue| {
            !self.is_behind(queue)
                || queue.bytes_with(frame.len()) <= self.bounds.unsent_bytes_max
                || (is_waited_for && self.may_exceed(queue))
        };
        self.append_if(has_room, frame.len(), |_, frames| frames.share(frame))
            .inspect(|_| self.count_sent())
    }

    /// Returns whether one more message is accepted, although it exceeds the bound.
    #[cold]
    fn may_exceed(&self, queue: &Queue) -> bool {
        let overrun_max = self.bounds.unsent_bytes_max.saturating_mul(OVERRUN_FACTOR);
        queue.frames.bytes() <= overrun_max
            && queue.behind.as_ref().is_some_and(|behind| behind.has_time())
    }

    /// The number of unsent bytes beyond which the socket is behind.
    fn behind_beyond(&self) -> usize {
        self.bounds.unsent_bytes_max / 2
    }

    fn is_behind(&self, queue: &Queue) -> bool {
        self.backlog(queue) >= Backlog::Behind
    }

    fn backlog(&self, queue: &Queue) -> Backlog {
        let bytes = queue.frames.bytes();
        if bytes <= self.behind_beyond() {
            Backlog::Small
        } else if bytes <= self.bounds.unsent_bytes_max {
            Backlog::Behind
        } else {
            Backlog::Overrun
        }
    }

    /// Returns a room of this socket in which more than its bound waits for a member, if there is
    /// one.
    #[inline]
    pub(super) fn overrun_room(&self) -> Option<Arc<RoomInner>> {
        if pace::is_any_overrun() { self.find_overrun_room() } else { None }
    }

    #[cold]
    fn find_overrun_room(&self) -> Option<Arc<RoomInner>> {
        // If a room ends meanwhile, its last reference is dropped here, without the lock.
        let rooms = self.queue.lock().rooms.existing();
        rooms.into_iter().find(|room| room.overrun.is_set())
    }

    /// Notes a sender, so that it is woken when this socket is no longer behind. Returns how long
    /// the sender has to wait at most, or `None` if it does not have to.
    pub(super) fn wait_for(&self, sender: &Arc<Self>) -> Option<Duration> {
        let mut queue = self.queue.lock();
        if !self.is_behind(&queue) {
            return None;
        }
        queue.behind.as_mut()?.wait(sender)
    }

    pub(super) fn ping(&self, content: &[u8]) -> Result<(), SendError> {
        self.append(content.len(), |encoder, frames| {
            let content = content.get(..filoplume_websocket::CONTROL_BYTES_MAX).unwrap_or(content);
            let sent = encoder.ping(content, frames.own());
            debug_assert!(sent.is_ok(), "the content was cut");
        })
    }

    pub(super) fn pong(&self, content: &[u8]) {
        // Fails if too much waits already: a peer that pings and does not read gets no more pongs.
        let _ = self.append(content.len(), |encoder, frames| {
            let sent = encoder.pong(content, frames.own());
            debug_assert!(sent.is_ok(), "a ping is as short as a pong");
        });
    }

    /// Queues a close frame, even if too much waits already. Returns whether the socket was open.
    pub(super) fn close(&self, code: CloseCode, reason: &str) -> bool {
        self.close_after(code, reason, |_| {})
    }

    /// Like [`close`](Self::close), but discards what still waits for the peer.
    pub(super) fn disconnect(&self, code: CloseCode, reason: &str) -> bool {
        self.close_after(code, reason, |frames| *frames = Frames::default())
    }

    fn close_after(&self, code: CloseCode, reason: &str, before: impl FnOnce(&mut Frames)) -> bool {
        let mut queue = self.queue.lock();
        if queue.stage != Stage::Open {
            return false;
        }
        let Queue { frames, encoder, .. } = &mut *queue;
        before(frames);
        encoder.close(Some(CloseFrame { code, reason }), frames.own());
        queue.stage = Stage::Closing;
        let must_wake = queue.turn.must_wake();
        drop(queue);
        if must_wake {
            self.wake();
        }
        true
    }

    pub(super) fn stage(&self) -> Stage {
        self.queue.lock().stage
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.queue.lock().frames.bytes()
    }

    pub(super) fn opened(&self, waker: tcp::Sender, memory: LastingMemory) {
        self.queue.lock().rooms.set_memory(memory);
        if let (Ok(()), Some(counts)) = (self.waker.set(waker), &self.counts) {
            counts.open_one();
        }
    }

    /// Counts messages of the peer.
    pub(super) fn count_received(&self, messages: u64) {
        if let Some(counts) = self.counts.as_ref().filter(|_| messages > 0) {
            counts.receive(messages);
        }
    }

    fn count_sent(&self) {
        if let Some(counts) = &self.counts {
            counts.send_one();
        }
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.notify();
        }
    }

    /// Begins a call of the protocol: what is appended is sent at its end.
    pub(super) fn begin(&self) {
        let mut queue = self.queue.lock();
        queue.turn = Turn::Running;
        queue.frames.provide(|| BUFFER.take());
    }

    /// Ends a call of the protocol: passes the frames to the closure, in pieces. It passes no more
    /// than about the bound. The next call comes when these frames are sent, which shows that the
    /// peer reads. Returns the stage, and the memory of the frames that are kept until then.
    pub(super) fn end(&self, send: impl FnMut(&[u8])) -> (Stage, usize) {
        let (frames, kept, stage, behind) = {
            let mut queue = self.queue.lock();
            let frames = match queue.stage {
                Stage::Open => queue.frames.take(self.bounds.unsent_bytes_max.max(CALL_BYTES_MIN)),
                // This may be the last call.
                Stage::Closing | Stage::Closed => std::mem::take(&mut queue.frames),
            };
            let kept = queue.frames.cost();
            queue.turn = if kept == 0 { Turn::Waiting } else { Turn::Woken };
            let mut behind = queue.behind.take();
            if self.is_behind(&queue) {
                queue.behind = behind.take().or_else(|| Some(Box::new(Behind::new())));
                queue.behind.iter_mut().for_each(|behind| behind.start_again());
            }
            (frames, kept, queue.stage, behind)
        };
        if kept > 0 {
            self.wake();
        }
        if let Some(behind) = behind {
            behind.wake_senders();
        }
        frames.for_each(send);
        if let Some(buffer) = frames.into_buffer() {
            if buffer.capacity() <= KEPT_BYTES_MAX {
                BUFFER.set(buffer);
            }
        }
        (stage, kept)
    }

    /// Returns whether the socket is in this room.
    pub(super) fn is_in(&self, room: &Arc<RoomInner>) -> bool {
        self.queue.lock().rooms.contains(room)
    }

    /// Records that the socket is in a room. Charges the socket for `room_bytes`, 0 if another
    /// member is charged for the room. Returns `false` if the socket is closed or closing, or if it
    /// is closed for being in too many rooms, or because there is no memory for one more.
    pub(super) fn joined(&self, room: &Arc<RoomInner>, room_bytes: usize) -> bool {
        let mut queue = self.queue.lock();
        if queue.stage != Stage::Open {
            return false;
        }
        let added = queue.rooms.add(room, room_bytes, self.bounds.rooms_max);
        drop(queue);
        match added {
            Ok(()) => return true,
            Err(NotJoined::TooMany) => {
                self.close(CloseCode::POLICY_VIOLATION, "this client is in too many rooms");
            }
            Err(NotJoined::OutOfMemory) => self.close_out_of_memory(),
        }
        false
    }

    pub(super) fn close_out_of_memory(&self) {
        self.close(CloseCode::TRY_AGAIN_LATER, "the server is short of memory");
    }

    /// Charges this socket for a room that it is in. Returns whether there is memory for it.
    pub(super) fn carry(&self, room: &Arc<RoomInner>, room_bytes: usize) -> bool {
        self.queue.lock().rooms.carry(room, room_bytes)
    }

    /// Removes a room, and `room_bytes` if this socket is charged for it. Returns whether it was in
    /// the room.
    pub(super) fn left(&self, room: &Arc<RoomInner>, room_bytes: usize) -> bool {
        self.queue.lock().rooms.remove(room, room_bytes)
    }

    /// Refuses messages from now on, and leaves all rooms, at once or soon.
    pub(super) fn closed(&self) {
        let ((rooms, memory), behind) = {
            let mut queue = self.queue.lock();
            let was_open = queue.stage != Stage::Closed && self.waker.get().is_some();
            if let Some(counts) = self.counts.as_ref().filter(|_| was_open) {
                counts.close_one();
            }
            queue.stage = Stage::Closed;
            queue.frames = Frames::default();
            (queue.rooms.take(), queue.behind.take())
        };
        if let Some(behind) = behind {
            behind.wake_senders();
        }
        Leaving { id: self.id, rooms, memory }.start();
    }
}

impl Queue {
    /// Returns how many bytes wait if `more` are added.
    fn bytes_with(&self, more: usize) -> usize {
        self.frames.bytes().saturating_add(more)
    }
}

#[cfg(test)]
impl Outbox {
    /// Pretends that this socket has been behind for this long.
    pub(super) fn wait_as_if_for(&self, time: Duration) {
        self.queue.lock().behind.iter_mut().for_each(|behind| behind.wait_as_if_for(time));
    }

    /// Returns the memory of the rooms that this socket is charged for.
    pub(super) fn carried_bytes(&self) -> usize {
        self.queue.lock().rooms.carried_bytes()
    }
}

#[cfg(test)]
mod tests;
