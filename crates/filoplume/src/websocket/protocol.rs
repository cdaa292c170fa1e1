//! A socket on the event loop.

use std::cell::RefCell;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use filoplume_runtime::tcp::{Closed, Io, Protocol};
use filoplume_websocket::{CloseCode, CloseFrame, Decoder, Event};

use super::config::Times;
use super::handlers::Handlers;
use super::message::MessageRef;
use super::outbox::Stage;
use super::pace::{self, PATIENCE};
use super::room::RoomInner;
use super::socket::{CloseReason, Socket};

/// A call ends when its output is this long, so that a peer that sends much and reads nothing does
/// not fill the memory: the next call comes when the output is sent.
const CALL_OUTPUT_MAX: usize = 64 * 1024;
/// A thread's copy of the input is not kept if it grew beyond this.
const INPUT_BYTES_KEPT: usize = 128 * 1024;

thread_local! {
    /// The input, which is unmasked in place. Idle sockets have none.
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A socket on the event loop.
pub(super) struct SocketProtocol {
    socket: Socket,
    decoder: Decoder,
    handlers: Handlers,
    times: Times,
    health: Health,
    /// When the incomplete message began to arrive.
    message_since: Option<Instant>,
    looks_at: LooksAt,
    is_closing: bool,
    /// A room to which this socket has sent more than its members read, or that it is in and that
    /// others have overrun. It is forgotten when the health is checked.
    crowded: Option<Weak<RoomInner>>,
    /// No messages are read until this time, or until the members of `crowded` have read theirs.
    paused_until: Option<Instant>,
    /// Whether the next message has waited for long enough, and is read in any case.
    is_due: bool,
    /// Whether some of what waits for the peer was kept at the end of the last call.
    keeps_frames: bool,
    /// Boxed, because it is known only at the end.
    reason: Option<Box<CloseReason>>,
}

/// What is known about the peer since the last deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Silent,
    Heard,
    /// A ping was sent, and nothing has arrived since.
    Pinged,
}

/// What the next deadline is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LooksAt {
    /// Whether the peer is there.
    #[default]
    Peer,
    /// Whether the message that arrives takes too long.
    Message,
}

/// Whether the messages after an event are read in the same call.
enum After {
    Continue,
    Stop,
}

impl SocketProtocol {
    pub(super) const fn new(
        socket: Socket,
        decoder: Decoder,
        handlers: Handlers,
        times: Times,
    ) -> Self {
        Self {
            socket,
            decoder,
            handlers,
            times,
            health: Health::Heard,
            message_since: None,
            looks_at: LooksAt::Peer,
            is_closing: false,
            crowded: None,
            paused_until: None,
            is_due: false,
            keeps_frames: false,
            reason: None,
        }
    }

    /// Runs a part of a call. What is sent during that part goes out at its end.
    fn call<T>(&mut self, io: &mut Io<'_>, work: impl FnOnce(&mut Self, &mut Io<'_>) -> T) -> T {
        self.socket.outbox.begin();
        let result = work(self, io);
        self.send(io);
        result
    }

    /// Sends what was queued. After a close frame, limits the time until the peer's answer.
    fn send(&mut self, io: &mut Io<'_>) {
        let (stage, kept) = self.socket.outbox.end(|frames| io.send(frames));
        if kept > 0 || self.keeps_frames {
            io.set_kept(kept);
            self.keeps_frames = kept > 0;
        }
        if stage == Stage::Closing && !self.is_closing {
            self.is_closing = true;
            self.decoder.skip_messages();
            io.set_timeout(self.times.close_timeout);
            if self.paused_until.take().is_some() {
                // The peer's answer comes after its messages, so these have to be read.
                io.resume();
            }
        }
    }

    /// Reads messages until the input is used up or the call has to end.
    fn read(&mut self, input: &mut [u8], io: &mut Io<'_>) -> usize {
        let mut messages = 0;
        let used = self.read_messages(input, io, &mut messages);
        self.socket.outbox.count_received(messages);
        used
    }

    /// As [`read`](Self::read), and counts the messages.
    fn read_messages(&mut self, input: &mut [u8], io: &mut Io<'_>, messages: &mut u64) -> usize {
        // When it is over the call ends, so that neither other connections nor the answers to these
        // messages wait for later messages.
        let (started, turn) = (Instant::now(), io.turn());
        let mut used = 0;
        while let Some(rest) = input.get_mut(used..).filter(|rest| !rest.is_empty()) {
            if self.must_wait(io) {
                return used;
            }
            let (count, event) = match self.decoder.receive(rest) {
                Ok((count, Some(event))) => (count, event),
                Ok((count, None)) => return used + count,
                Err(error) => {
                    self.fail(error.close_code(), &error.to_string(), io);
                    return input.len();
                }
            };
            used += count;
            if matches!(event, Event::Text(_) | Event::Binary(_)) {
                *messages += 1;
                self.is_due = false;
                // The time of a message that begins within the same call counts from its end.
                self.message_since = None;
            }
            let after = match event {
                Event::Text(text) => {
                    let message = MessageRef::Text(text);
                    handle(&self.socket, &mut self.handlers, message, &mut self.crowded)
                }
                Event::Binary(content) => {
                    let message = MessageRef::Binary(content);
                    handle(&self.socket, &mut self.handlers, message, &mut self.crowded)
                }
                Event::Ping(content) => {
                    self.socket.outbox.pong(content);
                    After::Continue
                }
                Event::Pong(_) => continue,
                Event::Close(frame) => {
                    let reason = reason_of(frame);
                    self.answer_close(reason, io);
                    After::Stop
                }
            };
            self.health = Health::Heard;
            if matches!(after, After::Stop) {
                return input.len();
            }
            let is_long =
                self.socket.unsent_bytes() >= CALL_OUTPUT_MAX || started.elapsed() >= turn;
            if is_long && used < input.len() {
                io.resume();
                return used;
            }
        }
        used
    }

    /// Handles a close frame of the peer, which begins or confirms the closing handshake.
    fn answer_close(&mut self, reason: CloseReason, io: &mut Io<'_>) {
        let code = if reason.code.is_sendable() { reason.code } else { CloseCode::NORMAL };
        self.socket.outbox.close(code, "");
        self.reason = Some(Box::new(reason));
        self.is_closing = true;
        io.close();
    }

    /// Closes the socket because of an error: sends a close frame, and does not wait for the
    /// answer.
    fn fail(&mut self, code: CloseCode, reason: &str, io: &mut Io<'_>) {
        tracing::debug!(%code, reason, "a WebSocket is closed");
        self.socket.outbox.close(code, reason);
        self.reason = Some(Box::new(CloseReason { code, reason: reason.to_owned() }));
        self.is_closing = true;
        io.close();
    }

    /// Returns whether the next message has to wait, because members of a room are behind.
    #[inline]
    fn must_wait(&mut self, io: &mut Io<'_>) -> bool {
        if !self.is_due {
            if let Some(room) = self.socket.outbox.overrun_room() {
                self.crowded = Some(Arc::downgrade(&room));
            }
        }
        self.crowded.is_some() && self.pause(io)
    }

    /// Stops reading for a while if members of the crowded room have not read what they were sent.
    /// Returns whether it has stopped. However many senders and members there are, the next message
    /// of a sender waits for [`PATIENCE`] at most.
    #[cold]
    fn pause(&mut self, io: &mut Io<'_>) -> bool {
        let now = Instant::now();
        let until = *self.paused_until.get_or_insert(now + PATIENCE);
        let room = self.crowded.as_ref().and_then(Weak::upgrade).filter(|_| now < until);
        let waits = room.and_then(|room| room.wait_for_members(&self.socket.outbox));
        let Some(time) = waits.filter(|_| self.socket.is_open()) else {
            self.paused_until = None;
            if now >= until {
                self.crowded = None;
                self.is_due = true;
            }
            return false;
        };
        io.pause();
        io.set_timeout(time.min(until - now));
        true
    }

    /// Continues to read, unless the socket has to wait for other members.
    #[cold]
    fn end_pause(&mut self, io: &mut Io<'_>) {
        if !self.pause(io) {
            io.resume();
            io.set_timeout(self.times.ping_interval);
        }
    }

    /// Closes the socket, because there is no memory for the message that is arriving, or because
    /// others need its memory.
    #[cold]
    fn give_up_message(&mut self, io: &mut Io<'_>) {
        self.decoder.discard();
        io.set_held(0);
        self.call(io, |this, io| {
            this.fail(CloseCode::TRY_AGAIN_LATER, "the server is short of memory", io);
        });
    }

    /// Looks at the message that is arriving after this time, because the next look at the peer's
    /// health would be too late.
    fn expect_message(&mut self, left: Duration, io: &mut Io<'_>) {
        if !self.is_closing && self.paused_until.is_none() {
            self.looks_at = LooksAt::Message;
            io.set_timeout(left);
        }
    }

    fn check_message(&mut self, io: &mut Io<'_>) {
        let timeout = self.times.message_timeout;
        match self.message_since.map(|since| timeout.saturating_sub(since.elapsed())) {
            Some(Duration::ZERO) => self.check_health(io),
            Some(left) => self.expect_message(left, io),
            None => io.set_timeout(self.times.ping_interval),
        }
    }

    fn check_health(&mut self, io: &mut Io<'_>) {
        self.crowded = None;
        let timeout = self.times.message_timeout;
        if self.message_since.is_some_and(|since| since.elapsed() >= timeout) {
            return self.fail(CloseCode::POLICY_VIOLATION, "a message arrives too slowly", io);
        }
        match self.health {
            Health::Heard => {
                self.health = Health::Silent;
                io.set_timeout(self.times.ping_interval);
            }
            Health::Silent => {
                self.health = Health::Pinged;
                // There is no room only if the peer does not read earlier output.
                let _ = self.socket.ping(b"");
                io.set_timeout(self.times.pong_timeout);
            }
            Health::Pinged => {
                self.fail(CloseCode::ABNORMAL, "the peer does not answer pings", io);
            }
        }
    }
}

/// Passes a message to the program, unless the socket is closing. Records a room that has become
/// crowded by it.
fn handle(
    socket: &Socket,
    handlers: &mut Handlers,
    message: MessageRef<'_>,
    crowded: &mut Option<Weak<RoomInner>>,
) -> After {
    if socket.is_open() {
        let noted = pace::during(|| handlers.message(socket, message));
        if noted.is_some() {
            *crowded = noted;
        }
    }
    After::Continue
}

fn reason_of(frame: Option<CloseFrame<'_>>) -> CloseReason {
    match frame {
        Some(frame) => CloseReason { code: frame.code, reason: frame.reason.to_owned() },
        None => CloseReason { code: CloseCode::NONE, reason: String::new() },
    }
}

impl Protocol for SocketProtocol {
    fn open(&mut self, io: &mut Io<'_>) {
        self.socket.outbox.opened(io.sender(), io.lasting_memory());
        io.set_timeout(self.times.ping_interval);
        self.call(io, |this, _| this.handlers.open(&this.socket));
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        if self.health == Health::Pinged {
            self.health = Health::Silent;
            if !self.is_closing {
                io.set_timeout(self.times.ping_interval);
            }
        }
        let mut input = INPUT.take();
        input.clear();
        input.extend_from_slice(bytes);
        let used = self.call(io, |this, io| this.read(&mut input, io));
        if input.capacity() <= INPUT_BYTES_KEPT {
            INPUT.set(input);
        }
        self.message_since = if self.decoder.is_within_message() {
            self.health = Health::Heard;
            if self.message_since.is_none() && self.times.message_timeout < self.times.ping_interval
            {
                self.expect_message(self.times.message_timeout, io);
            }
            Some(self.message_since.unwrap_or_else(Instant::now))
        } else {
            self.decoder.release();
            None
        };
        if !io.set_held(self.decoder.held_bytes()) {
            self.give_up_message(io);
            return bytes.len();
        }
        used
    }

    fn memory_pressure(&mut self, io: &mut Io<'_>) {
        self.give_up_message(io);
    }

    fn notified(&mut self, io: &mut Io<'_>) {
        self.send(io);
        if self.paused_until.is_some() {
            self.end_pause(io);
        }
    }

    fn notified_may_block(&self) -> bool {
        false
    }

    fn deadline(&mut self, io: &mut Io<'_>) {
        if self.is_closing {
            // The peer did not answer the close frame.
            return io.close();
        }
        if self.paused_until.is_some() {
            return self.end_pause(io);
        }
        self.call(io, |this, io| match mem::take(&mut this.looks_at) {
            LooksAt::Peer => this.check_health(io),
            LooksAt::Message => this.check_message(io),
        });
    }

    fn shutdown(&mut self, io: &mut Io<'_>) {
        self.call(io, |this, _| {
            this.socket.close(CloseCode::GOING_AWAY, "the server shuts down");
        });
    }

    fn close(&mut self, closed: Closed) {
        self.socket.outbox.closed();
        let reason = self.reason.take().unwrap_or_else(|| {
            let reason = format!("the connection ended: {closed:?}");
            Box::new(CloseReason { code: CloseCode::ABNORMAL, reason })
        });
        self.handlers.close(&self.socket, &reason);
    }
}

#[cfg(test)]
mod tests {
    use super::SocketProtocol;
    use crate::websocket::outbox::Outbox;

    /// Each open socket has both, and the engine adds about 300 bytes for its connection.
    #[test]
    fn an_idle_socket_holds_little() {
        let bytes = size_of::<SocketProtocol>() + size_of::<Outbox>();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    }

    /// With them a socket costs less than 1 KiB more than an idle connection.
    const BYTES_MAX: usize = 560;
}
