//! Sending to a connection from any thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::sync::Mutex;

/// The number of bytes that may wait for a connection. More are refused, because a peer that does
/// not read must not fill the memory.
const QUEUED_BYTES_MAX: usize = 256 * 1024;

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
    /// The connection is closed or closing.
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

    /// Appends bytes to the output of the connection. Never blocks.
    ///
    /// # Errors
    ///
    /// [`SendError::Full`] if too many bytes wait for the peer, [`SendError::Closed`] if the
    /// connection is closed or closing. In both cases none of the bytes are sent.
    pub fn send(&self, bytes: impl Into<Bytes>) -> Result<(), SendError> {
        if self.mailbox.queue.put(bytes.into())? {
            self.mailbox.wake();
        }
        Ok(())
    }

    /// Closes the connection once everything is sent.
    pub fn close(&self) {
        if self.mailbox.queue.close() {
            self.mailbox.wake();
        }
    }

    /// Returns whether the connection is open.
    pub fn is_open(&self) -> bool {
        self.mailbox.queue.0.lock().state == State::Open
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued = self.mailbox.queue.0.lock();
        f.debug_struct("Sender")
            .field("bytes", &queued.bytes)
            .field("state", &queued.state)
            .finish()
    }
}

/// The event loop of a connection, as far as senders use it.
pub(crate) trait WakeConnection: Send + Sync {
    /// Wakes a connection as if its socket were ready. A token of a closed connection does no harm.
    fn wake_connection(&self, token: usize);
}

/// The queue of bytes for a connection. The thread that owns the connection takes them.
pub(crate) struct Mailbox {
    /// Weak, because a program may keep senders for longer than the server lives.
    event_loop: Weak<dyn WakeConnection>,
    token: usize,
    queue: SendQueue,
}

impl Mailbox {
    pub(crate) fn new(event_loop: Weak<dyn WakeConnection>, token: usize) -> Self {
        Self { event_loop, token, queue: SendQueue::new() }
    }

    /// Wakes the connection.
    fn wake(&self) {
        if let Some(event_loop) = self.event_loop.upgrade() {
            event_loop.wake_connection(self.token);
        }
    }

    /// Appends the queued bytes to the output. Returns whether the connection must be closed after
    /// them.
    pub(crate) fn take(&self, output: &mut Vec<u8>) -> bool {
        self.queue.take(output)
    }

    /// Like [`take`](Self::take), and refuses bytes from then on.
    pub(crate) fn take_last(&self, output: &mut Vec<u8>) -> bool {
        self.queue.take_last(output)
    }

    /// Drops the queued bytes and refuses more, because the connection is closed.
    pub(crate) fn end(&self) {
        self.queue.end();
    }
}

/// The queued bytes. Each change returns whether the event loop must be notified. One notification
/// covers everything that is queued until it is handled.
pub(crate) struct SendQueue(Mutex<Queued>);

#[derive(Debug, Default)]
struct Queued {
    parts: VecDeque<Bytes>,
    bytes: usize,
    state: State,
    /// Whether the loop was notified and has not taken the bytes since.
    is_notified: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// The connection is closed once the queued bytes are sent.
    Closing,
    Closed,
}

impl Queued {
    fn take(&mut self, output: &mut Vec<u8>) -> bool {
        self.is_notified = false;
        self.bytes = 0;
        for part in self.parts.drain(..) {
            output.extend_from_slice(&part);
        }
        self.state != State::Open
    }
}

impl SendQueue {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Queued::default()))
    }

    pub(crate) fn put(&self, bytes: Bytes) -> Result<bool, SendError> {
        let mut queued = self.0.lock();
        if queued.state != State::Open {
            return Err(SendError::Closed);
        }
        if bytes.is_empty() {
            return Ok(false);
        }
        // Bytes that are longer than the bound are accepted if nothing else is queued. Otherwise
        // they could never be sent.
        if queued.bytes > 0 && queued.bytes + bytes.len() > QUEUED_BYTES_MAX {
            return Err(SendError::Full);
        }
        queued.bytes += bytes.len();
        queued.parts.push_back(bytes);
        Ok(!std::mem::replace(&mut queued.is_notified, true))
    }

    fn close(&self) -> bool {
        let mut queued = self.0.lock();
        if queued.state != State::Open {
            return false;
        }
        queued.state = State::Closing;
        !std::mem::replace(&mut queued.is_notified, true)
    }

    pub(crate) fn take(&self, output: &mut Vec<u8>) -> bool {
        self.0.lock().take(output)
    }

    fn take_last(&self, output: &mut Vec<u8>) -> bool {
        let mut queued = self.0.lock();
        let must_close = queued.take(output);
        queued.state = State::Closed;
        must_close
    }

    fn end(&self) {
        let mut queued = self.0.lock();
        queued.state = State::Closed;
        queued.bytes = 0;
        queued.parts.clear();
    }
}
