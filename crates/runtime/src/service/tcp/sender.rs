//! Bytes for a connection from any thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::sync::Mutex;

/// Bytes that may wait for a connection. What is over it is refused: a peer that does not read must
/// not fill the memory.
const MAIL_BYTES_MAX: usize = 256 * 1024;

/// Sends to a connection from any thread: from another connection's protocol, or from a thread of
/// the program. Clones send to the same connection. Given by [`Io::sender`](super::Io::sender).
///
/// ```
/// use filoplume_runtime::tcp::{Io, Protocol, SendError, Sender};
/// use filoplume_runtime::{Peer, Server};
/// use std::io::Write;
/// use std::net::TcpStream;
/// use std::sync::mpsc;
///
/// /// Hands its sender out, and reads nothing into what comes.
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

/// Why bytes were not sent.
///
/// ```
/// use filoplume_runtime::tcp::SendError;
///
/// assert_eq!(SendError::Full.to_string(), "the peer does not read what it is sent");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// 256 KiB wait for the peer already. Whether to leave this out or to close the connection is
    /// up to the sender.
    Full,
    /// The connection is over, or about to be.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the peer does not read what it is sent",
            Self::Closed => "the connection is closed",
        })
    }
}

impl std::error::Error for SendError {}

impl Sender {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox }
    }

    /// Sends bytes behind all that was sent before. Never waits.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if the peer is too far behind, [`SendError::Closed`] if the connection
    /// is over. The bytes are not sent then, not even a part of them.
    pub fn send(&self, bytes: impl Into<Bytes>) -> Result<(), SendError> {
        if self.mailbox.queue.put(bytes.into())? {
            self.mailbox.tell();
        }
        Ok(())
    }

    /// Closes the connection once everything is sent.
    pub fn close(&self) {
        if self.mailbox.queue.close() {
            self.mailbox.tell();
        }
    }

    /// Whether the connection is open.
    pub fn is_open(&self) -> bool {
        self.mailbox.queue.0.lock().state == State::Open
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.mailbox.queue.0.lock();
        f.debug_struct("Sender")
            .field("bytes", &waiting.bytes)
            .field("state", &waiting.state)
            .finish()
    }
}

/// A connection's loop, as far as senders know it.
pub(crate) trait Look: Send + Sync {
    /// Has a connection looked at, as if its peer had moved. A token of one that is gone does no
    /// harm.
    fn look(&self, token: usize);
}

/// Where the bytes wait until the thread that has the connection in hand takes them.
pub(crate) struct Mailbox {
    /// Weak: a program may keep senders for longer than the server lives.
    home: Weak<dyn Look>,
    token: usize,
    queue: SendQueue,
}

impl Mailbox {
    pub(crate) fn new(home: Weak<dyn Look>, token: usize) -> Self {
        Self { home, token, queue: SendQueue::new() }
    }

    /// Has the connection looked at.
    fn tell(&self) {
        if let Some(home) = self.home.upgrade() {
            home.look(self.token);
        }
    }

    /// Moves what waits behind the output. Returns whether the connection is to be closed behind
    /// it.
    pub(crate) fn take(&self, output: &mut Vec<u8>) -> bool {
        self.queue.take(output)
    }

    /// As [`take`](Self::take), and nothing more is accepted from then on.
    pub(crate) fn take_last(&self, output: &mut Vec<u8>) -> bool {
        self.queue.take_last(output)
    }

    /// The connection is over: nothing is taken any more.
    pub(crate) fn end(&self) {
        self.queue.end();
    }
}

/// What waits. Each change says whether the connection's loop must be told of it: one look serves
/// all that comes until it happens.
pub(crate) struct SendQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    parts: VecDeque<Bytes>,
    bytes: usize,
    state: State,
    /// Whether the loop was told, and nobody has looked since.
    is_told: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// To be closed once what waits is sent.
    Closing,
    Closed,
}

impl Waiting {
    fn take(&mut self, output: &mut Vec<u8>) -> bool {
        self.is_told = false;
        self.bytes = 0;
        for part in self.parts.drain(..) {
            output.extend_from_slice(&part);
        }
        self.state != State::Open
    }
}

impl SendQueue {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Waiting::default()))
    }

    pub(crate) fn put(&self, bytes: Bytes) -> Result<bool, SendError> {
        let mut waiting = self.0.lock();
        if waiting.state != State::Open {
            return Err(SendError::Closed);
        }
        if bytes.is_empty() {
            return Ok(false);
        }
        // One that is longer than the bound is taken if nothing else waits: else it could never be
        // sent.
        if waiting.bytes > 0 && waiting.bytes + bytes.len() > MAIL_BYTES_MAX {
            return Err(SendError::Full);
        }
        waiting.bytes += bytes.len();
        waiting.parts.push_back(bytes);
        Ok(!std::mem::replace(&mut waiting.is_told, true))
    }

    fn close(&self) -> bool {
        let mut waiting = self.0.lock();
        if waiting.state != State::Open {
            return false;
        }
        waiting.state = State::Closing;
        !std::mem::replace(&mut waiting.is_told, true)
    }

    pub(crate) fn take(&self, output: &mut Vec<u8>) -> bool {
        self.0.lock().take(output)
    }

    fn take_last(&self, output: &mut Vec<u8>) -> bool {
        let mut waiting = self.0.lock();
        let is_to_be_closed = waiting.take(output);
        waiting.state = State::Closed;
        is_to_be_closed
    }

    fn end(&self) {
        let mut waiting = self.0.lock();
        waiting.state = State::Closed;
        waiting.bytes = 0;
        waiting.parts.clear();
    }
}
