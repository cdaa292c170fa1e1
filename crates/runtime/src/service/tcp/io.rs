//! The operations of a protocol on its connection.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Protocol;
use super::calls::Calls;
use super::http::Http;
use super::lasting::LastingMemory;
use super::sender::{QUEUED_BYTES_MAX, Sender};
use crate::budget::account::{Account, Charge};
use crate::budget::refusal::Refusal;
use crate::buffers::OUTPUT_BYTES;
use crate::clock::Pace;
use crate::config::ServerConfig;
use crate::service::Site;
use crate::service::blocking_stream::{BlockingStream, OnThread, on_thread};
use crate::service::mailbox::{Mailbox, WakeConnection};
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::turn::turn_in;
use crate::transport::Peer;

/// A connection that a [`Protocol`](super::Protocol) may use during one call.
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
    /// The memory of the bytes that were passed to the protocol, to detect when it sends them back.
    pub(crate) given: Range<*const u8>,
    pub(crate) asked: &'a mut Asked,
    pub(crate) mailbox: &'a mut Option<Arc<Mailbox>>,
    pub(crate) home: &'a dyn Fn() -> Weak<dyn WakeConnection>,
    pub(crate) token: usize,
    pub(crate) crowd: u32,
    pub(crate) calls: &'a mut Option<Box<Calls>>,
    pub(crate) held: &'a mut Option<Box<Held>>,
    pub(crate) account: &'a Arc<Account>,
    pub(crate) config: &'a ServerConfig,
}

/// What a protocol keeps of an incomplete message in buffers of its own.
pub(crate) struct Held {
    charge: Charge,
    /// The pace that the peer must keep while memory is short.
    pub(crate) pace: Pace,
}

/// What a protocol requested during one call.
#[derive(Default)]
pub(crate) struct Asked {
    /// The length of the input prefix that is sent back unchanged.
    pub(crate) sent_back: Borrowed,
    /// Whether any of the following fields is set.
    pub(crate) has_rare: bool,
    pub(crate) end: Option<End>,
    pub(crate) timeout: Option<Instant>,
    pub(crate) notify_drained: bool,
    pub(crate) reading: Option<Reading>,
    /// Why the engine has refused what the protocol asked for.
    pub(crate) refused: Option<Refusal>,
}

/// Whether a protocol wants input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It wants input, including the input that it has already seen.
    Resumed,
    /// It has stopped within its input, and wants the rest in its next turn.
    Stopped,
    Paused,
}

/// A number of bytes at the start of the input of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Borrowed(pub(crate) usize);

/// How a protocol wants to end.
pub(crate) enum End {
    Close,
    TooLong,
    Detach(OnThread),
    /// Another protocol continues.
    Succeed(Box<dyn Protocol>),
    /// The other protocol is in place.
    Succeeded,
    /// The engine continues with HTTP.
    Http(Arc<Site>),
}

impl Io<'_> {
    /// Returns the peer.
    pub fn peer(&self) -> Peer {
        *self.peer
    }

    /// Sends bytes after the call returns. Everything sent in one call goes out in one write. What
    /// the socket does not take is kept, and nothing is read until it is sent. Bytes from the start
    /// of the input of [`data`](super::Protocol::data) are sent without a copy.
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

    /// Closes the connection once everything is sent. Stops reading at once.
    pub fn close(&mut self) {
        self.asked_cold().end.get_or_insert(End::Close);
    }

    /// Like [`close`](Self::close), with the reason `Closed::TooLong`.
    pub(super) fn refuse_as_too_long(&mut self) {
        self.asked_cold().end = Some(End::TooLong);
    }

    /// Schedules a call of [`deadline`](super::Protocol::deadline) after `timeout`, whatever
    /// arrives before that. Replaces a timeout that was set before. After the call no timeout is
    /// set.
    pub fn set_timeout(&mut self, timeout: Duration) {
        /// Longer than any connection lives. Adding it to an `Instant` must not overflow.
        const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

        let timeout = self.now + timeout.min(FOR_EVER);
        self.asked_cold().timeout = Some(timeout);
    }

    /// Requests a call of [`drained`](super::Protocol::drained) when the socket has taken
    /// everything that was sent. Use it to send a lot of data piece by piece.
    pub fn notify_drained(&mut self) {
        self.asked_cold().notify_drained = true;
    }

    /// Returns how long a call should take at most if there is much to do for its input: a
    /// millisecond, or less if many connections of the event loop want to be served, down to 50
    /// microseconds. Then stop, and ask for the rest by [`resume`](Self::resume). A peer that sends
    /// many small messages at once would otherwise delay others.
    pub fn turn(&self) -> Duration {
        turn_in(self.crowd)
    }

    /// Requests another call of [`data`](super::Protocol::data) with the input that this call
    /// leaves unused, once everything is sent. A protocol that stops in the middle of its input
    /// uses it, so that a peer that reads slowly does not make it produce without end. Other
    /// connections of the event loop have their turn first, so a protocol with much to do for one
    /// input stops when its [turn](Self::turn) is over.
    pub fn resume(&mut self) {
        self.asked_cold().reading = Some(Reading::Resumed);
    }

    /// Returns whether a call that answers one message after the other should leave the rest of its
    /// input to the next call: its turn is over, or its output is long, for which no memory is
    /// charged before it is sent.
    pub(super) fn has_done_enough(&self, turn_ends: Instant) -> bool {
        self.output.len() >= OUTPUT_BYTES || Instant::now() >= turn_ends
    }

    /// Stops reading: there is no call of [`data`](super::Protocol::data) or
    /// [`end`](super::Protocol::end) until a later call asks to [`resume`](Self::resume). The peer
    /// has to wait as soon as the system's buffers are full, so this slows down a peer that sends
    /// more than others take. The other methods are called as usual. The server does not notice
    /// meanwhile that the peer has gone, so set a [timeout](Self::set_timeout).
    ///
    /// ```
    /// use filoplume_runtime::tcp::{Io, Protocol};
    /// use std::time::Duration;
    ///
    /// /// Sends back what arrives, at most ten times per second.
    /// struct Slow;
    ///
    /// impl Protocol for Slow {
    ///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
    ///         io.send(bytes);
    ///         io.pause();
    ///         io.set_timeout(Duration::from_millis(100));
    ///         bytes.len()
    ///     }
    ///     fn deadline(&mut self, io: &mut Io<'_>) {
    ///         io.resume();
    ///     }
    /// }
    /// ```
    pub fn pause(&mut self) {
        self.asked_cold().reading = Some(Reading::Paused);
    }

    /// Sets how many bytes of an incomplete message the protocol keeps in buffers of its own. They
    /// are charged to the server's memory budget ([`memory_max`](crate::ServerConfig::memory_max)),
    /// like input that is left unused. While memory is short, a peer that does not continue its
    /// message causes a call of [`memory_pressure`](super::Protocol::memory_pressure). Returns
    /// whether there is memory for them. If there is none, the protocol frees them and closes the
    /// connection.
    ///
    /// ```
    /// use filoplume_runtime::tcp::{Io, Protocol};
    ///
    /// /// Sends whole lines back.
    /// struct Collect(Vec<u8>);
    ///
    /// impl Protocol for Collect {
    ///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
    ///         self.0.extend_from_slice(bytes);
    ///         if self.0.ends_with(b"\n") {
    ///             io.send(&std::mem::take(&mut self.0));
    ///         }
    ///         if !io.set_held(self.0.capacity()) {
    ///             io.close();
    ///         }
    ///         bytes.len()
    ///     }
    /// }
    /// ```
    pub fn set_held(&mut self, bytes: usize) -> bool {
        if bytes == 0 {
            *self.held = None;
            return true;
        }
        let held = self.held.get_or_insert_with(|| {
            let Self { config, account, now, .. } = self;
            let pace = Pace::new(*now, config.content_timeout, config.bytes_per_second_min);
            Box::new(Held { charge: Charge::of(account), pace })
        });
        let has_memory = held.charge.try_set(bytes);
        if !has_memory {
            self.asked_cold().refused = Some(Refusal::Memory);
        }
        has_memory
    }

    /// Sets how many bytes a protocol with a queue of its own keeps there at the end of this call,
    /// and sends in a later one. They are charged to the server's memory budget while the socket
    /// does not take what this call sends. Threads that add to that queue meanwhile call
    /// [`Sender::set_queued`](super::Sender::set_queued). Does nothing if the connection has no
    /// [`sender`](Self::sender).
    pub fn set_kept(&mut self, bytes: usize) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.queue.keep_elsewhere(bytes);
        }
    }

    /// Returns the memory that the program takes for this connection while it is open. It is empty
    /// at first, and any thread may change it. Drop it when the connection closes: until then the
    /// connection counts for its client.
    pub fn lasting_memory(&self) -> LastingMemory {
        LastingMemory::of(self.account)
    }

    /// Makes an HTTP service answer a request, as the engine does for a connection of its own: the
    /// handler runs on the loop or on a thread of the pool, waits for a thread and for permits, and
    /// is refused if the server is overloaded. The connection continues meanwhile, so a protocol
    /// may have several calls at once, as many as it allows its peer. Each is answered once by
    /// [`Protocol::answered`], with this number.
    ///
    /// This is for protocols that carry HTTP in frames of their own, such as HTTP/2, FastCGI or a
    /// tunnel. The [version](Request::version) of such a request is that of HTTP/1.1. The engine
    /// does not tell the handler whether its client has gone: the protocol has to do that by other
    /// means.
    ///
    /// While a call is open, a peer may be silent, unless a [timeout](Self::set_timeout) is set.
    ///
    /// ```
    /// use filoplume_runtime::tcp::{self, Io, Protocol};
    /// use filoplume_runtime::{Peer, Request, Response, ResponseBody, Server};
    /// use std::io::{BufRead, BufReader, Write};
    /// use std::{net::TcpStream, thread, time::Duration};
    ///
    /// /// Each line is a path. Answers come as soon as they are there, with the line's number.
    /// struct Paths(tcp::Http, u64);
    ///
    /// impl Protocol for Paths {
    ///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
    ///         let mut used = 0;
    ///         while let Some(length) = bytes[used..].iter().position(|&byte| byte == b'\n') {
    ///             let path = String::from_utf8_lossy(&bytes[used..used + length]);
    ///             used += length + 1;
    ///             self.1 += 1;
    ///             let request = http::Request::builder().uri(&*path).body(Vec::new());
    ///             match request.ok().and_then(|request| Request::try_from(request).ok()) {
    ///                 Some(request) => io.call(self.1, request, &self.0),
    ///                 None => io.close(),
    ///             }
    ///         }
    ///         used
    ///     }
    ///
    ///     fn answered(&mut self, number: u64, response: Response, io: &mut Io<'_>) {
    ///         if let ResponseBody::Bytes(bytes) = response.body() {
    ///             io.send(format!("{number}: {}\n", bytes.escape_ascii()).as_bytes());
    ///         }
    ///     }
    /// }
    ///
    /// let site = tcp::http(|request: Request| {
    ///     if request.path() == "/slow" {
    ///         thread::sleep(Duration::from_millis(100));
    ///     }
    ///     Response::from(request.path().to_owned())
    /// });
    /// let server = Server::bind("127.0.0.1:0")?;
    /// server.spawn_tcp(move |_: Peer| Paths(site.clone(), 0))?;
    ///
    /// let mut client = TcpStream::connect(server.local_addr().unwrap())?;
    /// client.write_all(b"/a\n/b\n")?;
    /// let mut lines = BufReader::new(client).lines();
    /// assert_eq!(lines.next().unwrap()?, "1: /a");
    /// assert_eq!(lines.next().unwrap()?, "2: /b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call(&mut self, number: u64, request: Request, service: &Http) {
        let calls =
            self.calls.get_or_insert_with(|| Box::new(Calls::new((self.home)(), self.token)));
        calls.ask(number, request, Arc::clone(&service.site));
    }

    /// Takes the next answer to a call.
    pub(crate) fn next_answer(&mut self) -> Option<(u64, Response)> {
        self.calls.as_mut()?.next_answer()
    }

    /// Returns how many [calls](Self::call) of this connection are not answered yet.
    pub fn open_calls(&self) -> usize {
        self.calls.as_ref().map_or(0, |calls| calls.open())
    }

    /// Returns a handle with which any thread can send to this connection while it is open.
    pub fn sender(&mut self) -> Sender {
        let mailbox = self.mailbox.get_or_insert_with(|| {
            let mailbox = Mailbox::new(QUEUED_BYTES_MAX);
            mailbox.attach((self.home)(), self.token);
            Arc::new(mailbox)
        });
        Sender::new(Arc::clone(mailbox))
    }

    /// Gives the connection to a thread of the pool, as a plain blocking socket, once everything is
    /// sent. This ends the protocol. Input that it did not use comes first in the stream.
    pub fn detach(&mut self, handler: impl FnOnce(BlockingStream) + Send + 'static) {
        self.asked_cold().end = Some(End::Detach(on_thread(handler)));
    }

    /// Gives the connection to another protocol. `successor` gets a call of
    /// [`open`](super::Protocol::open), then the input that this protocol did not use. Output is
    /// still sent; timeouts are removed. This protocol is closed with
    /// [`Succeeded`](super::Closed::Succeeded) and gets no further call.
    ///
    /// This example serves two protocols on one port and tells them apart by the first byte:
    ///
    /// ```
    /// use filoplume_runtime::tcp::{self, Http, Io, Protocol};
    /// use filoplume_runtime::{Peer, Request, Response, Server};
    /// use std::io::{BufRead, BufReader, Write};
    ///
    /// /// Answers `?` with `!`, and everything else as HTTP.
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

    /// Gives the connection to the engine's HTTP.
    pub(super) fn continue_as_http(&mut self, site: Arc<Site>) {
        self.asked_cold().end = Some(End::Http(site));
    }
}

impl fmt::Debug for Io<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").field("peer", &self.peer).finish_non_exhaustive()
    }
}
