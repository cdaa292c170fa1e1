//! A socket, as closures and other threads use it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use filoplume_runtime::tcp;
use filoplume_websocket::CloseCode;

use super::message::AsMessage;
use super::outbox::{Outbox, Stage};
use super::room::Room;

/// An open WebSocket. Clones refer to the same socket, and any thread may use them.
///
/// Sending never blocks: messages wait until the peer has read what came before. What a closure of
/// the socket itself sends goes out when that closure returns.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::websocket::{Socket, WebSocketUpgrade};
///
/// let app = App::new().websocket("/echo", |upgrade: WebSocketUpgrade| {
///     upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
/// });
/// # app.test();
/// ```
#[derive(Clone)]
pub struct Socket {
    pub(super) outbox: Arc<Outbox>,
}

/// Why a message was not sent.
///
/// ```
/// use filoplume::websocket::SendError;
///
/// assert_eq!(SendError::Full.to_string(), "the peer does not read what it is sent");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// The socket is closed or closing.
    Closed,
    /// Too many bytes wait for the peer: see
    /// [`unsent_bytes_max`](super::WebSocketUpgrade::unsent_bytes_max). The caller decides whether
    /// to drop the message or to close the socket.
    Full,
    /// The peer does not read, and the memory for what all peers have not read is used up: see
    /// [`memory_max`](crate::ServerConfig::memory_max). The caller has the same choice as for
    /// `Full`.
    OutOfMemory,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the socket is closed",
            Self::Full => "the peer does not read what it is sent",
            Self::OutOfMemory => "the memory for what peers have not read is used up",
        })
    }
}

impl StdError for SendError {}

impl From<tcp::SendError> for SendError {
    fn from(error: tcp::SendError) -> Self {
        match error {
            tcp::SendError::Full => Self::Full,
            tcp::SendError::OutOfMemory => Self::OutOfMemory,
            _ => Self::Closed,
        }
    }
}

impl Socket {
    /// Sends text or bytes.
    ///
    /// # Errors
    ///
    /// If the socket is closed, or too many bytes wait for the peer or for all peers.
    #[allow(clippy::needless_pass_by_value, reason = "text and bytes are passed as they are")]
    pub fn send(&self, message: impl AsMessage) -> Result<(), SendError> {
        self.outbox.send(message.as_message())
    }

    /// Sends a value as JSON.
    ///
    /// # Errors
    ///
    /// If the value cannot be serialized, or [`send`](Self::send) fails.
    #[cfg(feature = "json")]
    pub fn send_json<T: serde::Serialize + ?Sized>(&self, value: &T) -> crate::Result<()> {
        Ok(self.send(serde_json::to_string(value)?)?)
    }

    /// Sends a ping, cut to 125 bytes. The socket sends pings on its own when its peer is silent.
    ///
    /// # Errors
    ///
    /// Like those of [`send`](Self::send).
    pub fn ping(&self, content: &[u8]) -> Result<(), SendError> {
        self.outbox.ping(content)
    }

    /// Closes the socket after what was sent: sends the code and the reason, cut to 123 bytes, and
    /// waits for the peer's answer. Does nothing if the socket is closed or closing.
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.outbox.close(code, reason);
    }

    /// Returns whether messages can be sent.
    pub fn is_open(&self) -> bool {
        self.outbox.stage() == Stage::Open
    }

    /// Returns how many bytes wait for the peer and were not given to the system yet.
    pub fn unsent_bytes(&self) -> usize {
        self.outbox.unsent_bytes()
    }

    /// Returns a number that no other socket of this process has.
    pub fn id(&self) -> u64 {
        self.outbox.id
    }

    /// Returns the subprotocol that was negotiated.
    pub fn subprotocol(&self) -> Option<&str> {
        self.outbox.subprotocol.as_deref()
    }

    /// Joins a room. The socket stays in it until it leaves or closes. The same as [`Room::join`].
    pub fn join(&self, room: &Room) {
        room.join(self);
    }
}

impl PartialEq for Socket {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Socket {}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// How a socket was closed.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::websocket::{CloseReason, Socket, WebSocketUpgrade};
///
/// let app = App::new().websocket("/", |upgrade: WebSocketUpgrade| {
///     upgrade
///         .on_message(|socket: &Socket, text: String| socket.send(text))
///         .on_close(|_, close: &CloseReason| println!("{} {}", close.code, close.reason))
/// });
/// # app.test();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// The code that the peer sent, or that this side sent because the peer broke the rules.
    /// [`CloseCode::NONE`] if the peer sent none, and [`CloseCode::ABNORMAL`] if the connection
    /// ended without the closing handshake.
    pub code: CloseCode,
    /// The text that came with the code.
    pub reason: String,
}

impl CloseReason {
    /// Returns whether the connection ended with a closing handshake.
    pub fn is_clean(&self) -> bool {
        self.code != CloseCode::ABNORMAL
    }
}
