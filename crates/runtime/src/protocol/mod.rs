//! What is spoken on a connection. A guest is a state machine: it is given bytes and gives bytes,
//! and says what it needs next. It never touches a socket, a poller or a thread.
//!
//! ```text
//!   accepted --> Preamble (PROXY header) --> Http --101--> Raw, or a thread with a blocking socket
//!                        |                    ^             |
//!                        +--------> Raw ------+             +--> Raw, Http, or a thread
//! ```
//!
//! A worker asks a guest for its next [`Step`] and does it, until the step is to wait:
//!
//! ```text
//!   guest     stage                        step              what the worker does
//!   all       all is said                  Linger, Close     ends our direction, or the connection
//!             another one follows          Leave             sends the output, then puts the successor in its place
//!   Preamble  header                       Read              reads the socket
//!             complete                     Named             notes whom the proxy speaks for
//!   Http      head                         Read              reads; a complete head is taken without a step
//!             receiving: collected         Read, then Call   has the handler called, which answers
//!             receiving: streamed          Stream            has the handler called, which reads the rest itself
//!             sending from a reader        Pump              reads a piece of the body, and sends it
//!             skipping                     Read              reads what nobody wants
//!   Raw       open                         Read, then Tell   has the protocol called, and sends what it says
//!             bytes from other threads     Flush             sends them
//!             its peer has ended           Wait              waits for other threads, or the deadline
//! ```
//!
//! A guest carries its own service and its key for the execution policy, so that any can follow any
//! other on any server. To add a protocol is to add a variant here, its steps if it needs new ones,
//! and the functions of the worker that do them.

pub(crate) mod http;
pub(crate) mod preamble;
pub(crate) mod proxy;
pub(crate) mod raw;

use std::net::SocketAddr;
use std::time::Instant;

use crate::budget::refusal::Refusal;
use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::execution::key::ExecutionKey;
use crate::execution::key::Route;
use crate::service::blocking_stream::BlockingStream;
use crate::service::request::Request;
use crate::service::tcp::{Closed, Protocol};
use http::{Http, Streaming};
use preamble::Preamble;
use proxy::ProxyError;
use raw::{Event, Raw};

/// What is spoken on a connection.
#[derive(Debug)]
pub(crate) enum Guest {
    /// A proxy says first whom it speaks for.
    Preamble(Box<Preamble>),
    Http(Http),
    Raw(Box<Raw>),
}

/// What a guest needs next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Another look: the stage has changed.
    Again,
    /// More bytes of the peer.
    Read,
    /// The output sent.
    Flush,
    /// Something else than bytes of the peer, or the deadline.
    Wait,
    /// The end of the peer's direction; ours ends now.
    Linger,
    /// The connection is done.
    Close,
    /// The output sent, then [`Guest::leave`].
    Leave,
    /// The peer is another one than the socket says, unless this is `None`; then [`Guest::leave`].
    Named(Option<SocketAddr>),
    /// The end of the connection, which does not begin as it has to.
    RefuseProxy(ProxyError),
    /// The handler of a request whose content is complete, then [`Http::respond`].
    Call(Request, Route),
    /// The handler of a request whose content is still to come.
    Stream(Box<Streaming>),
    /// The next piece of the response body, by [`Http::pump`].
    Pump,
    /// A call of the raw protocol, by [`Raw::call`].
    Tell(Event),
}

/// What a connection waits for, and so what is lost if it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The next request: nothing is lost.
    Idle,
    /// The rest of a head, or the first byte of a new connection: nothing that was accepted is
    /// lost.
    Head,
    /// Something else.
    Other,
}

/// What follows a guest on its connection.
pub(crate) enum Successor {
    Guest(Guest),
    /// A thread of the pool, which has the connection for itself.
    Thread(Box<dyn FnOnce(BlockingStream) + Send>, ExecutionKey),
}

impl Guest {
    #[inline]
    pub(crate) fn as_http(&self) -> Option<&Http> {
        if let Self::Http(http) = self { Some(http) } else { None }
    }

    #[inline]
    pub(crate) fn as_http_mut(&mut self) -> Option<&mut Http> {
        if let Self::Http(http) = self { Some(http) } else { None }
    }

    /// Goes on as far as the bytes at hand allow.
    #[inline(always)]
    pub(crate) fn step(&mut self, buffers: &mut Buffers) -> Step {
        match self {
            Self::Http(http) => http.step(buffers),
            Self::Raw(raw) => raw.step(buffers),
            Self::Preamble(preamble) => preamble.step(buffers),
        }
    }

    /// The peer sends nothing more.
    pub(crate) fn end_of_input(&mut self) {
        match self {
            Self::Preamble(preamble) => preamble.end(),
            Self::Http(http) => http.end_of_input(),
            Self::Raw(raw) => raw.end_of_input(),
        }
    }

    /// The deadline has passed. A peer that `is_stuck` does not read what it has been sent, and is
    /// not sent more.
    pub(crate) fn expire(&mut self, is_stuck: bool, buffers: &mut Buffers) {
        match self {
            Self::Preamble(preamble) => preamble.end(),
            Self::Http(http) => http.expire(is_stuck, buffers),
            Self::Raw(raw) => raw.expire(is_stuck),
        }
    }

    /// When the peer must have sent more, if the connection waits for it from now on. `None` keeps
    /// the deadline that runs.
    #[inline(always)]
    pub(crate) fn deadline(
        &mut self,
        clock: &Clock,
        has_input: bool,
        config: &ServerConfig,
    ) -> Option<Instant> {
        match self {
            Self::Http(http) => http.deadline(clock, has_input, config),
            Self::Raw(raw) => raw.deadline(clock, config),
            // It counts against the deadline of what follows.
            Self::Preamble(_) => None,
        }
    }

    /// The server drains, and the connection is about to wait. Returns whether it ends instead,
    /// because nothing was begun on it.
    #[cold]
    pub(crate) fn drain(&mut self, has_input: bool) -> bool {
        match self {
            Self::Preamble(preamble) => preamble.drain(has_input),
            Self::Http(http) => http.drain(has_input),
            Self::Raw(raw) => raw.drain(),
        }
    }

    /// What the connection waits for. For one that is parked.
    pub(crate) fn waits_for(&self, has_input: bool) -> Waiting {
        match self {
            Self::Preamble(_) => Waiting::Head,
            Self::Http(http) => http.waits_for(has_input),
            Self::Raw(_) => Waiting::Other,
        }
    }

    /// Our direction is closed; what still comes is thrown away until then.
    pub(crate) fn linger(&mut self, until: Instant) {
        match self {
            Self::Preamble(_) => {}
            Self::Http(http) => http.linger(until),
            Self::Raw(raw) => raw.linger(until),
        }
    }

    /// Takes what follows, after [`Step::Leave`] or [`Step::Named`].
    #[cold]
    pub(crate) fn leave(&mut self) -> Option<Successor> {
        match self {
            Self::Preamble(preamble) => preamble.leave(),
            Self::Http(http) => http.leave(),
            Self::Raw(raw) => raw.leave(),
        }
    }

    /// The connection is over at once. A raw protocol is told why.
    pub(crate) fn break_off(&mut self, reason: Closed) {
        if let Self::Raw(raw) = self {
            raw.break_off(reason);
        }
    }

    /// Why the peer was refused, if it was. Told once.
    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.as_http_mut()?.take_refusal()
    }

    /// A raw protocol that is to be told that its connection is over, and why. Told once.
    pub(crate) fn take_protocol(&mut self) -> Option<(Box<dyn Protocol>, Closed, Route)> {
        if let Self::Raw(raw) = self { raw.take_protocol() } else { None }
    }
}
