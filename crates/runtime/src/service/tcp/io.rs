//! What a protocol may do with its connection.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Protocol;
use super::sender::{Look, Mailbox, Sender};
use crate::service::Site;
use crate::service::blocking_stream::BlockingStream;
use crate::transport::Peer;

/// A connection in the hands of its [`Protocol`](super::Protocol), for the time of one call.
///
/// ```
/// use filoplume_runtime::tcp::{Io, Protocol};
/// use std::time::Duration;
///
/// /// Asks for a name, and waits five seconds for it.
/// struct Greeter;
///
/// impl Protocol for Greeter {
///     fn open(&mut self, io: &mut Io<'_>) {
///         io.send(b"Your name? ");
///         io.set_timeout(Duration::from_secs(5));
///     }
///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
///         io.send(b"Hello, ");
///         io.send(bytes);
///         io.close();
///         bytes.len()
///     }
///     fn deadline(&mut self, io: &mut Io<'_>) {
///         io.send(b"\nToo late.\n");
///         io.close();
///     }
/// }
/// ```
pub struct Io<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) now: Instant,
    pub(crate) output: &'a mut Vec<u8>,
    /// Where the bytes lie that the protocol was given, to recognise those that it sends back.
    pub(crate) given: Range<*const u8>,
    pub(crate) asked: &'a mut Asked,
    pub(crate) mailbox: &'a mut Option<Arc<Mailbox>>,
    pub(crate) home: &'a dyn Fn() -> Weak<dyn Look>,
    pub(crate) token: usize,
}

/// What a protocol has asked for during a call.
#[derive(Default)]
pub(crate) struct Asked {
    /// The first bytes that it was given, which go back as they are.
    pub(crate) sent_back: Borrowed,
    /// Whether anything of what follows was asked for.
    pub(crate) has_rare: bool,
    pub(crate) end: Option<End>,
    pub(crate) timeout: Option<Instant>,
    pub(crate) notify_drained: bool,
    /// The protocol has given way to another one.
    pub(crate) is_succeeded: bool,
}

/// So many bytes at the start of what the protocol was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Borrowed(pub(crate) usize);

/// How a protocol wants to end.
pub(crate) enum End {
    Close,
    TooLong,
    Detach(Box<dyn FnOnce(BlockingStream) + Send>),
    /// Another protocol goes on.
    Succeed(Box<dyn Protocol>),
    /// The engine goes on, in HTTP.
    Http(Arc<Site>),
}

impl Io<'_> {
    /// Returns who is at the other end.
    pub fn peer(&self) -> Peer {
        *self.peer
    }

    /// Sends bytes once the call returns, all that it sends in one write. What the socket does not
    /// take is kept, and nothing is read before it is gone. Bytes from the start of what
    /// [`data`](super::Protocol::data) was given are sent from where they lie.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) {
        let sent_back = &mut self.asked.sent_back.0;
        let is_next = self.output.is_empty()
            && bytes.as_ptr() == self.given.start.wrapping_add(*sent_back)
            && bytes.as_ptr_range().end <= self.given.end;
        if is_next {
            *sent_back += bytes.len();
        } else {
            self.output.extend_from_slice(bytes);
        }
    }

    fn asked_cold(&mut self) -> &mut Asked {
        self.asked.has_rare = true;
        self.asked
    }

    /// Closes the connection once everything is sent. Nothing is read any more.
    pub fn close(&mut self) {
        self.asked_cold().end.get_or_insert(End::Close);
    }

    /// As [`close`](Self::close), and says why.
    pub(super) fn refuse_as_too_long(&mut self) {
        self.asked_cold().end = Some(End::TooLong);
    }

    /// Has [`deadline`](super::Protocol::deadline) called when `timeout` from now is over, whatever
    /// comes until then. Replaces the time that was set before; once it is over none is set.
    pub fn set_timeout(&mut self, timeout: Duration) {
        /// Longer than any connection lives; what is added to a point in time must not overflow.
        const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

        let timeout = self.now + timeout.min(FOR_EVER);
        self.asked_cold().timeout = Some(timeout);
    }

    /// Has [`drained`](super::Protocol::drained) called once the socket has taken all that was
    /// sent: for who sends a lot, a piece at a time.
    pub fn notify_drained(&mut self) {
        self.asked_cold().notify_drained = true;
    }

    /// Returns a handle with which any thread can send to this connection, as long as it is open.
    pub fn sender(&mut self) -> Sender {
        let mailbox =
            self.mailbox.get_or_insert_with(|| Arc::new(Mailbox::new((self.home)(), self.token)));
        Sender::new(Arc::clone(mailbox))
    }

    /// Gives the connection to a thread of the pool, as a plain blocking socket, once everything is
    /// sent. The protocol is over then; what it was given and did not use comes first in the
    /// stream.
    pub fn detach(&mut self, handler: impl FnOnce(BlockingStream) + Send + 'static) {
        self.asked_cold().end = Some(End::Detach(Box::new(handler)));
    }

    /// Gives the connection to another protocol: `successor` is told that it is
    /// [open](super::Protocol::open), and then of all that this protocol did not use. What was sent
    /// stays sent; timeouts that were set are forgotten. This protocol is told that it is
    /// [`Succeeded`](super::Closed::Succeeded), and nothing after that.
    ///
    /// One port for two protocols, told apart by the first byte:
    ///
    /// ```
    /// use filoplume_runtime::tcp::{self, Http, Io, Protocol};
    /// use filoplume_runtime::{Peer, Request, Response, Server};
    /// use std::io::{BufRead, BufReader, Write};
    ///
    /// /// Answers `?` with `!`, and HTTP with HTTP.
    /// struct Door {
    ///     site: Http,
    /// }
    ///
    /// impl Protocol for Door {
    ///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
    ///         let questions = bytes.iter().take_while(|&&byte| byte == b'?').count();
    ///         io.send("!\n".repeat(questions).as_bytes());
    ///         if questions < bytes.len() {
    ///             io.continue_as(self.site.clone());
    ///         }
    ///         questions
    ///     }
    /// }
    ///
    /// let site = tcp::http(|_request: Request| Response::new(204));
    /// let server = Server::bind("127.0.0.1:0")?;
    /// server.spawn_tcp(move |_peer: Peer| Door { site: site.clone() })?;
    ///
    /// let mut client = std::net::TcpStream::connect(server.local_addr().unwrap())?;
    /// client.write_all(b"?GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")?;
    /// let mut lines = BufReader::new(client).lines();
    /// assert_eq!(lines.next().unwrap()?, "!");
    /// assert_eq!(lines.next().unwrap()?, "HTTP/1.1 204 No Content");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn continue_as(&mut self, successor: impl Protocol) {
        self.asked_cold().end = Some(End::Succeed(Box::new(successor)));
    }

    /// Gives the connection to the engine's own HTTP.
    pub(super) fn continue_as_http(&mut self, site: Arc<Site>) {
        self.asked_cold().end = Some(End::Http(site));
    }
}

impl fmt::Debug for Io<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").field("peer", &self.peer).finish_non_exhaustive()
    }
}
