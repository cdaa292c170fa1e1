//! Raw TCP services: protocols other than HTTP on the same event loops.
//!
//! A service returns a [`Protocol`] for each connection, which is a state machine over bytes. Most
//! programs need not write one: [`bytes`], [`lines`] and [`messages`] make a service of a closure,
//! and [`blocking`] gives a plain blocking socket to a thread of the pool. [`http()`] is HTTP/1.1
//! as a service of this kind.
//!
//! ```
//! use filoplume_runtime::{Server, tcp};
//! use std::io::{BufRead, BufReader, Write};
//! use std::net::TcpStream;
//!
//! let server = Server::bind("127.0.0.1:0")?;
//! server.spawn_tcp(tcp::lines(|line| {
//!     format!("you said: {}", line.escape_ascii()).into()
//! }))?;
//!
//! let mut client = TcpStream::connect(server.local_addr().unwrap())?;
//! client.write_all(b"hello\n")?;
//! let mut answer = String::new();
//! BufReader::new(client).read_line(&mut answer)?;
//! assert_eq!(answer, "you said: hello\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The rules for HTTP handlers apply here too. Methods and closures run on the event loop and may
//! block. The engine detects a service that blocks and from then on calls it on threads of the
//! pool. A panic closes its connection and affects nothing else. The engine stops reading from a
//! peer that does not read what it is sent, and closes its connection after
//! [`write_timeout`](crate::ServerConfig::write_timeout).

mod bytes;
mod calls;
mod http;
mod io;
mod lasting;
mod lines;
mod messages;
mod reply;
mod sender;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::config::ServerConfig;
use crate::service::blocking_stream::BlockingStream;
use crate::service::response::Response;
use crate::transport::Peer;

pub use bytes::{Bytes, bytes};
pub(crate) use calls::{AnswerSlot, Ask, Calls};
pub use http::{Http, http};
pub use io::Io;
pub(crate) use io::{Asked, Borrowed, End, Held, Reading};
pub use lasting::LastingMemory;
pub use lines::{Lines, lines};
pub use messages::{Messages, messages};
pub use reply::Reply;
pub use sender::{SendError, Sender};

/// The default of [`Protocol::unread_bytes_max`].
const UNREAD_BYTES_MAX: usize = 64 * 1024;

/// A handler of the connections of a server. Closures that return a [`Protocol`] for a peer are
/// services.
///
/// ```
/// use filoplume_runtime::tcp::{Io, Protocol};
/// use filoplume_runtime::{Peer, Server};
///
/// /// Counts the bytes of a peer, and sends the count when the peer has ended.
/// struct Count(usize);
///
/// impl Protocol for Count {
///     fn data(&mut self, bytes: &[u8], _io: &mut Io<'_>) -> usize {
///         self.0 += bytes.len();
///         bytes.len()
///     }
///     fn end(&mut self, _rest: &[u8], io: &mut Io<'_>) {
///         io.send(self.0.to_string().as_bytes());
///         io.close();
///     }
/// }
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn_tcp(|_peer: Peer| Count(0))?;
///
/// use std::io::{Read, Write};
/// let mut client = std::net::TcpStream::connect(server.local_addr().unwrap())?;
/// client.write_all(b"12345")?;
/// client.shutdown(std::net::Shutdown::Write)?;
/// let mut told = String::new();
/// client.read_to_string(&mut told)?;
/// assert_eq!(told, "5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TcpService: Send + Sync + 'static {
    /// Returns the state machine for an accepted connection.
    fn accept(&self, peer: Peer) -> Box<dyn Protocol>;

    /// Returns the configuration to serve this service with. Called once, when the server starts. A
    /// configuration that is given to the [builder](crate::ServerBuilder::config) replaces it.
    fn config(&self) -> Option<ServerConfig> {
        None
    }
}

impl<F, P> TcpService for F
where
    F: Fn(Peer) -> P + Send + Sync + 'static,
    P: Protocol,
{
    fn accept(&self, peer: Peer) -> Box<dyn Protocol> {
        Box::new(self(peer))
    }
}

/// A state machine over the bytes of one connection. Its methods never run at the same time. Each
/// runs on the thread that owns the connection at that moment.
///
/// All methods except [`data`](Self::data) have a default that suits most protocols.
///
/// ```
/// use filoplume_runtime::tcp::{Closed, Io, Protocol};
///
/// /// Answers each byte with its successor, and prints at the end how many there were.
/// struct Successors {
///     count: usize,
/// }
///
/// impl Protocol for Successors {
///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
///         self.count += bytes.len();
///         io.send(&bytes.iter().map(|byte| byte.wrapping_add(1)).collect::<Vec<_>>());
///         bytes.len()
///     }
///     fn close(&mut self, reason: Closed) {
///         println!("{} bytes, then {reason:?}", self.count);
///     }
/// }
/// ```
pub trait Protocol: Send + 'static {
    /// Called when the connection is ready, before anything is read. Greetings are sent here.
    fn open(&mut self, io: &mut Io<'_>) {
        let _ = io;
    }

    /// Called when more bytes have arrived. `bytes` are all unused bytes: those left over from the
    /// last call, then the new ones. Returns how many of them are used. The rest is passed again
    /// when more bytes have arrived.
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize;

    /// Called when the peer has closed its write direction; it may still read. `rest` is what
    /// [`data`](Self::data) did not use. The default closes the connection.
    fn end(&mut self, rest: &[u8], io: &mut Io<'_>) {
        let _ = rest;
        io.close();
    }

    /// Called when the socket has taken everything that was sent, once for each call of
    /// [`Io::notify_drained`].
    fn drained(&mut self, io: &mut Io<'_>) {
        let _ = io;
    }

    /// Called when the time set by [`Io::set_timeout`] is over. If no timeout is set, it is called
    /// when the peer has been silent for
    /// [`keep_alive_timeout`](crate::ServerConfig::keep_alive_timeout), or was too slow in the
    /// middle of a message ([`content_timeout`](crate::ServerConfig::content_timeout)). The default
    /// closes the connection. If it does not close the connection, it is called again after the
    /// next `keep_alive_timeout`, or `content_timeout` in the middle of a message, unless it sets a
    /// timeout.
    fn deadline(&mut self, io: &mut Io<'_>) {
        io.close();
    }

    /// Called when the memory for the data of all peers is short
    /// ([`memory_max`](crate::ServerConfig::memory_max)) and the peer does not continue a message
    /// of which the server holds the beginning: input that was left unused, or what
    /// [`Io::set_held`] says. The default closes the connection.
    fn memory_pressure(&mut self, io: &mut Io<'_>) {
        io.close();
    }

    /// Called when another thread has called [`Sender::notify`]. Notifications that come faster
    /// than these calls are combined.
    fn notified(&mut self, io: &mut Io<'_>) {
        let _ = io;
    }

    /// Returns whether [`notified`](Self::notified) may block. If not, it always runs on the event
    /// loop, and the engine does not learn from it where the other calls should run. Return `false`
    /// if it only sends what other threads have queued: a message to thousands of connections needs
    /// no thread then. Default: `true`.
    fn notified_may_block(&self) -> bool {
        true
    }

    /// Called when the answer to an [`Io::call`] has arrived, with the number of the call. Answers
    /// come in the order in which the handlers return. The answer is a `500` if the handler
    /// panicked, or if its response is an upgrade or [pushed](crate::pushed). It is a `503` if the
    /// server was overloaded.
    fn answered(&mut self, number: u64, response: Response, io: &mut Io<'_>) {
        let _ = (number, response, io);
    }

    /// Called once, when the server begins to shut down, no input is left unused and all
    /// [calls](Io::call) are answered. The default
    /// closes the connection. A protocol that says goodbye does so here, and closes when the peer
    /// has answered; the drain deadline of the server ends it in any case.
    fn shutdown(&mut self, io: &mut Io<'_>) {
        io.close();
    }

    /// Called once and last, when the connection is closed or another protocol owns it.
    fn close(&mut self, reason: Closed) {
        let _ = reason;
    }

    /// Returns how many bytes [`data`](Self::data) may leave unused. The connection of a peer that
    /// sends more is closed. Default: 64 KiB.
    fn unread_bytes_max(&self) -> usize {
        UNREAD_BYTES_MAX
    }
}

/// The reason why a connection ended.
///
/// ```
/// use filoplume_runtime::tcp::Closed;
///
/// fn is_worth_a_line(reason: Closed) -> bool {
///     !matches!(reason, Closed::ByProtocol | Closed::ByPeer | Closed::Shutdown)
/// }
///
/// assert!(is_worth_a_line(Closed::TooLong));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Closed {
    /// The protocol closed it.
    ByProtocol,
    /// The peer closed its write direction, and the protocol had nothing more to send.
    ByPeer,
    /// The peer was silent, or did not read its output in time.
    TimedOut,
    /// The peer sent more unused bytes than [`Protocol::unread_bytes_max`].
    TooLong,
    /// The connection broke, for example by a reset of the peer.
    Broken,
    /// The protocol panicked.
    Panicked,
    /// The protocol blocks, and the pool had neither a free thread nor room in its queue. Or the
    /// server was full, and has closed the connection to make room for a new one.
    Overloaded,
    /// A handler owns it, by [`Io::detach`].
    Detached,
    /// Another protocol owns it, by [`Io::continue_as`].
    Succeeded,
    /// The server is shutting down.
    Shutdown,
}

/// Returns a service that gives each connection to a thread of the pool, as a plain blocking
/// socket. A silent connection keeps its thread. At most
/// [`threads_max`](crate::ServerConfig::threads_max) connections are served at once, and
/// [`queue_capacity`](crate::ServerConfig::queue_capacity) wait. Use it for few peers, and for
/// protocols that are hard to write as a state machine.
///
/// ```
/// use filoplume_runtime::{BlockingStream, Server, tcp};
/// use std::io::{self, Read, Write};
///
/// let server = Server::bind("127.0.0.1:0")?;
/// server.spawn_tcp(tcp::blocking(|mut stream: BlockingStream| {
///     let mut name = [0; 5];
///     if stream.read_exact(&mut name).is_ok() {
///         let _ = write!(stream, "Hello, {}!", name.escape_ascii());
///     }
/// }))?;
///
/// let mut client = std::net::TcpStream::connect(server.local_addr().unwrap())?;
/// client.write_all(b"Feder")?;
/// assert_eq!(io::read_to_string(client)?, "Hello, Feder!");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn blocking(handler: impl Fn(BlockingStream) + Send + Sync + 'static) -> impl TcpService {
    let handler = std::sync::Arc::new(handler);
    move |_: Peer| Blocking { handler: std::sync::Arc::clone(&handler) }
}

struct Blocking<F> {
    handler: std::sync::Arc<F>,
}

impl<F: Fn(BlockingStream) + Send + Sync + 'static> Protocol for Blocking<F> {
    fn open(&mut self, io: &mut Io<'_>) {
        let handler = std::sync::Arc::clone(&self.handler);
        io.detach(move |stream| handler(stream));
    }

    fn data(&mut self, _bytes: &[u8], _io: &mut Io<'_>) -> usize {
        0
    }
}
