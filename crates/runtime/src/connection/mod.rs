//! The connection manager: what a connection is between two moments of work, and where it waits.

pub(crate) mod deadlines;
pub(crate) mod table;
pub(crate) mod transport;
pub(crate) mod unsent;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use mio::{Interest, Token};

use crate::buffers::Content;
use crate::clients::Place;
use crate::engine::Answerer;
use crate::event_loop::LoopHandle;
use crate::execution::lease::Lease;
use crate::listener::Accepted;
use crate::protocol::http::Http;
use crate::protocol::tcp::Tcp;
use crate::service::Site;
use transport::{Peer, Transport};
use unsent::Unsent;

/// One connection. It moves by value: a table, a leader's hand, a pool thread or a user's request
/// owns it, and never two of them.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    /// Who the socket says is at its other end, or a PROXY header.
    pub(crate) peer: Peer,
    /// Its place among the connections of its client, where that is bounded.
    pub(crate) place: Option<Arc<Place>>,
    pub(crate) http: Http,
    /// What it speaks instead, if the server is one of a raw TCP service.
    pub(crate) tcp: Option<Box<Tcp>>,
    /// Who answers its requests, if it has become HTTP since.
    pub(crate) site: Option<Arc<Site>>,
    /// Bytes that were read and not used, kept while nobody works on the connection.
    pub(crate) leftover: Content,
    /// Bytes that the socket did not take yet.
    pub(crate) unsent: Option<Box<Unsent>>,
    home: Arc<LoopHandle>,
    token: usize,
    mode: Mode,
    /// When its loop looks at it again if its peer stays silent.
    pub(crate) deadline: Instant,
    /// The entry that stands for it in its loop's deadlines; any other entry is stale.
    pub(crate) listed_at: Option<Instant>,
    /// Whether the socket may have bytes that nobody has read: the poller tells only once, so who
    /// turns away from a connection must not forget.
    pub(crate) can_read: bool,
    /// Whether the peer has ended its direction, which is read behind its last byte.
    pub(crate) has_end: bool,
    /// Whether a thread keeps it, and what that has brought.
    pub(crate) lease: Lease,
    /// How often it has let others have their turn.
    pub(crate) yields: u32,
}

/// Who tells that the peer has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nobody yet: the connection is new, or was on a lease.
    Unregistered,
    /// The loop's poller, for reading.
    Reading,
    /// The loop's poller, for reading and writing.
    ReadingAndWriting,
    /// The thread that holds it: reads and writes wait.
    Blocking,
}

impl Connection {
    pub(crate) fn new(accepted: Accepted, home: Arc<LoopHandle>, token: usize, deadline: Instant) -> Self {
        let Accepted { transport, peer, expects_proxy_header, place } = accepted;
        let is_raw = matches!(home.engine.answerer, Answerer::Tcp(_));
        Self {
            transport,
            peer,
            place,
            tcp: is_raw.then(|| Box::new(Tcp::new(expects_proxy_header))),
            site: None,
            http: if expects_proxy_header { Http::behind_proxy() } else { Http::new() },
            leftover: Content::default(),
            unsent: None,
            home,
            token,
            mode: Mode::Unregistered,
            deadline,
            listed_at: None,
            can_read: true,
            has_end: false,
            lease: Lease::default(),
            yields: 0,
        }
    }

    #[inline]
    pub(crate) fn token(&self) -> usize {
        self.token
    }

    #[inline]
    pub(crate) fn home(&self) -> &Arc<LoopHandle> {
        &self.home
    }

    /// Asks the home loop's poller for what the connection waits for. Costs a system call only
    /// when that has changed.
    #[inline]
    pub(crate) fn watch(&mut self, for_writing: bool) -> io::Result<()> {
        // More than is wanted does no harm: an edge that nobody asked for is one wake-up.
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
        let registry = self.home.registry();
        if self.mode == Mode::Unregistered {
            self.transport.register(registry, Token(self.token), interest)?;
        } else {
            self.transport.reregister(registry, Token(self.token), interest)?;
        }
        self.mode = wanted;
        Ok(())
    }

    /// Takes the connection out of its poller: from now on the thread that holds it waits itself,
    /// `timeout` at most for each read and write.
    pub(crate) fn hold(&mut self, timeout: std::time::Duration) -> io::Result<()> {
        self.unwatch()?;
        self.transport.set_blocking(timeout)?;
        self.mode = Mode::Blocking;
        Ok(())
    }

    /// Ends [`hold`](Self::hold); nobody watches the connection until [`watch`](Self::watch) is called.
    pub(crate) fn release_hold(&mut self) -> io::Result<()> {
        if self.mode == Mode::Blocking {
            self.transport.set_nonblocking()?;
            self.mode = Mode::Unregistered;
        }
        Ok(())
    }

    /// One of its requests blocked its thread, or ran on one and did not.
    pub(crate) fn note_for_lease(&mut self, has_blocked: bool) {
        let was_blocking = self.lease.is_blocking();
        self.lease.note(has_blocked);
        match (was_blocking, self.lease.is_blocking()) {
            (false, true) => self.home.engine.crowd.join(),
            (true, false) => self.home.engine.crowd.leave(),
            _ => {}
        }
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.mode == Mode::Blocking
    }

    /// Takes the connection out of its poller.
    pub(crate) fn unwatch(&mut self) -> io::Result<()> {
        if matches!(self.mode, Mode::Reading | Mode::ReadingAndWriting) {
            self.transport.deregister(self.home.registry())?;
            self.mode = Mode::Unregistered;
        }
        Ok(())
    }
}

impl Drop for Connection {
    /// However it ends: half of a content must not be taken for the whole. Nothing but a reset says so where there is
    /// neither a length nor a last chunk (RFC 9112, 6.3 and 8).
    fn drop(&mut self) {
        if self.lease.is_blocking() {
            self.home.engine.crowd.leave();
        }
        if self.http.is_cut_short() {
            self.transport.reset_on_close();
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
