//! The connection manager: what a connection is between two moments of work, and where it waits.
//!
//! A connection is a transport and a guest. The transport moves bytes and knows nothing of what
//! they mean; the guest gives them meaning and knows no socket. What else is here says where the
//! connection waits, and for how long.

pub(crate) mod deadlines;
pub(crate) mod table;
pub(crate) mod unsent;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use mio::{Interest, Token};

use crate::budget::clients::Place;
use crate::budget::memory::Charge;
use crate::buffers::Content;
use crate::engine::event_loop::LoopHandle;
use crate::engine::listener::Accepted;
use crate::execution::crowd::Member;
use crate::execution::lease::Lease;
use crate::protocol::Guest;
use crate::transport::{Peer, Transport};
use unsent::Unsent;

/// One connection. It moves by value: a table, a leader's hand, a pool thread or a user's request
/// owns it, and never two of them.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    /// Who the socket says is at its other end, or a PROXY header.
    pub(crate) peer: Peer,
    /// Its place among the connections of its client, where that is bounded.
    pub(crate) place: Option<Arc<Place>>,
    pub(crate) guest: Guest,
    /// Bytes that were read and not used, kept while nobody works on the connection.
    pub(crate) leftover: Content,
    /// What those take of the budget.
    pub(crate) leftover_charge: Charge,
    /// Bytes that the socket did not take yet.
    pub(crate) unsent: Option<Box<Unsent>>,
    pub(crate) home: Arc<LoopHandle>,
    pub(crate) token: usize,
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
    /// While its requests block.
    crowd: Option<Member>,
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
    pub(crate) fn new(
        accepted: Accepted,
        home: Arc<LoopHandle>,
        token: usize,
        deadline: Instant,
    ) -> Self {
        let Accepted { transport, peer, expects_proxy_header, place } = accepted;
        Self {
            transport,
            peer,
            place,
            guest: home.engine.first_guest(expects_proxy_header),
            leftover: Content::default(),
            leftover_charge: Charge::default(),
            unsent: None,
            home,
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

    /// Ends [`hold`](Self::hold); nobody watches the connection until [`watch`](Self::watch) is
    /// called.
    pub(crate) fn release_hold(&mut self) -> io::Result<()> {
        if self.mode == Mode::Blocking {
            self.transport.set_nonblocking()?;
            self.mode = Mode::Unregistered;
        }
        Ok(())
    }

    /// One of its requests blocked its thread, or ran on one and did not.
    pub(crate) fn note_for_lease(&mut self, has_blocked: bool) {
        self.lease.note(has_blocked);
        if self.lease.is_blocking() != self.crowd.is_some() {
            self.crowd = self.lease.is_blocking().then(|| self.home.engine.crowd.join());
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

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("token", &self.token)
            .field("peer", &self.peer)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
