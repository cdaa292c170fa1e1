//! The state of a connection, and where it waits while no thread works on it.
//!
//! A connection is a transport and a guest. The transport moves bytes and does not interpret them.
//! The guest interprets them and knows no socket. The other fields say where the connection waits
//! and for how long.

pub(crate) mod deadlines;
pub(crate) mod slab;
pub(crate) mod unsent;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use mio::{Interest, Token};

use crate::budget::account::{Account, Charge};
use crate::budget::clients::CountsFor;
use crate::buffers::Content;
use crate::engine::event_loop::LoopHandle;
use crate::engine::listener::Accepted;
use crate::execution::crowd::Member;
use crate::execution::lease::Lease;
use crate::protocol::Guest;
use crate::protocol::http::Http;
use crate::service::request::Request;
use crate::transport::{Peer, Transport};
use unsent::Unsent;

/// One connection. It moves by value and has one owner at a time: a slab, a leader, a pool thread
/// or a request that the program has pulled.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    /// The peer's address, as the socket or a PROXY header reports it.
    pub(crate) peer: Peer,
    /// Counts the connection, and what it buffers, for its client if clients are counted. For a
    /// connection of a proxy, that is the client of its current request.
    pub(crate) account: Arc<Account>,
    /// Whether the peer is a proxy, so that the service names the client of each request.
    pub(crate) is_proxy: bool,
    pub(crate) guest: Guest,
    /// Bytes that were read and not used, kept while no thread works on the connection.
    pub(crate) leftover: Content,
    /// The share of the memory budget that `leftover` takes.
    pub(crate) leftover_charge: Charge,
    /// The share of the memory budget that the transport's received bytes take.
    #[cfg(feature = "tls")]
    pub(crate) held_charge: Charge,
    /// Bytes that the socket has not taken yet.
    pub(crate) unsent: Option<Box<Unsent>>,
    pub(crate) loop_handle: Arc<LoopHandle>,
    pub(crate) token: usize,
    mode: Mode,
    /// When it expires if its peer does nothing.
    pub(crate) deadline: Instant,
    /// The time of its current entry in the loop's deadlines. Any other entry is stale.
    pub(crate) listed_at: Option<Instant>,
    /// Whether the socket may have unread bytes. The poller is edge-triggered and reports them
    /// once, so this must be kept until a read would block.
    pub(crate) can_read: bool,
    /// Whether the peer has closed its direction. A read reports that after the last byte.
    pub(crate) has_end: bool,
    /// Whether a thread keeps the connection between requests, and how well that worked.
    pub(crate) lease: Lease,
    /// Counts this connection in the crowd while its requests block.
    crowd: Option<Member>,
    /// How often it has yielded to other connections.
    pub(crate) yields: u32,
}

/// How the connection learns that its socket is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Not at all: the connection is new, or was held by a thread.
    Unregistered,
    /// The loop's poller reports that it is readable.
    Reading,
    /// The loop's poller reports that it is readable or writable.
    ReadingAndWriting,
    /// A thread holds it, and its reads and writes block.
    Blocking,
    /// As `Blocking`, and the loop's poller reports when the peer ends its direction.
    BlockingAndReported,
}

impl Connection {
    pub(crate) fn new(
        accepted: Accepted,
        loop_handle: Arc<LoopHandle>,
        token: usize,
        deadline: Instant,
    ) -> Self {
        let Accepted { transport, peer, entry, counts_for } = accepted;
        let is_proxy = counts_for.is_proxy();
        Self {
            transport,
            peer,
            account: loop_handle.engine.account(counts_for.client()),
            is_proxy,
            guest: loop_handle.engine.first_guest(&entry),
            leftover: Content::default(),
            leftover_charge: Charge::default(),
            #[cfg(feature = "tls")]
            held_charge: Charge::default(),
            unsent: None,
            loop_handle,
            token,
            mode: Mode::Unregistered,
            deadline,
            listed_at: None,
            can_read: true,
            has_end: false,
            lease: Lease::default(),
            crowd: None,
            yields: 0,
        }
    }

    /// Changes the client that it counts for.
    pub(crate) fn count_for(&mut self, counts_for: CountsFor) {
        self.is_proxy = counts_for.is_proxy();
        self.account = self.loop_handle.engine.account(counts_for.client());
    }

    /// Counts what a connection of a proxy holds for the client of its current request.
    #[cold]
    #[inline(never)]
    pub(crate) fn act_for(&mut self, request: &Request) {
        let engine = &self.loop_handle.engine;
        let service = self.guest.as_http().and_then(Http::site).map(|site| &*site.service);
        let named = service.and_then(|service| {
            // If the service panics, the request counts for nobody.
            catch_unwind(AssertUnwindSafe(|| service.client(request))).unwrap_or_else(|_| {
                engine.note_panic("`Service::client` panicked");
                None
            })
        });
        // A request of the proxy itself counts for nobody.
        let is_own = |client: &IpAddr| match self.peer {
            Peer::Tcp(peer) => peer.ip().to_canonical() == client.to_canonical(),
            _ => false,
        };
        let client = named.filter(|client| !is_own(client));
        self.account = match client {
            Some(client) if self.account.is_of(client) => return,
            Some(client) => engine.account_for(client),
            None => engine.account(None),
        };
    }

    #[inline]
    pub(crate) fn token(&self) -> usize {
        self.token
    }

    #[inline]
    pub(crate) fn loop_handle(&self) -> &Arc<LoopHandle> {
        &self.loop_handle
    }

    /// Registers the connection's interest with its loop's poller. Costs a system call only if the
    /// interest has changed.
    #[inline]
    pub(crate) fn watch(&mut self, for_writing: bool) -> io::Result<()> {
        // A wider interest than necessary is harmless: it causes one spurious wake-up per edge.
        match self.mode {
            Mode::ReadingAndWriting => Ok(()),
            Mode::Reading if !for_writing => Ok(()),
            _ => self.watch_anew(for_writing),
        }
    }

    #[inline(never)]
    fn watch_anew(&mut self, for_writing: bool) -> io::Result<()> {
        let (wanted, interest) = if for_writing {
            (Mode::ReadingAndWriting, Interest::READABLE | Interest::WRITABLE)
        } else {
            (Mode::Reading, Interest::READABLE)
        };
        self.release_hold()?;
        if self.mode == wanted {
            return Ok(());
        }
        let registry = self.loop_handle.registry();
        if self.mode == Mode::Unregistered {
            self.transport.register(registry, Token(self.token), interest)?;
        } else {
            self.transport.reregister(registry, Token(self.token), interest)?;
        }
        self.mode = wanted;
        Ok(())
    }

    /// Deregisters the connection and makes its socket blocking. Each read and write waits for
    /// `timeout` at most.
    pub(crate) fn hold(&mut self, timeout: std::time::Duration) -> io::Result<()> {
        self.unwatch()?;
        self.transport.set_blocking(timeout)?;
        self.mode = Mode::Blocking;
        Ok(())
    }

    /// Makes the loop's poller report when the peer ends its direction, while another owner works
    /// on the connection. Costs a system call only if the connection is in no poller.
    pub(crate) fn watch_end(&mut self) -> io::Result<()> {
        match self.mode {
            Mode::Reading | Mode::ReadingAndWriting | Mode::BlockingAndReported => Ok(()),
            Mode::Unregistered => self.watch_anew(false),
            Mode::Blocking => {
                let (registry, token) = (self.loop_handle.registry(), Token(self.token));
                self.transport.register(registry, token, Interest::READABLE)?;
                self.mode = Mode::BlockingAndReported;
                Ok(())
            }
        }
    }

    /// Ends [`hold`](Self::hold). The connection is in no poller until [`watch`](Self::watch) is
    /// called, unless [`watch_end`](Self::watch_end) was.
    pub(crate) fn release_hold(&mut self) -> io::Result<()> {
        if self.is_held() {
            self.transport.set_nonblocking()?;
            let is_reported = self.mode == Mode::BlockingAndReported;
            self.mode = if is_reported { Mode::Reading } else { Mode::Unregistered };
        }
        Ok(())
    }

    /// Records whether a request of the connection blocked its thread.
    pub(crate) fn note_for_lease(&mut self, has_blocked: bool) {
        self.lease.note(has_blocked);
        if self.lease.is_blocking() != self.crowd.is_some() {
            self.crowd = self.lease.is_blocking().then(|| self.loop_handle.engine.crowd.join());
        }
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.mode, Mode::Blocking | Mode::BlockingAndReported)
    }

    /// Deregisters the connection from its loop's poller.
    pub(crate) fn unwatch(&mut self) -> io::Result<()> {
        let after = match self.mode {
            Mode::Unregistered | Mode::Blocking => return Ok(()),
            Mode::Reading | Mode::ReadingAndWriting => Mode::Unregistered,
            Mode::BlockingAndReported => Mode::Blocking,
        };
        self.transport.deregister(self.loop_handle.registry())?;
        self.mode = after;
        Ok(())
    }

    /// Drops the connection. A poller reports a socket until its last handle is closed, so the
    /// events of a content that is still read elsewhere would reach the next connection with this
    /// token.
    pub(crate) fn close(mut self: Box<Self>) {
        if self.transport.is_shared() {
            // If this fails, it is not registered.
            let _ = self.unwatch();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("token", &self.token)
            .field("peer", &self.peer)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, unix, not(loom)))]
pub(crate) mod tests;
