//! A socket that owns a thread.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use filoplume_runtime::{BlockingStream, Stopping};
use filoplume_websocket::{CloseCode, CloseFrame, Decoder, Encoder, Event};
use parking_lot::Mutex;

use super::config::{Config, Times};
use super::handlers::log_failure;
use super::message::{AsMessage, Message, MessageRef, SocketResult};
use super::negotiated::Negotiated;
use crate::core::error::Error;
use crate::observe::SocketCounts;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// The content of the close frame that is sent when the server stops.
const GOODBYE: CloseFrame<'static> =
    CloseFrame { code: CloseCode::GOING_AWAY, reason: "the server shuts down" };

/// How long sending the close frame may take when the server stops. It blocks only if the peer does
/// not read, and the close frames of all other sockets wait meanwhile.
const GOODBYE_TIMEOUT: Duration = Duration::from_millis(1);

/// A WebSocket that owns a thread of the pool, given to the closure of
/// [`WebSocketUpgrade::on_thread`](super::WebSocketUpgrade::on_thread). Receiving and sending
/// block.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::websocket::{BlockingSocket, WebSocketUpgrade};
/// use std::io;
///
/// fn count(socket: &mut BlockingSocket) -> io::Result<()> {
///     let mut count = 0;
///     while socket.receive()?.is_some() {
///         count += 1;
///         socket.send(count.to_string())?;
///     }
///     Ok(())
/// }
///
/// let app = App::new().websocket("/count", |upgrade: WebSocketUpgrade| upgrade.on_thread(count));
/// # app.test();
/// ```
pub struct BlockingSocket {
    stream: BlockingStream,
    decoder: Decoder,
    encoder: Encoder,
    input: Vec<u8>,
    /// How many bytes of the input were used. They are removed together, because a removal for each
    /// message would move all others.
    input_from: usize,
    output: Vec<u8>,
    config: Config,
    subprotocol: Option<Box<str>>,
    stage: Stage,
    /// Whether a call has failed, as far as the program knows.
    has_failed: bool,
    /// Since when it is closing.
    closing_since: Option<Instant>,
    goodbye: Arc<Goodbye>,
    counts: Option<Counted>,
}

/// Counts the socket as open until it is dropped.
struct Counted(Arc<SocketCounts>);

impl Counted {
    fn new(counts: Arc<SocketCounts>) -> Self {
        counts.open_one();
        Self(counts)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.close_one();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// This side has sent a close frame.
    Closing,
    Closed,
}

/// The close frame that is sent when the server begins to stop. At that time the socket's thread
/// usually waits for its peer. Another thread therefore sends the frame, and the peer's answer ends
/// the wait.
struct Goodbye {
    turn: Mutex<Turn>,
    /// When the frame was sent by another thread.
    said_at: OnceLock<Instant>,
    /// How long the peer may take to answer.
    close_timeout: Duration,
    /// A second handle of the socket.
    stream: Mutex<Option<BlockingStream>>,
}

/// Which thread may write. The lock on this is never held during a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Free,
    /// The socket's thread writes.
    Writing,
    /// As `Writing`, and the socket's thread has to send the close frame afterwards.
    WritingLast,
    /// A close frame was sent. Nothing may follow.
    Over,
}

impl Goodbye {
    fn of(stream: &BlockingStream, close_timeout: Duration) -> Self {
        let (turn, said_at) = (Mutex::new(Turn::Free), OnceLock::new());
        // Without a second handle, the socket's thread sends the close frame after its next write.
        let stream = Mutex::new(stream.try_clone().ok());
        Self { turn, said_at, close_timeout, stream }
    }

    /// Called on the thread of all callbacks, which must not wait for one peer.
    fn say(&self) {
        let mut stream = self.stream.lock();
        {
            let mut turn = self.turn.lock();
            match (*turn, &*stream) {
                (Turn::Free, Some(_)) => *turn = Turn::Over,
                (Turn::Free | Turn::Writing, _) => {
                    *turn = Turn::WritingLast;
                    return;
                }
                (Turn::WritingLast | Turn::Over, _) => return,
            }
        }
        let Some(stream) = &mut *stream else { return };
        // Before the timeout is set: see `fill`.
        let _ = self.said_at.set(Instant::now());
        let mut frame = Vec::new();
        Encoder::server().close(Some(GOODBYE), &mut frame);
        // The peer may be gone.
        let _ = stream.set_write_timeout(Some(GOODBYE_TIMEOUT));
        let _ = stream.write_all(&frame);
        // The socket's thread may be in the middle of a long wait for a silent peer.
        let _ = stream.set_read_timeout(Some(self.close_timeout.max(READ_TIMEOUT_MIN)));
    }

    /// Begins a write of the socket's thread. Returns `false` if nothing may be written any more.
    fn begin_write(&self) -> bool {
        let mut turn = self.turn.lock();
        if *turn == Turn::Free {
            *turn = Turn::Writing;
        }
        *turn != Turn::Over
    }

    /// Ends a write of the socket's thread. Returns whether that thread has to send the close frame
    /// now.
    fn end_write(&self, is_last: bool) -> bool {
        let mut turn = self.turn.lock();
        let must_say = *turn == Turn::WritingLast && !is_last;
        *turn = if must_say || is_last { Turn::Over } else { Turn::Free };
        must_say
    }
}

/// The shortest time to wait for bytes.
const READ_TIMEOUT_MIN: Duration = Duration::from_millis(1);

impl BlockingSocket {
    /// Returns the next message, or `None` once the socket is closed, for example because the
    /// server stops. Answers pings, and sends them to a silent peer.
    ///
    /// # Errors
    ///
    /// If the connection breaks, the peer breaks the protocol or a limit, or does not answer pings.
    pub fn receive(&mut self) -> io::Result<Option<Message>> {
        let received = self.receive_next();
        self.has_failed |= received.is_err();
        received
    }

    fn receive_next(&mut self) -> io::Result<Option<Message>> {
        let mut message_since = None;
        let mut is_pinged = false;
        while self.stage != Stage::Closed {
            if let Some(message) = self.next()? {
                if let Some(counted) = &self.counts {
                    counted.0.receive(1);
                }
                return Ok(Some(message));
            }
            if self.stage == Stage::Closed {
                break;
            }
            message_since = self
                .decoder
                .is_within_message()
                .then(|| message_since.unwrap_or_else(Instant::now));
            let timeout = self.config.times.message_timeout;
            if message_since.is_some_and(|since| since.elapsed() >= timeout) {
                return Err(self.fail(CloseCode::POLICY_VIOLATION, "a message arrives too slowly"));
            }
            is_pinged = self.fill(is_pinged)?;
        }
        Ok(None)
    }

    /// Handles what has arrived, up to the next message.
    fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            if self.stage == Stage::Closing {
                self.decoder.skip_messages();
            }
            let unread = self.input.get_mut(self.input_from..).unwrap_or_default();
            let (used, event) = match self.decoder.receive(unread) {
                Ok(received) => received,
                Err(error) => return Err(self.fail(error.close_code(), &error.to_string())),
            };
            let message = match event {
                None => {
                    self.input.drain(..mem::take(&mut self.input_from) + used);
                    return Ok(None);
                }
                Some(Event::Text(text)) => Some(MessageRef::Text(text).to_owned()),
                Some(Event::Binary(content)) => Some(MessageRef::Binary(content).to_owned()),
                Some(Event::Ping(content)) => {
                    let sent = self.encoder.pong(content, &mut self.output);
                    debug_assert!(sent.is_ok(), "a ping is as short as a pong");
                    None
                }
                Some(Event::Pong(_)) => None,
                Some(Event::Close(frame)) => {
                    if self.stage == Stage::Open {
                        let code = frame.map_or(CloseCode::NORMAL, |frame| frame.code);
                        self.encoder.close(Some(CloseFrame { code, reason: "" }), &mut self.output);
                    }
                    self.stage = Stage::Closed;
                    self.input.clear();
                    self.input_from = 0;
                    // If another thread has sent the close frame, this is the answer to it, and
                    // `flush` sends none.
                    self.flush()?;
                    return Ok(None);
                }
            };
            self.input_from += used;
            self.flush()?;
            // Messages that arrive after this side has sent its close frame are discarded.
            if let (Some(message), Stage::Open) = (message, self.stage) {
                return Ok(Some(message));
            }
        }
    }

    /// Returns when this side has sent a close frame, if it has.
    fn closing_since(&mut self) -> Option<Instant> {
        let said_at = self.goodbye.said_at.get().copied();
        if self.stage == Stage::Open && said_at.is_some() {
            self.stage = Stage::Closing;
        }
        if self.stage == Stage::Open {
            return None;
        }
        Some(*self.closing_since.get_or_insert_with(|| said_at.unwrap_or_else(Instant::now)))
    }

    /// Waits for bytes. Returns whether a ping waits for its answer.
    fn fill(&mut self, is_pinged: bool) -> io::Result<bool> {
        let timeout = match self.closing_since() {
            None => read_timeout(is_pinged, &self.config.times),
            Some(since) => {
                let left = self.config.times.close_timeout.saturating_sub(since.elapsed());
                if left.is_zero() {
                    self.stage = Stage::Closed;
                    return Err(ErrorKind::TimedOut.into());
                }
                left
            }
        };
        self.decoder.release();
        self.stream.set_read_timeout(Some(timeout.max(READ_TIMEOUT_MIN)))?;
        if self.stage == Stage::Open && self.goodbye.said_at.get().is_some() {
            // The frame was sent meanwhile, and this may have replaced its timeout.
            return Ok(is_pinged);
        }
        let mut chunk = [0; READ_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => {
                self.stage = Stage::Closed;
                Err(ErrorKind::UnexpectedEof.into())
            }
            Ok(count) => {
                self.input.extend_from_slice(&chunk[..count]);
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(is_pinged),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if is_pinged || self.stage != Stage::Open {
                    self.stage = Stage::Closed;
                    return Err(ErrorKind::TimedOut.into());
                }
                let sent = self.encoder.ping(b"", &mut self.output);
                debug_assert!(sent.is_ok(), "it is empty");
                self.flush()?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends text or bytes. Blocks while the peer does not read.
    ///
    /// # Errors
    ///
    /// If the socket is closed, for example because the server stops, or if the connection breaks.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn send(&mut self, message: impl AsMessage) -> io::Result<()> {
        let sent = self.send_message(message.as_message());
        self.has_failed |= sent.is_err();
        sent
    }

    fn send_message(&mut self, message: MessageRef<'_>) -> io::Result<()> {
        if self.stage != Stage::Open {
            return Err(ErrorKind::NotConnected.into());
        }
        match message {
            MessageRef::Text(text) => self.encoder.text(text, &mut self.output),
            MessageRef::Binary(content) => self.encoder.binary(content, &mut self.output),
        }
        if !self.write()? {
            return Err(ErrorKind::NotConnected.into());
        }
        if let Some(counted) = &self.counts {
            counted.0.send_one();
        }
        Ok(())
    }

    /// Closes the socket: sends the code and the reason, and waits for the peer's answer. When the
    /// closure returns, the socket is closed with 1000, or with 1011 if it has failed or panicked.
    ///
    /// # Errors
    ///
    /// If the connection breaks or the peer does not answer.
    pub fn close(&mut self, code: CloseCode, reason: &str) -> io::Result<()> {
        if self.stage == Stage::Open {
            self.encoder.close(Some(CloseFrame { code, reason }), &mut self.output);
            self.stage = Stage::Closing;
            self.flush()?;
        }
        // What the peer has sent before its answer is discarded. `fill` limits the time.
        while self.stage != Stage::Closed {
            self.next()?;
            if self.stage != Stage::Closed {
                self.fill(false)?;
            }
        }
        self.stage = Stage::Closed;
        Ok(())
    }

    /// Returns the subprotocol that was negotiated.
    pub fn subprotocol(&self) -> Option<&str> {
        self.subprotocol.as_deref()
    }

    /// Sends the output, or discards it if another thread has already sent the close frame.
    fn flush(&mut self) -> io::Result<()> {
        self.write().map(|_| ())
    }

    /// Sends the output. Returns whether it was sent. If the server stops, the socket is closing
    /// afterwards and sends nothing more.
    fn write(&mut self) -> io::Result<bool> {
        if self.output.is_empty() {
            return Ok(true);
        }
        if !self.goodbye.begin_write() {
            self.output.clear();
            if self.stage == Stage::Open {
                self.stage = Stage::Closing;
            }
            return Ok(false);
        }
        let mut written = self.stream.write_all(&self.output);
        self.output.clear();
        if self.goodbye.end_write(self.stage != Stage::Open) {
            self.stage = Stage::Closing;
            self.encoder.close(Some(GOODBYE), &mut self.output);
            written = written.and_then(|()| self.stream.write_all(&self.output));
            self.output.clear();
        }
        written.map(|()| true)
    }

    fn fail(&mut self, code: CloseCode, reason: &str) -> io::Error {
        tracing::debug!(%code, reason, "a WebSocket is closed");
        let was_open = mem::replace(&mut self.stage, Stage::Closed) == Stage::Open;
        if was_open {
            self.encoder.close(Some(CloseFrame { code, reason }), &mut self.output);
            // The connection ends anyway.
            let _ = self.flush();
        }
        io::Error::new(ErrorKind::InvalidData, reason.to_owned())
    }
}

impl fmt::Debug for BlockingSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingSocket").field("stage", &self.stage).finish_non_exhaustive()
    }
}

/// Runs the closure, and closes the socket after it.
pub(super) fn run<R: SocketResult>(
    negotiated: Negotiated,
    stream: BlockingStream,
    stopping: &Stopping,
    handler: impl FnOnce(&mut BlockingSocket) -> R,
) {
    let Negotiated { codec, subprotocol, config, counts, .. } = negotiated;
    let goodbye = Arc::new(Goodbye::of(&stream, config.times.close_timeout));
    let says = Arc::clone(&goodbye);
    // Removed when this returns.
    let _guard = stopping.on_stopping(move || says.say());
    let mut socket = BlockingSocket {
        stream,
        decoder: codec.decoder,
        encoder: codec.encoder,
        input: Vec::new(),
        input_from: 0,
        output: Vec::new(),
        config,
        subprotocol,
        stage: Stage::Open,
        has_failed: false,
        closing_since: None,
        goodbye,
        counts: counts.map(Counted::new),
    };
    let result = catch_unwind(AssertUnwindSafe(|| handler(&mut socket).into_error()));
    let code = match &result {
        Ok(None) => CloseCode::NORMAL,
        Ok(Some(error)) if socket.has_failed && is_of_connection(error) => CloseCode::NORMAL,
        Ok(Some(error)) => {
            log_failure(None, error);
            CloseCode::INTERNAL_ERROR
        }
        Err(_) => CloseCode::INTERNAL_ERROR,
    };
    // The peer may be gone.
    let _ = socket.close(code, "");
    if let Err(panic) = result {
        // The engine counts the panic.
        resume_unwind(panic);
    }
}

/// Returns whether an error is of a kind that a peer can cause, by the end of its connection or by
/// what it sends.
fn is_of_connection(error: &Error) -> bool {
    let Some(error) = error.downcast_ref::<io::Error>() else { return false };
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::TimedOut
            | ErrorKind::WouldBlock
            | ErrorKind::NotConnected
            | ErrorKind::InvalidData
    )
}

/// Returns how long to wait for input of an open socket.
fn read_timeout(is_pinged: bool, times: &Times) -> Duration {
    if is_pinged { times.pong_timeout } else { times.ping_interval }
}
