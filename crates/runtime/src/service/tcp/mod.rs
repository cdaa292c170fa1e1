//! Raw TCP services: what speaks something else than HTTP over the same event loops.
//!
//! A service is told of each connection and answers with a [`Protocol`], a state machine over
//! bytes. Most need none of their own: [`bytes`], [`lines`] and [`messages`] make a service of a
//! closure, and [`blocking`] gives a thread of the pool a plain blocking socket. [`http()`] is
//! HTTP/1.1 as one of them.
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
//! Everything that holds for handlers holds here. What is called runs on the event loop and may
//! block: a service that does is noticed, and called on threads of the pool from then on. A panic
//! closes its connection and nothing else. A peer that does not read what it is sent is not read
//! from either, and is cut off after [`write_timeout`](crate::ServerConfig::write_timeout).

mod bytes;
mod http;
mod io;
mod lines;
mod messages;
mod reply;
mod sender;

use crate::config::ServerConfig;
use crate::service::blocking_stream::BlockingStream;
use crate::transport::Peer;

pub use bytes::{Bytes, bytes};
pub use http::{Http, http};
pub use io::Io;
pub(crate) use io::{Asked, Borrowed, End};
pub use lines::{Lines, lines};
pub use messages::{Messages, messages};
pub use reply::Reply;
#[cfg(all(test, loom))]
pub(crate) use sender::SendQueue;
pub(crate) use sender::{Look, Mailbox};
pub use sender::{SendError, Sender};

/// Bytes that a protocol may leave unread, unless it says otherwise.
const UNREAD_BYTES_MAX: usize = 64 * 1024;

/// What is done with the connections of a server. Closures that make a [`Protocol`] for a peer are
/// services.
///
/// ```
/// use filoplume_runtime::tcp::{Io, Protocol};
/// use filoplume_runtime::{Peer, Server};
///
/// /// Counts the bytes that come, and tells how many there were once the peer has ended.
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
    /// Returns the state machine for a connection that was accepted.
    fn accept(&self, peer: Peer) -> Box<dyn Protocol>;

    /// Returns the configuration that the service wants to be served with. Called once, when the
    /// server starts. A configuration that was given to the [builder](crate::ServerBuilder::config)
    /// replaces it.
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

/// A state machine over the bytes of one connection. One of its methods runs at a time, each on
/// whatever thread has the connection in hand.
///
/// All methods but [`data`](Self::data) do what most protocols want.
///
/// ```
/// use filoplume_runtime::tcp::{Closed, Io, Protocol};
///
/// /// Answers each byte with its successor, and says at the end how many there were.
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
    /// The connection is there; nothing has been read. The place for greetings.
    fn open(&mut self, io: &mut Io<'_>) {
        let _ = io;
    }

    /// More bytes came. `bytes` are all that nobody has used: those left over from the last time,
    /// then the new ones. Returns how many of them are used up; the rest is given again once there
    /// are more.
    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize;

    /// The peer sends nothing more; it may still read. `rest` is what [`data`](Self::data) did not
    /// use. Closes the connection unless it is overridden.
    fn end(&mut self, rest: &[u8], io: &mut Io<'_>) {
        let _ = rest;
        io.close();
    }

    /// The socket has taken all that was sent. Called if [`Io::notify_drained`] asked for it, once
    /// each time.
    fn drained(&mut self, io: &mut Io<'_>) {
        let _ = io;
    }

    /// The time that [`Io::set_timeout`] has set is over; or, where none is set, the peer has been
    /// silent for [`keep_alive_timeout`](crate::ServerConfig::keep_alive_timeout), or was too slow
    /// with what it has begun ([`content_timeout`](crate::ServerConfig::content_timeout)). Closes
    /// the connection unless it is overridden.
    fn deadline(&mut self, io: &mut Io<'_>) {
        io.close();
    }

    /// The connection is over, or another protocol's. Called once, and last.
    fn close(&mut self, reason: Closed) {
        let _ = reason;
    }

    /// Most bytes that [`data`](Self::data) may leave unused. A peer that sends more than that is
    /// cut off. Default: 64 KiB.
    fn unread_bytes_max(&self) -> usize {
        UNREAD_BYTES_MAX
    }
}

/// Why a connection is over.
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
    /// The protocol asked for it.
    ByProtocol,
    /// The peer had ended its direction, and the protocol had nothing more to say.
    ByPeer,
    /// The peer did not read what it was sent in time.
    TimedOut,
    /// The peer sent more than [`Protocol::unread_bytes_max`] that the protocol had no use for.
    TooLong,
    /// The connection broke: the peer has reset it.
    Broken,
    /// The protocol panicked.
    Panicked,
    /// The protocol blocks, and neither a thread nor a place in the queue was left for it.
    Overloaded,
    /// It is somebody else's now, by [`Io::detach`].
    Detached,
    /// It goes on in another protocol, by [`Io::continue_as`].
    Succeeded,
    /// The server is shutting down.
    Shutdown,
}

/// Returns a service that gives each connection to a thread of the pool, as a plain blocking
/// socket. A connection that says nothing holds its thread; at most
/// [`threads_max`](crate::ServerConfig::threads_max) are served at once, and
/// [`queue_capacity`](crate::ServerConfig::queue_capacity) wait. For protocols that are hard to
/// write otherwise, and for few peers.
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
