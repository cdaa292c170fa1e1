//! The content of a request that its handler reads from the connection as it arrives.

use std::fmt;
use std::io::{self, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use filoplume_http1::{ContentDecoder, ParseError};
use parking_lot::Mutex;

use super::ContentError;
use super::handler_time::HandlerTime;
use crate::budget::account::Charge;
use crate::budget::descriptors::HeldDescriptor;
use crate::budget::streams::OpenStream;
use crate::budget::turns::Turn;
use crate::buffers::Content;
use crate::clock::Pace;
use crate::transport::splice::Pipe;
use crate::transport::{Transport, is_gone, is_would_block};

/// The interim response that is sent when a handler begins to read a content that the peer holds
/// back (RFC 9110, section 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How often a thread that waits for content checks the deadline.
pub(crate) const STREAM_TICK: Duration = Duration::from_millis(250);

/// Most bytes that the system moves at once. Pace and deadline are checked after each move.
const SPLICE_BYTES_MAX: usize = 1024 * 1024;

/// The number of bytes read ahead for a handler that reads in small pieces.
const READ_AHEAD_BYTES: usize = 16 * 1024;

/// The reading half of a connection, owned by a handler. When it is dropped it leaves its state in
/// `returns`, for the thread that continues the connection.
pub(crate) struct ContentStream {
    /// `None` until the handler has its thread: see [`open`](Self::open). A stream without a
    /// connection is never opened: its peer has sent what is in `prefix` and `unread`, and ended.
    transport: Option<Transport>,
    /// The descriptor of the transport.
    held: Option<HeldDescriptor>,
    /// Content that was decoded before the stream began.
    pub(super) prefix: Content,
    /// The share of the prefix in the memory budget.
    prefix_charge: Charge,
    open: OpenStream,
    /// The turn of the handler's thread on the processors, once the handler was found to compute.
    /// A handler may compute on a content for any time, and nothing bounds how many contents arrive
    /// at once. Their threads delay nobody while they wait for their peers, but would if all of
    /// them computed. Other handlers have no turn, so they do not wait for one.
    turn: Option<Turn>,
    handler_time: HandlerTime,
    /// Bytes that were read. The first of them are decoded already.
    unread: Vec<u8>,
    /// How many of them. They are removed together: removing those of each chunk would move all
    /// others as often as there are chunks.
    unread_from: usize,
    decoder: Option<ContentDecoder>,
    /// How many bytes may still be read. The decoder has a limit of its own.
    pub(super) bytes_left: u64,
    pace: Pace,
    /// When the last wait for the peer ended. The time from then to the next read is the handler's.
    waited_until: Instant,
    /// The peer waits for `100 Continue` before it sends.
    owes_continue: bool,
    failed: bool,
    returns: Arc<StreamReturn>,
}

/// What a stream shares with its request and with the thread that continues the connection: the
/// place where it leaves its state, and what the request holds meanwhile.
#[derive(Default)]
pub(crate) struct StreamReturn {
    left: Mutex<Option<StreamLeft>>,
    /// Once the response has begun, the peer would take an interim response for a part of it.
    response_begun: AtomicBool,
    /// Each returns whether the request holds something that others wait for.
    holds_scarce: Mutex<Vec<Arc<dyn Fn() -> bool + Send + Sync>>>,
}

/// The state that a stream leaves behind.
#[derive(Debug)]
pub(crate) struct StreamLeft {
    pub(crate) decoder: ContentDecoder,
    pub(crate) unread: Vec<u8>,
    /// The peer still waits for `100 Continue`, or the stream failed: the connection cannot
    /// continue.
    pub(crate) is_stuck: bool,
}

impl StreamReturn {
    /// Takes the state of the stream, if the handler has dropped it.
    pub(crate) fn take(&self) -> Option<StreamLeft> {
        self.left.lock().take()
    }

    /// Returns whether the handler has dropped the stream.
    pub(crate) fn is_left(&self) -> bool {
        self.left.lock().is_some()
    }

    pub(crate) fn leave(&self, left: StreamLeft) {
        *self.left.lock() = Some(left);
    }

    pub(crate) fn response_begins(&self) {
        self.response_begun.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_begun_response(&self) -> bool {
        self.response_begun.load(Ordering::Relaxed)
    }

    /// Requires the pressed pace of the peer whenever `is_scarce` returns `true`.
    pub(crate) fn press_when(&self, is_scarce: impl Fn() -> bool + Send + Sync + 'static) {
        self.holds_scarce.lock().push(Arc::new(is_scarce));
    }

    fn is_pressed(&self) -> bool {
        // The closures are called without the lock, because they are code of the program.
        let holds_scarce = self.holds_scarce.lock().clone();
        holds_scarce.iter().any(|is_scarce| is_scarce())
    }
}

impl fmt::Debug for StreamReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReturn").field("left", &self.left).finish_non_exhaustive()
    }
}

/// A content that the engine has read in part.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub(crate) decoder: ContentDecoder,
    /// Content that is already decoded.
    pub(crate) prefix: Content,
    pub(crate) prefix_charge: Charge,
    /// The peer waits for `100 Continue` before it sends.
    pub(crate) owes_continue: bool,
}

impl ContentStream {
    pub(crate) fn new(
        open: OpenStream,
        streaming: Streamed,
        unread: Vec<u8>,
        pace: Pace,
    ) -> (Self, Arc<StreamReturn>) {
        let returns = Arc::new(StreamReturn::default());
        let Streamed { decoder, prefix, prefix_charge, owes_continue } = streaming;
        let stream = Self {
            transport: None,
            held: None,
            prefix,
            prefix_charge,
            open,
            turn: None,
            handler_time: HandlerTime::new(),
            unread,
            unread_from: 0,
            decoder: Some(decoder),
            bytes_left: u64::MAX,
            pace,
            waited_until: Instant::now(),
            owes_continue,
            failed: false,
            returns: Arc::clone(&returns),
        };
        (stream, returns)
    }

    /// Returns the memory that it takes and that is not charged to the budget yet.
    pub(super) fn uncharged_bytes(&self) -> usize {
        let taken = self.prefix.capacity() + self.unread.capacity();
        taken.saturating_sub(self.prefix_charge.bytes())
    }

    /// Gives the stream its own handle of the connection. Requests that wait for a thread have no
    /// such handle, so they cost one descriptor each.
    pub(crate) fn open(&mut self, transport: Transport, held: HeldDescriptor) {
        self.transport = Some(transport);
        self.held = Some(held);
    }

    /// Returns the descriptor of the stream, to which others may be added.
    pub(super) fn held_mut(&mut self) -> Option<&mut HeldDescriptor> {
        self.held.as_mut()
    }

    pub(super) fn remaining(&self) -> Option<u64> {
        let remaining = self.decoder.as_ref()?.remaining_length()?;
        Some(remaining + self.prefix.len() as u64)
    }

    fn read_decoded(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(0) };
            if decoder.is_complete() {
                return Ok(0);
            }
            if self.unread.is_empty() {
                if let Some(left) = decoder.remaining_length() {
                    return self.read_plain(buffer, left);
                }
            }
            // Decodes no more than the handler has room for, because everything decoded must be
            // delivered.
            let unread = self.unread.get(self.unread_from..).unwrap_or_default();
            let window = unread.get(..buffer.len().max(1)).unwrap_or(unread);
            let decoded = decoder
                .decode(window)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let data = window.get(decoded.data.clone()).unwrap_or_default();
            let length = data.len();
            buffer[..length].copy_from_slice(data);
            self.unread_from += decoded.consumed;
            if self.unread_from == self.unread.len() {
                self.unread.clear();
                self.unread_from = 0;
            }
            if length > 0 {
                return Ok(length);
            }
            if decoded.consumed == 0 && !decoder.is_complete() {
                self.receive_unread()?;
            }
        }
    }

    /// Reads directly into the handler's buffer: a content with a length has no framing within it.
    /// `left` is how much of it is missing.
    fn read_plain(&mut self, buffer: &mut [u8], left: u64) -> io::Result<usize> {
        let room = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let buffer = buffer.get_mut(..room).unwrap_or_default();
        let read = self.receive(buffer)?;
        if let Some(decoder) = &mut self.decoder {
            // The decoder only counts the bytes.
            let decoded = decoder.decode(buffer.get(..read).unwrap_or_default());
            debug_assert!(decoded.is_ok_and(|decoded| decoded.consumed == read));
        }
        Ok(read)
    }

    fn remove_decoded(&mut self) {
        self.unread.drain(..std::mem::take(&mut self.unread_from));
    }

    fn receive_unread(&mut self) -> io::Result<()> {
        self.remove_decoded();
        let mut unread = std::mem::take(&mut self.unread);
        let before = unread.len();
        unread.resize(before + READ_AHEAD_BYTES, 0);
        let result = self.receive(unread.get_mut(before..).unwrap_or_default());
        unread.truncate(before + *result.as_ref().unwrap_or(&0));
        self.unread = unread;
        result.map(drop)
    }

    fn count(&mut self, read: usize) -> io::Result<usize> {
        let Some(left) = self.bytes_left.checked_sub(read as u64) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, ParseError::ContentTooLong));
        };
        self.bytes_left = left;
        Ok(read)
    }

    /// Returns how many bytes of the content come next from the socket as they are: without
    /// framing, and within all bounds.
    pub(super) fn at_socket(&self) -> u64 {
        let is_next = self.prefix.is_empty() && self.unread.is_empty() && !self.failed;
        self.decoder
            .as_ref()
            .and_then(ContentDecoder::remaining_length)
            .filter(|left| is_next && *left <= self.bytes_left)
            .unwrap_or(0)
    }

    /// Moves content from the socket into an empty pipe without looking at it, and returns its
    /// length. Waits for the peer like a read. Returns `None` if what comes next has to be read.
    pub(super) fn splice(&mut self, pipe: &Pipe) -> io::Result<Option<usize>> {
        let length = usize::try_from(self.at_socket()).unwrap_or(usize::MAX).min(SPLICE_BYTES_MAX);
        if length == 0 {
            return Ok(None);
        }
        let moved = match self.receive_by(|transport| transport.splice(pipe, length)) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
            moved => moved,
        };
        self.failed = moved.is_err();
        let moved = moved?;
        if let Some(decoder) = &mut self.decoder {
            decoder.skip(moved as u64);
        }
        self.count(moved).map(Some)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_by(|transport| transport.read(buffer))
    }

    /// Waits for more bytes of the peer, and then for the next turn if the thread needs one.
    fn receive_by(
        &mut self,
        receive: impl FnMut(&mut Transport) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some(mut turn) = self.turn.take() else { return self.wait_for_peer(receive) };
        let received = turn.suspend(|| self.wait_for_peer(receive));
        self.turn = Some(turn);
        received
    }

    /// Called before a read. A handler that was found to compute needs a turn from now on.
    fn take_turns(&mut self) {
        match &mut self.turn {
            // A read that waits for the peer gives the turn back.
            Some(turn) if !self.prefix.is_empty() || !self.unread.is_empty() => turn.pass_on(),
            Some(_) => {}
            None if self.handler_time.end() => self.turn = self.open.wait_for_turn(),
            None => {}
        }
    }

    /// Waits for more bytes of the peer. Only this time counts against its pace.
    fn wait_for_peer(
        &mut self,
        mut receive: impl FnMut(&mut Transport) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.pace.excuse(self.waited_until.elapsed());
        if std::mem::take(&mut self.owes_continue) {
            if self.returns.has_begun_response() {
                self.owes_continue = true;
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the response has begun, so the peer will not send its content",
                ));
            }
            self.send_continue()?;
        }
        let result = loop {
            match receive(opened(&mut self.transport)?) {
                Ok(0) => break Err(ContentError::Ended.into()),
                Ok(read) => {
                    self.open.count_read(read);
                    break Ok(read);
                }
                Err(error) if is_would_block(&error) => {
                    if Instant::now() >= self.deadline() {
                        break Err(ContentError::TooSlow.into());
                    }
                    // This is rare: the engine has continued with the socket, in non-blocking mode,
                    // while the content is read elsewhere.
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) if is_gone(&error) => break Err(ContentError::Ended.into()),
                Err(error) => break Err(error),
            }
        };
        let now = Instant::now();
        self.waited_until = now;
        self.pace.advance(*result.as_ref().unwrap_or(&0), now);
        // Checked after a read too: a peer that sends single bytes must not hold the thread.
        if now >= self.deadline() {
            return Err(ContentError::TooSlow.into());
        }
        result
    }

    /// Returns when the peer must have sent more. The time is short if threads are scarce, or
    /// something else that the request holds.
    fn deadline(&self) -> Instant {
        let is_pressed = self.open.is_pressed() || self.returns.is_pressed();
        if is_pressed { self.pace.pressed_deadline() } else { self.pace.deadline() }
    }

    /// Sends `100 Continue`. A message that is partly sent is finished as long as there is time: a
    /// response after half of the message would be malformed.
    fn send_continue(&mut self) -> io::Result<()> {
        let mut left = CONTINUE;
        while !left.is_empty() {
            let transport = opened(&mut self.transport)?;
            let error = match transport.write(left) {
                Ok(written) if written > 0 => {
                    self.open.count_written(written);
                    left = left.get(written..).unwrap_or_default();
                    continue;
                }
                Ok(_) => ContentError::Ended.into(),
                Err(error) if is_gone(&error) => ContentError::Ended.into(),
                Err(error) if !is_would_block(&error) => error,
                Err(_) if Instant::now() >= self.pace.deadline() => ContentError::TooSlow.into(),
                Err(_) => {
                    // As for a read.
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            if left.len() < CONTINUE.len() {
                // The peer is gone, or the connection is closed here.
                let _ = transport.shutdown(Shutdown::Both);
            }
            return Err(error);
        }
        Ok(())
    }
}

fn opened(transport: &mut Option<Transport>) -> io::Result<&mut Transport> {
    transport.as_mut().ok_or_else(|| ContentError::Ended.into())
}

impl Read for ContentStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.failed {
            return Err(io::Error::other("an earlier read of the content failed"));
        }
        self.take_turns();
        let result = if !self.prefix.is_empty() {
            let read = self.prefix.as_slice().read(buffer)?;
            self.prefix.advance(read);
            if self.prefix.is_empty() {
                self.prefix = Content::default();
                self.prefix_charge = Charge::default();
            }
            Ok(read)
        } else {
            self.read_decoded(buffer)
        };
        let result = result.and_then(|read| self.count(read));
        self.failed = result.is_err();
        if self.turn.is_none() {
            self.handler_time.begin();
        }
        result
    }
}

impl Drop for ContentStream {
    fn drop(&mut self) {
        let Some(decoder) = self.decoder.take() else { return };
        self.remove_decoded();
        let left = StreamLeft {
            decoder,
            unread: std::mem::take(&mut self.unread),
            is_stuck: self.failed || self.owes_continue,
        };
        self.returns.leave(left);
    }
}

impl fmt::Debug for ContentStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentStream")
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
