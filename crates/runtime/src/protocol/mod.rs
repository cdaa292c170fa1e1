//! The protocols of connections. The protocol state of a connection is called its guest. A guest is
//! a state machine: it takes input bytes, produces output bytes, and says what it needs next. It
//! never touches a socket, a poller or a thread.
//!
//! ```text
//!   accepted --> Preamble (PROXY header)
//!      |            |
//!      +------------+--> Handshake (TLS)
//!      |            |       |
//!      +------------+-------+--> Http --101--> Raw, or a thread with a blocking socket
//!                           |     ^             |
//!                           +--> Raw            +--> Raw, Http, or a thread
//! ```
//!
//! A worker asks a guest for its next [`Step`] and carries it out, until the connection has to
//! wait:
//!
//! ```text
//!   guest     stage                        step              what the worker does
//!   all       between two stages           Again             asks for the next step
//!             closing                      Linger, Close     ends the write direction, or all
//!             replaced by another guest    Leave             sends the output, then replaces it
//!   Preamble  header                       Read              reads the socket
//!             complete                     ClientKnown       records the client's address
//!             missing or malformed         RefuseProxy       closes the connection
//!   Handshake records                      Read, Handshake   computes, on the pool if it is costly
//!             complete                     Secure            gives the session to the socket
//!   Http      head                         Read              reads; complete heads need no step
//!             receiving: collected         Read, then Call   calls the handler
//!             receiving: streamed          Stream            calls the handler, which reads on
//!             receiving: spooled           Spool             writes a part to a file, on the pool
//!             receiving: no room           RefuseContent     asks the service for its response
//!             sending from a reader        Pump              reads and sends a piece of the body
//!             pushing                      Pushed            sends what other threads have pushed
//!                                          AwaitPush         waits for them, or for the end
//!                                          PushFailed        reports that they have failed
//!             skipping                     Read              reads and discards unread content
//!   Raw       open                         Read, then Notify calls the protocol, sends its output
//!             requests that it asks for    Ask               runs them, and goes on meanwhile
//!             their answers                Notify            passes them to the protocol
//!             bytes from other threads     Flush             sends them
//!             its peer has ended           Wait              waits for threads, or its deadline
//! ```
//!
//! A guest has its own service and its key for the execution policy, so that any guest can replace
//! any other on any server. To add a protocol, add a variant here, new steps if it needs any, and
//! the functions of the worker that carry them out.

#[cfg(feature = "tls")]
pub(crate) mod handshake;
pub(crate) mod http;
pub(crate) mod preamble;
pub(crate) mod proxy;
pub(crate) mod raw;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::budget::account::Account;
use crate::budget::refusal::Refusal;
use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::execution::key::{ExecutionKey, Route, RouteId};
use crate::service::Site;
use crate::service::blocking_stream::{OnThread, ReservedThread};
use crate::service::incomplete::Arrived;
use crate::service::request::Request;
use crate::service::tcp::{Ask, Closed, Protocol};
#[cfg(feature = "tls")]
use handshake::Handshake;
use http::{Http, PushFailed, Streaming};
use preamble::Preamble;
use proxy::ProxyError;
use raw::{Event, Raw};

/// The protocol state of a connection.
#[derive(Debug)]
pub(crate) enum Guest {
    /// Expects a PROXY header before the first protocol.
    Preamble(Box<Preamble>),
    /// Expects a TLS handshake before the first protocol.
    #[cfg(feature = "tls")]
    Handshake(Box<Handshake>),
    Http(Http),
    Raw(Box<Raw>),
}

/// What a guest needs next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Call `step` again: the stage has changed.
    Again,
    /// Read from the peer.
    Read,
    /// Send the output.
    Flush,
    /// Wait for another thread, or for the deadline.
    Wait,
    /// End the write direction, and wait until the peer ends its direction.
    Linger,
    /// Send the output, then close the connection.
    Close,
    /// Send the output, then call [`Guest::leave`].
    Leave,
    /// Replace the peer's address by this one, if any, then call [`Guest::leave`].
    ClientKnown(Option<SocketAddr>),
    /// Close the connection, because its PROXY header is missing or malformed.
    RefuseProxy(ProxyError),
    /// Call [`Handshake::advance`], on a pool thread if that is costly.
    #[cfg(feature = "tls")]
    Handshake,
    /// Send the output, then give the session to the socket and call [`Guest::leave`].
    #[cfg(feature = "tls")]
    Secure,
    /// Call the handler of a request whose content is complete, then [`Http::respond`].
    Call(Request, Route),
    /// Have a request of this guest answered, while its connection goes on.
    Ask(Box<Ask>),
    /// Answer a request for whose content there is no room, then call [`Http::refuse_for`].
    RefuseContent(Box<Request>, Refusal),
    /// Call [`Http::write_part`] on a thread of the pool.
    #[cfg(feature = "spool")]
    Spool,
    /// Call the handler of a request whose content is still arriving.
    Stream(Box<Streaming>),
    /// Send the next piece of the response body with [`Http::pump`].
    Pump,
    /// Send what other threads have pushed. If more of it waits, come back after other connections.
    Pushed { has_more: bool },
    /// Wait for other threads, for the deadline, or for the peer to close. Input stays unread.
    AwaitPush,
    /// Report that a pushed response body has failed.
    PushFailed(Box<PushFailed>),
    /// Pass an event to the raw protocol with [`Raw::call`].
    Notify(Event),
}

/// What a connection waits for. It determines what is lost if the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The next request. Nothing is lost.
    Idle,
    /// The rest of a head, or the first byte of a new connection. No accepted request is lost.
    Head,
    /// The peer's end of the connection. Everything is sent, and may still be on its way.
    Lingering,
    /// The rest of a content or a message. No accepted request is lost. If the peer sends more by
    /// `until`, it is fast enough for a time of scarce resources.
    Content { until: Instant },
    /// The peer or other threads, at any time. Nothing was exchanged after `since`.
    Stream { since: Instant },
    /// Something else.
    Other,
}

/// What replaces a guest on its connection.
pub(crate) enum Successor {
    Guest(Guest),
    /// A pool thread, which becomes the only user of the connection. Its seat counts for the key,
    /// and reports name it after the route.
    Thread(OnThread, ExecutionKey, RouteId),
    /// As [`Thread`](Self::Thread), and the thread is reserved.
    Reserved(ReservedThread),
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

    /// Continues a connection of another process. If `has_begun`, the deadline of its head runs
    /// already. Otherwise the connection is idle.
    #[cfg(unix)]
    pub(crate) fn resume(&mut self, has_begun: bool) {
        if let Self::Http(http) = self {
            http.resume(has_begun);
        }
    }

    /// Processes the buffered input as far as possible. Returns what the guest needs next.
    #[inline(always)]
    pub(crate) fn step(&mut self, buffers: &mut Buffers) -> Step {
        match self {
            Self::Http(http) => http.step(buffers),
            Self::Raw(raw) => raw.step(buffers),
            Self::Preamble(preamble) => preamble.step(buffers),
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.step(buffers),
        }
    }

    /// Called when the peer has closed its direction.
    pub(crate) fn end_of_input(&mut self) {
        match self {
            Self::Preamble(preamble) => preamble.end(),
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.end(),
            Self::Http(http) => http.end_of_input(),
            Self::Raw(raw) => raw.end_of_input(),
        }
    }

    /// Called when the deadline has passed. If `is_stuck`, the peer does not read its output, so
    /// nothing more is sent.
    pub(crate) fn expire(&mut self, is_stuck: bool, buffers: &Buffers) {
        match self {
            Self::Preamble(preamble) => preamble.end(),
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.expire(),
            Self::Http(http) => http.expire(is_stuck, buffers),
            Self::Raw(raw) => raw.expire(is_stuck),
        }
    }

    /// Returns the deadline for the peer to send more, if the connection waits for it from now on.
    /// `None` keeps the current deadline.
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
            // The header counts against the deadline of the next guest.
            Self::Preamble(_) => None,
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.deadline(),
        }
    }

    /// Called while the server drains, before the connection waits. Returns whether the connection
    /// ends instead, because it is idle.
    #[cold]
    pub(crate) fn drain(&mut self, has_input: bool) -> bool {
        match self {
            // The peer has only just connected, and would take the end for an error.
            Self::Preamble(_) => false,
            #[cfg(feature = "tls")]
            Self::Handshake(_) => false,
            Self::Http(http) => http.drain(has_input),
            Self::Raw(raw) => raw.drain(),
        }
    }

    /// Called when the deadline has passed and everything is sent. Returns whether the guest
    /// continues to wait, with a new deadline.
    #[cold]
    pub(crate) fn keep_alive(&mut self, buffers: &mut Buffers) -> bool {
        match self {
            Self::Http(http) => http.keep_alive(buffers),
            Self::Raw(raw) => raw.keep_alive(),
            _ => false,
        }
    }

    /// Called when the server begins to drain. Threads that send to the connection learn of it,
    /// even if the peer does not read.
    #[cold]
    pub(crate) fn tell_of_drain(&self) {
        if let Self::Http(http) = self {
            http.stop_pushing();
        }
    }

    /// Returns whether other threads may send to the connection.
    #[cold]
    pub(crate) fn is_sent_to(&self) -> bool {
        match self {
            Self::Http(http) => http.is_pushing(),
            Self::Raw(_) => true,
            Self::Preamble(_) => false,
            #[cfg(feature = "tls")]
            Self::Handshake(_) => false,
        }
    }

    /// Called when the peer does not take what it is sent. What other threads have queued for it is
    /// charged to the memory budget until it does.
    #[cold]
    pub(crate) fn stall(&self, account: &Arc<Account>) {
        match self {
            Self::Http(http) => http.stall(account),
            Self::Raw(raw) => raw.stall(account),
            Self::Preamble(_) => {}
            #[cfg(feature = "tls")]
            Self::Handshake(_) => {}
        }
    }

    /// Called when the peer does not take what it is sent. What the reader of a response keeps in
    /// memory is charged to the budget until the response is sent. Returns the number of these
    /// bytes.
    #[cold]
    pub(crate) fn charge_reader(&mut self, account: &Arc<Account>) -> usize {
        self.as_http_mut().map_or(0, |http| http.charge_reader(account))
    }

    /// Returns until when a parked connection may hold the beginning of a content or a message
    /// while memory is short.
    pub(crate) fn pressed_deadline(&self) -> Option<Instant> {
        match self {
            Self::Http(http) => http.pressed_deadline(),
            Self::Raw(raw) => raw.pressed_deadline(),
            Self::Preamble(_) => None,
            #[cfg(feature = "tls")]
            Self::Handshake(_) => None,
        }
    }

    /// Returns until when a parked connection may hold space on the disk while that is short.
    pub(crate) fn deadline_while_disk_short(&self) -> Option<Instant> {
        self.as_http()?.deadline_while_disk_short()
    }

    /// Returns whether a part of a content that is still arriving is in a file.
    #[cfg(feature = "spool")]
    pub(crate) fn has_file(&self) -> bool {
        self.as_http().is_some_and(Http::has_file)
    }

    /// Called before [`expire`](Self::expire), if memory is short and the peer was too slow.
    pub(crate) fn press(&mut self) {
        if let Self::Raw(raw) = self {
            raw.press();
        }
    }

    /// Returns what a parked connection waits for.
    pub(crate) fn waits_for(&self, has_input: bool) -> Waiting {
        match self {
            Self::Preamble(_) => Waiting::Head,
            #[cfg(feature = "tls")]
            Self::Handshake(_) => Waiting::Head,
            Self::Http(http) => http.waits_for(has_input),
            Self::Raw(raw) => raw.waits_for(),
        }
    }

    /// Returns whether requests of this guest are being answered.
    pub(crate) fn awaits_answers(&self) -> bool {
        matches!(self, Self::Raw(raw) if raw.awaits_answers())
    }

    /// Called when the connection is closed to make room for another one. A raw protocol is told
    /// the reason.
    pub(crate) fn shed(&mut self) {
        if let Self::Raw(raw) = self {
            raw.shed();
        }
    }

    /// Called when the write direction is shut down. Input is discarded until `until`.
    pub(crate) fn linger(&mut self, until: Instant) {
        match self {
            Self::Preamble(_) => {}
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.linger(until),
            Self::Http(http) => http.linger(until),
            Self::Raw(raw) => raw.linger(until),
        }
    }

    /// Takes the successor, after [`Step::Leave`] or [`Step::ClientKnown`].
    #[cold]
    pub(crate) fn leave(&mut self) -> Option<Successor> {
        match self {
            Self::Preamble(preamble) => preamble.leave(),
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.leave(),
            Self::Http(http) => http.leave(),
            Self::Raw(raw) => raw.leave(),
        }
    }

    /// Returns whether it can continue without input.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.is_complete(),
            #[cfg(feature = "spool")]
            Self::Http(http) => http.has_written_part(),
            _ => false,
        }
    }

    /// Called when the connection ends at once. A raw protocol is told the reason.
    pub(crate) fn break_off(&mut self, reason: Closed) {
        if let Self::Raw(raw) = self {
            raw.break_off(reason);
        }
    }

    /// Takes what had arrived of a request that was refused before it was complete, and the service
    /// that is told of it. `None` if the program pulls its requests.
    pub(crate) fn take_incomplete(&mut self) -> Option<(Box<Arrived>, Arc<Site>)> {
        match self {
            Self::Http(http) => Some((http.take_arrived()?, http.shared_site()?)),
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.take_incomplete(),
            Self::Raw(_) | Self::Preamble(_) => None,
        }
    }

    /// Writes the response to a request that was refused before it was complete, if its refusal has
    /// one, with a header of the service.
    #[cold]
    pub(crate) fn write_refusal(
        &mut self,
        refusal: Refusal,
        header: Option<(&str, &str)>,
        buffers: &mut Buffers,
    ) {
        match self {
            Self::Http(http) => http.write_refusal(refusal, header, buffers),
            #[cfg(feature = "tls")]
            Self::Handshake(_) => Handshake::write_refusal(refusal, header, buffers),
            Self::Raw(_) | Self::Preamble(_) => {}
        }
    }

    /// Takes the cause of a refusal for the log, if more than the reason is known.
    pub(crate) fn take_error(&mut self) -> Option<String> {
        match self {
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.take_error(),
            Self::Http(_) | Self::Raw(_) | Self::Preamble(_) => None,
        }
    }

    /// Takes the reason why the peer was refused, if it was.
    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        match self {
            Self::Http(http) => http.take_refusal(),
            #[cfg(feature = "tls")]
            Self::Handshake(handshake) => handshake.take_refusal(),
            Self::Raw(raw) => raw.take_refusal(),
            Self::Preamble(_) => None,
        }
    }

    /// Takes the raw protocol that must still be told that its connection has ended, and the
    /// reason.
    pub(crate) fn take_protocol(&mut self) -> Option<(Box<dyn Protocol>, Closed, Route)> {
        if let Self::Raw(raw) = self { raw.take_protocol() } else { None }
    }
}
