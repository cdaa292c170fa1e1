//! What a socket has to send, shared by all threads that send to it.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use filoplume_runtime::tcp;
use filoplume_websocket::{CloseCode, CloseFrame, Encoder};
use parking_lot::Mutex;

use super::frames::Frames;
use super::message::MessageRef;
use super::pace::Behind;
use super::room::RoomInner;
use super::socket::SendError;
use crate::observe::SocketCounts;

/// A buffer that grew beyond this is not kept by its thread.
const KEPT_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    /// The buffer for what a closure sends. Sockets that wait have none.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A socket as the threads that send to it see it.
pub(super) struct Outbox {
    pub(super) id: u64,
    pub(super) subprotocol: Option<Box<str>>,
    /// The form of messages that are encoded once for several sockets.
    pub(super) form: Form,
    unsent_bytes_max: usize,
    /// Wakes the connection. Set when it opens.
    waker: OnceLock<tcp::Sender>,
    queue: Mutex<Queue>,
    /// Where the socket is counted, if the app counts.
    counts: Option<Arc<SocketCounts>>,
}

/// How a message that was encoded for all sockets of a form looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// As it is. Sockets whose compression has a context accept this too.
    Plain,
    /// Compressed on its own, with this window.
    #[cfg(feature = "websocket-deflate")]
    Deflated(filoplume_websocket::DeflateParams, u32, usize),
}

struct Queue {
    /// Frames in the order in which they are sent. Encoding and appending are one step, because
    /// compressed messages may refer to earlier ones.
    frames: Frames,
    encoder: Encoder,
    stage: Stage,
    turn: Turn,
    rooms: Vec<Weak<RoomInner>>,
    /// Set by the message of a room that got this socket behind, until it has taken everything.
    /// Boxed, because few are.
    behind: Option<Box<Behind>>,
}

/// How far the closing handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// A close frame was queued: nothing may follow it.
    Closing,
    Closed,
}

/// Who sends the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nobody yet: the next one to append wakes the connection.
    Waiting,
    /// The connection was woken.
    Woken,
    /// The protocol runs, and sends the frames when it returns.
    Running,
}

impl Turn {
    /// Whether whoever appends now has to wake the connection.
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
        unsent_bytes_max: usize,
        counts: Option<Arc<SocketCounts>>,
    ) -> Self {
        let queue = Queue {
            frames: Frames::default(),
            encoder,
            stage: Stage::Open,
            turn: Turn::Running,
            rooms: Vec::new(),
            behind: None,
        };
        let (waker, queue) = (OnceLock::new(), Mutex::new(queue));
        Self { id, subprotocol, form, unsent_bytes_max, waker, queue, counts }
    }

    /// Appends what the closure writes, if the socket is open and has room for `bytes` more.
    fn append(
        &self,
        bytes: usize,
        write: impl FnOnce(&mut Encoder, &mut Frames),
    ) -> Result<(), SendError> {
        // A message that is longer than the bound is accepted if nothing else waits. Otherwise it
        // could never be sent.
        self.append_behind(0, bytes, write).map(drop)
    }

    /// As [`append`](Self::append). If no more than `unsent_max` waits, there is room for any
    /// message. Returns whether the socket is behind now.
    fn append_behind(
        &self,
        unsent_max: usize,
        bytes: usize,
        write: impl FnOnce(&mut Encoder, &mut Frames),
    ) -> Result<bool, SendError> {
        let mut queue = self.queue.lock();
        if queue.stage != Stage::Open {
            return Err(SendError::Closed);
        }
        let unsent = queue.frames.bytes();
        if unsent > unsent_max && unsent.saturating_add(bytes) > self.unsent_bytes_max {
            return Err(SendError::Full);
        }
        // What a call of the protocol sends goes out at its end, and is counted there.
        if queue.turn != Turn::Running {
            let cost = queue.frames.cost().saturating_add(bytes);
            self.waker.get().map_or(Ok(()), |waker| waker.set_queued(cost))?;
        }
        let Queue { frames, encoder, .. } = &mut *queue;
        write(encoder, frames);
        let is_behind = self.is_behind(&queue);
        if is_behind && queue.behind.is_none() {
            queue.behind = Some(Box::new(Behind::new()));
        }
        let must_wake = queue.turn.must_wake();
        drop(queue);
        if must_wake {
            self.wake();
        }
        Ok(is_behind)
    }

    pub(super) fn send(&self, message: MessageRef<'_>) -> Result<(), SendError> {
        self.append(message.len(), |encoder, frames| match message {
            MessageRef::Text(text) => encoder.text(text, frames.own()),
            MessageRef::Binary(content) => encoder.binary(content, frames.own()),
        })
        .inspect(|()| self.count_sent())
    }

    /// Appends a frame that was encoded for all sockets of this form, and is shared with them.
    /// Unless the socket is behind, there is room for one of any length. Returns whether it is now.
    pub(super) fn share(&self, frame: &Bytes) -> Result<bool, SendError> {
        self.append_behind(self.behind_beyond(), frame.len(), |_, frames| frames.share(frame))
            .inspect(|_| self.count_sent())
    }

    /// The number of unsent bytes beyond which the socket is behind.
    fn behind_beyond(&self) -> usize {
        self.unsent_bytes_max / 2
    }

    fn is_behind(&self, queue: &Queue) -> bool {
        queue.frames.bytes() > self.behind_beyond()
    }

    /// Makes a sender wait until this socket is no longer behind. Returns how long the sender waits
    /// at most, or `None` if it does not wait.
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
        // A peer that pings and does not read gets no more than the bound.
        let _ = self.append(content.len(), |encoder, frames| {
            let sent = encoder.pong(content, frames.own());
            debug_assert!(sent.is_ok(), "a ping is as short as a pong");
        });
    }

    /// Queues a close frame, also if too much waits already. Returns whether the socket was open.
    pub(super) fn close(&self, code: CloseCode, reason: &str) -> bool {
        self.close_after(code, reason, |_| {})
    }

    /// Like [`close`](Self::close), without what still waits for the peer.
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

    pub(super) fn opened(&self, waker: tcp::Sender) {
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

    /// Ends a call of the protocol: passes the frames to the closure, in pieces. Returns the stage.
    pub(super) fn end(&self, send: impl FnMut(&[u8])) -> Stage {
        let (frames, stage, behind) = {
            let mut queue = self.queue.lock();
            queue.turn = Turn::Waiting;
            (std::mem::take(&mut queue.frames), queue.stage, queue.behind.take())
        };
        if let Some(behind) = behind {
            behind.wake_senders();
        }
        frames.for_each(send);
        if let Some(buffer) = frames.into_buffer() {
            if buffer.capacity() <= KEPT_BYTES_MAX {
                BUFFER.set(buffer);
            }
        }
        stage
    }

    /// Records that the socket is in a room. Returns `false` if it has closed.
    pub(super) fn joined(&self, room: &Arc<RoomInner>) -> bool {
        let mut queue = self.queue.lock();
        let is_open = queue.stage != Stage::Closed;
        if is_open {
            // Rooms that it has left are forgotten here, so that joining and leaving again and
            // again does not fill the memory.
            let this = Arc::downgrade(room);
            queue.rooms.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&this));
            queue.rooms.push(this);
        }
        is_open
    }

    pub(super) fn left(&self, room: &Arc<RoomInner>) {
        let this = Arc::downgrade(room);
        self.queue.lock().rooms.retain(|other| !other.ptr_eq(&this));
    }

    /// Refuses messages from now on, and leaves all rooms.
    pub(super) fn closed(&self) {
        let (rooms, behind) = {
            let mut queue = self.queue.lock();
            let was_open = queue.stage != Stage::Closed && self.waker.get().is_some();
            if let Some(counts) = self.counts.as_ref().filter(|_| was_open) {
                counts.close_one();
            }
            queue.stage = Stage::Closed;
            queue.frames = Frames::default();
            (std::mem::take(&mut queue.rooms), queue.behind.take())
        };
        if let Some(behind) = behind {
            behind.wake_senders();
        }
        for room in rooms.iter().filter_map(Weak::upgrade) {
            room.remove(self.id);
        }
    }
}
