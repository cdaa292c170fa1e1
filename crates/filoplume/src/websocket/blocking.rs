//! A socket that owns a thread.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use filoplume_runtime::BlockingStream;
use filoplume_websocket::{CloseCode, CloseFrame, Decoder, Encoder, Event};

use super::config::Config;
use super::message::{AsMessage, Message, MessageRef, SocketResult};
use super::upgrade::Negotiated;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

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
    output: Vec<u8>,
    config: Config,
    subprotocol: Option<Box<str>>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// This side has sent a close frame.
    Closing,
    Closed,
}

impl BlockingSocket {
    /// Returns the next message, or `None` once the socket is closed. Answers pings, and sends them
    /// to a silent peer.
    ///
    /// # Errors
    ///
    /// If the connection breaks, the peer breaks the protocol or a limit, or does not answer pings.
    pub fn receive(&mut self) -> io::Result<Option<Message>> {
        let mut message_since = None;
        let mut is_pinged = false;
        while self.stage != Stage::Closed {
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            if self.stage == Stage::Closed {
                break;
            }
            message_since = self
                .decoder
                .is_within_message()
                .then(|| message_since.unwrap_or_else(Instant::now));
            let timeout = self.config.message_timeout;
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
            let (used, event) = match self.decoder.receive(&mut self.input) {
                Ok(received) => received,
                Err(error) => return Err(self.fail(error.close_code(), &error.to_string())),
            };
            let message = match event {
                None => {
                    self.input.drain(..used);
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
                    self.flush()?;
                    return Ok(None);
                }
            };
            self.input.drain(..used);
            self.flush()?;
            // What comes after this side has closed is not the program's any more.
            if let (Some(message), Stage::Open) = (message, self.stage) {
                return Ok(Some(message));
            }
        }
    }

    /// Waits for bytes. Returns whether a ping waits for its answer.
    fn fill(&mut self, is_pinged: bool) -> io::Result<bool> {
        let timeout = match (self.stage, is_pinged) {
            (Stage::Open, false) => self.config.ping_interval,
            (Stage::Open, true) => self.config.pong_timeout,
            _ => self.config.close_timeout,
        };
        self.decoder.release();
        self.stream.set_read_timeout(Some(timeout))?;
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
    /// If the socket is closed or the connection breaks.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn send(&mut self, message: impl AsMessage) -> io::Result<()> {
        if self.stage != Stage::Open {
            return Err(ErrorKind::NotConnected.into());
        }
        match message.as_message() {
            MessageRef::Text(text) => self.encoder.text(text, &mut self.output),
            MessageRef::Binary(content) => self.encoder.binary(content, &mut self.output),
        }
        self.flush()
    }

    /// Closes the socket: sends the code and the reason, and waits for the peer's answer. When the
    /// closure returns, the socket is closed with 1000, or with 1011 if it has failed or panicked.
    ///
    /// # Errors
    ///
    /// If the connection breaks or the peer does not answer.
    pub fn close(&mut self, code: CloseCode, reason: &str) -> io::Result<()> {
        if self.stage != Stage::Open {
            return Ok(());
        }
        self.encoder.close(Some(CloseFrame { code, reason }), &mut self.output);
        self.stage = Stage::Closing;
        self.flush()?;
        // What the peer has sent before its answer is discarded.
        let started = Instant::now();
        while self.stage != Stage::Closed && started.elapsed() < self.config.close_timeout {
            self.next()?;
            if self.stage != Stage::Closed {
                self.fill(false)?;
            }
        }
        Ok(())
    }

    /// Returns the subprotocol that was negotiated.
    pub fn subprotocol(&self) -> Option<&str> {
        self.subprotocol.as_deref()
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let written = self.stream.write_all(&self.output);
        self.output.clear();
        written
    }

    fn fail(&mut self, code: CloseCode, reason: &str) -> io::Error {
        tracing::debug!(%code, reason, "a WebSocket is closed");
        if self.stage == Stage::Open {
            self.encoder.close(Some(CloseFrame { code, reason }), &mut self.output);
            // The connection ends anyway.
            let _ = self.flush();
        }
        self.stage = Stage::Closed;
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
    handler: impl FnOnce(&mut BlockingSocket) -> R,
) {
    let Negotiated { codec, subprotocol, config, .. } = negotiated;
    let mut socket = BlockingSocket {
        stream,
        decoder: codec.decoder,
        encoder: codec.encoder,
        input: Vec::new(),
        output: Vec::new(),
        config,
        subprotocol,
        stage: Stage::Open,
    };
    let result = catch_unwind(AssertUnwindSafe(|| handler(&mut socket).into_error()));
    let code = match &result {
        Ok(None) => CloseCode::NORMAL,
        Ok(Some(error)) => {
            tracing::error!(?error, "the closure of a WebSocket has failed");
            CloseCode::INTERNAL_ERROR
        }
        Err(_) => CloseCode::INTERNAL_ERROR,
    };
    // The peer may be gone.
    let _ = socket.close(code, "");
    if let Err(panic) = result {
        // The engine counts it.
        resume_unwind(panic);
    }
}
