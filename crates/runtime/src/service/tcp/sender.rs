//! Sending to a connection from any thread.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::service::mailbox::{End, Mailbox, Refused};

/// The number of bytes that may wait for a connection. More are refused, because a peer that does
/// not read must not fill the memory.
pub(super) const QUEUED_BYTES_MAX: usize = 256 * 1024;

/// Sends to a connection from any thread: from the protocol of another connection, or from a thread
/// of the program. Clones send to the same connection. Returned by
/// [`Io::sender`](super::Io::sender).
///
/// ```
/// use filoplume_runtime::tcp::{Io, Protocol, SendError, Sender};
/// use filoplume_runtime::{Peer, Server};
/// use std::io::Write;
/// use std::net::TcpStream;
/// use std::sync::mpsc;
///
/// /// Passes its sender on, and ignores its input.
/// struct Pushed(mpsc::Sender<Sender>);
///
/// impl Protocol for Pushed {
///     fn open(&mut self, io: &mut Io<'_>) {
///         let _ = self.0.send(io.sender());
///     }
///     fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
///         bytes.len()
///     }
/// }
///
/// let (connected, connections) = mpsc::channel();
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn_tcp(move |_: Peer| Pushed(connected.clone()))?;
///
/// let client = TcpStream::connect(server.local_addr().unwrap())?;
/// let sender = connections.recv()?;
/// sender.send("news")?;
/// sender.close();
/// assert_eq!(std::io::read_to_string(client)?, "news");
/// assert_eq!(sender.send("more"), Err(SendError::Closed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Sender {
    mailbox: Arc<Mailbox>,
}

/// The reason why bytes were not sent.
///
/// ```
/// use filoplume_runtime::tcp::SendError;
///
/// assert_eq!(SendError::Full.to_string(), "the peer does not read what it is sent");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// 256 KiB already wait for the peer. The caller decides whether to drop the bytes or to close
    /// the connection.
    Full,
    /// The peer does not read what it is sent, and the memory for what all peers have not read is
    /// used up ([`memory_max`](crate::ServerConfig::memory_max)). The caller has the same choice as
    /// for `Full`.
    OutOfMemory,
    /// The connection is closed or closing.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the peer does not read what it is sent",
            Self::OutOfMemory => "the memory for what peers have not read is used up",
            Self::Closed => "the connection is closed",
        })
    }
}

impl std::error::Error for SendError {}

impl From<Refused> for SendError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            Refused::OutOfMemory => Self::OutOfMemory,
            Refused::Ended | Refused::Stopping | Refused::Gone => Self::Closed,
        }
    }
}

impl Sender {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox }
    }

    /// Appends bytes to the output of the connection. Never blocks.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if too many bytes wait for the peer, [`SendError::OutOfMemory`] if it
    /// does not read and there is no memory for more, [`SendError::Closed`] if the connection is
    /// closed or closing. In all cases none of the bytes are sent.
    pub fn send(&self, bytes: impl Into<Bytes>) -> Result<(), SendError> {
        let is_due = self.mailbox.queue.put(bytes.into().into(), None)?;
        self.mailbox.wake_if(is_due);
        Ok(())
    }

    /// Requests a call of [`Protocol::notified`](super::Protocol::notified), for a protocol that
    /// keeps what it has to send itself. Does nothing if the connection is closed or closing.
    pub fn notify(&self) {
        self.mailbox.call_owner();
    }

    /// Sets how many bytes the protocol keeps in a queue of its own for this peer. They are charged
    /// to the server's memory budget while the socket does not take what it is sent, until the next
    /// call of the protocol. A protocol calls this before it adds to its queue; while the peer
    /// reads, this costs nothing.
    ///
    /// # Errors
    ///
    /// [`SendError::OutOfMemory`] if the memory is used up. The protocol must not keep the bytes.
    pub fn set_queued(&self, bytes: usize) -> Result<(), SendError> {
        Ok(self.mailbox.queue.set_elsewhere(bytes)?)
    }

    /// Closes the connection once everything is sent.
    pub fn close(&self) {
        self.mailbox.wake_if(self.mailbox.queue.end(End::Finished(None)));
    }

    /// Returns whether the connection is open.
    pub fn is_open(&self) -> bool {
        self.mailbox.queue.check().is_ok()
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("bytes", &self.mailbox.queue.waiting())
            .field("is_open", &self.is_open())
            .finish()
    }
}
