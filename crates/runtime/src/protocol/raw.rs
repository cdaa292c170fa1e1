//! A raw protocol on one connection: what its protocol is told next, and what it asked for.
//!
//! Like [`Http`](super::http::Http), [`Raw`] never reads or writes a socket, and never calls the
//! protocol by itself. It says what comes next, a [`Step`], and the thread that holds the
//! connection does it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::http::Http;
use super::{Guest, Step, Successor};
use crate::buffers::Buffers;
use crate::clock::{Clock, Pace};
use crate::config::ServerConfig;
use crate::execution::key::{ExecutionKey, Route};
use crate::service::Site;
use crate::service::tcp::{Asked, Borrowed, Closed, End, Io, Look, Mailbox, Protocol, TcpService};
use crate::transport::Peer;

/// A raw protocol on one connection, between two moments of work.
pub(crate) struct Raw {
    actor: Actor,
    /// For the execution policy.
    route: Route,
    stage: Stage,
    /// Unread bytes that the protocol has seen and has no use for yet.
    seen: usize,
    /// How long what the peer has begun may take.
    pace: Option<Pace>,
    /// When the protocol wants to be called, whatever comes.
    timeout: Option<Instant>,
    has_expired: bool,
    notify_drained: bool,
    /// Whether the peer sends nothing more, and whether the protocol knows.
    input: Side,
    /// Where other threads leave what is to be sent.
    mailbox: Option<Arc<Mailbox>>,
}

/// The code of the program that is told of the connection.
enum Actor {
    /// Made by this service with the first event.
    Expected(Arc<dyn TcpService>),
    Present(Box<dyn Protocol>),
    /// It was told of the end.
    Gone,
}

/// How far the connection is.
enum Stage {
    /// The protocol has not been told of anything.
    New,
    Open,
    /// All is said that will be said.
    Closing(Closed),
    /// Only the end of what the peer sends is waited for, so that the last bytes reach it.
    Lingering(Closed, Instant),
    /// Another guest follows, or a thread, once everything is sent.
    Leaving(Successor),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Open,
    Ended,
    Told,
}

/// What the protocol is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Open,
    Data,
    End,
    Drained,
    Deadline,
}

impl Raw {
    /// A connection of a raw service. All of its calls are one route: they block, or they do not.
    pub(crate) fn new(service: Arc<dyn TcpService>) -> Self {
        // Services over HTTP number their routes from zero.
        let key = ExecutionKey::numbered(u32::MAX);
        Self::of(Actor::Expected(service), Route::learned(key))
    }

    /// A connection that a request of this route has upgraded. What its messages cost is learned
    /// apart from what the requests do.
    pub(crate) fn upgraded(protocol: Box<dyn Protocol>, route: Route) -> Self {
        let key = route.key.of_upgrade();
        Self::of(Actor::Present(protocol), Route::learned(key))
    }

    fn of(actor: Actor, route: Route) -> Self {
        Self {
            actor,
            route,
            stage: Stage::New,
            seen: 0,
            pace: None,
            timeout: None,
            has_expired: false,
            notify_drained: false,
            input: Side::Open,
            mailbox: None,
        }
    }

    pub(crate) fn route(&self) -> Route {
        self.route
    }

    /// Goes on as far as the bytes at hand allow. What other threads have left is put into the
    /// output.
    #[inline(always)]
    pub(crate) fn step(&mut self, buffers: &mut Buffers) -> Step {
        if !matches!(self.stage, Stage::Open) {
            return self.step_cold(buffers);
        }
        if let Some(mailbox) = &self.mailbox {
            if mailbox.take(&mut buffers.output) {
                self.stage = Stage::Closing(Closed::ByProtocol);
                return Step::Again;
            }
            if !buffers.output.is_empty() {
                return Step::Flush;
            }
        }
        if self.has_expired {
            return Step::Tell(Event::Deadline);
        }
        if self.notify_drained {
            return Step::Tell(Event::Drained);
        }
        if buffers.input.len() > self.seen {
            return Step::Tell(Event::Data);
        }
        match self.input {
            Side::Open => Step::Read,
            Side::Ended => Step::Tell(Event::End),
            Side::Told => Step::Wait,
        }
    }

    #[inline(never)]
    fn step_cold(&mut self, buffers: &mut Buffers) -> Step {
        match &self.stage {
            Stage::New => Step::Tell(Event::Open),
            Stage::Open => Step::Again,
            // Closing a socket with unread bytes in it, or before they come, resets the connection,
            // and what was sent may be lost.
            Stage::Closing(_) if self.input == Side::Open && !self.has_expired => Step::Linger,
            Stage::Closing(_) => Step::Close,
            Stage::Lingering(..) => {
                buffers.input.clear();
                if self.has_expired || self.input != Side::Open { Step::Close } else { Step::Read }
            }
            Stage::Leaving(_) => self.step_over(buffers),
        }
    }

    /// The way into other hands, once everything is sent that other threads have left.
    fn step_over(&mut self, buffers: &mut Buffers) -> Step {
        if let Some(mailbox) = self.mailbox.take() {
            if mailbox.take_last(&mut buffers.output) {
                self.stage = Stage::Closing(Closed::ByProtocol);
            }
            return Step::Flush;
        }
        Step::Leave
    }

    pub(crate) fn leave(&mut self) -> Option<Successor> {
        match std::mem::replace(&mut self.stage, Stage::Closing(Closed::Detached)) {
            Stage::Leaving(successor) => Some(successor),
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Tells the protocol of an event. Code of the program runs here.
    #[inline(always)]
    pub(crate) fn call(
        &mut self,
        event: Event,
        of: (&Peer, &dyn Fn() -> Weak<dyn Look>, usize),
        asked: &mut Asked,
        buffers: &mut Buffers,
    ) -> usize {
        let (peer, home, token) = of;
        if let Actor::Expected(service) = &self.actor {
            self.actor = Actor::Present(service.accept(*peer));
        }
        let Actor::Present(protocol) = &mut self.actor else { return 0 };
        let given = buffers.input.unread();
        let mut io = Io {
            peer,
            now: buffers.clock.now(),
            output: &mut buffers.output,
            given: given.as_ptr_range(),
            asked,
            mailbox: &mut self.mailbox,
            home,
            token,
        };
        let mut used = 0;
        match event {
            Event::Open => protocol.open(&mut io),
            Event::Data => used = protocol.data(given, &mut io).min(given.len()),
            Event::End => {
                protocol.end(given, &mut io);
                used = given.len();
            }
            Event::Drained => protocol.drained(&mut io),
            Event::Deadline => protocol.deadline(&mut io),
        }
        if matches!(asked.end, Some(End::Succeed(_))) {
            // What it was given at its end is the successor's.
            used = if event == Event::End { 0 } else { used };
            self.succeed(asked);
        }
        used
    }

    /// Puts another protocol into the place of this one. Code of the program runs here.
    #[cold]
    fn succeed(&mut self, asked: &mut Asked) {
        let Some(End::Succeed(successor)) = asked.end.take() else { return };
        *asked = Asked {
            sent_back: asked.sent_back,
            has_rare: true,
            is_succeeded: true,
            ..Asked::default()
        };
        let predecessor = std::mem::replace(&mut self.actor, Actor::Present(successor));
        if let Actor::Present(mut predecessor) = predecessor {
            predecessor.close(Closed::Succeeded);
        }
    }

    /// Takes in what came of a call in which the protocol used up `used` bytes. Returns how many of
    /// them go back from where they lie.
    #[inline(always)]
    pub(crate) fn called(
        &mut self,
        event: Event,
        used: usize,
        asked: &mut Asked,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Borrowed {
        let has_used_all = used == buffers.input.len();
        if event == Event::Data && has_used_all && !asked.has_rare {
            self.pace = None;
            self.seen = 0;
            return asked.sent_back;
        }
        self.called_cold(event, used, std::mem::take(asked), buffers, config)
    }

    #[inline(never)]
    fn called_cold(
        &mut self,
        event: Event,
        used: usize,
        asked: Asked,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Borrowed {
        let Asked {
            sent_back: Borrowed(mut sent_back),
            end,
            timeout,
            notify_drained,
            is_succeeded,
            ..
        } = asked;
        match event {
            Event::Open => self.stage = Stage::Open,
            Event::End => self.input = Side::Told,
            Event::Drained => self.notify_drained = false,
            Event::Deadline => {
                self.has_expired = false;
                self.timeout = None;
                self.pace = None;
            }
            Event::Data => {}
        }
        self.notify_drained |= notify_drained;
        if timeout.is_some() {
            self.timeout = timeout;
        }
        if sent_back > used {
            // It was sent, and is to be seen again: it cannot go from where it lies.
            let copy = buffers.input.unread()[..sent_back].to_vec();
            buffers.output.splice(0..0, copy);
            sent_back = 0;
        }
        let unread = buffers.input.len() - used;
        if used > 0 {
            self.pace = None;
        }
        match end {
            Some(end) => self.end_as(end, event),
            None if is_succeeded => {
                self.begin_anew();
                return Borrowed(sent_back);
            }
            None if unread == 0 => {}
            None => self.wait_for_more(unread, buffers.clock.now(), config),
        }
        // What it is told of the connection itself shows it no bytes.
        if matches!(event, Event::Data | Event::End) {
            self.seen = unread;
        }
        Borrowed(sent_back)
    }

    /// The protocol wants to end.
    fn end_as(&mut self, end: End, event: Event) {
        match end {
            End::Close => self.close(match self.input {
                Side::Open if event == Event::Deadline => Closed::TimedOut,
                Side::Open => Closed::ByProtocol,
                Side::Ended | Side::Told => Closed::ByPeer,
            }),
            End::TooLong => self.close(Closed::TooLong),
            End::Detach(handler) => {
                self.stage = Stage::Leaving(Successor::Thread(handler, self.route.key))
            }
            End::Http(site) => self.stage = Stage::Leaving(as_http(site)),
            // It was taken by the call.
            End::Succeed(_) => {}
        }
    }

    /// The protocol has left bytes unused: more must come, in time and within its bound.
    fn wait_for_more(&mut self, unread: usize, now: Instant, config: &ServerConfig) {
        let unread_max = match &self.actor {
            Actor::Present(protocol) => protocol.unread_bytes_max(),
            Actor::Expected(_) | Actor::Gone => 0,
        };
        if unread > unread_max {
            self.close(Closed::TooLong);
        } else if self.pace.is_none() {
            self.pace = Some(Pace::new(now, config.content_timeout, config.bytes_per_second_min));
        }
    }

    /// The protocol is another one, which knows of nothing yet.
    #[cold]
    fn begin_anew(&mut self) {
        self.stage = Stage::New;
        self.seen = 0;
        self.pace = None;
        self.timeout = None;
        self.has_expired = false;
        self.notify_drained = false;
        if self.input == Side::Told {
            self.input = Side::Ended;
        }
    }

    fn close(&mut self, reason: Closed) {
        if matches!(self.stage, Stage::New | Stage::Open) {
            self.stage = Stage::Closing(reason);
        }
    }

    /// The connection is over at once, and this is why.
    pub(crate) fn break_off(&mut self, reason: Closed) {
        self.stage = Stage::Closing(reason);
        self.input = Side::Told;
    }

    /// Our direction is closed too; what still comes is thrown away.
    pub(crate) fn linger(&mut self, until: Instant) {
        if let Stage::Closing(reason) = self.stage {
            self.stage = Stage::Lingering(reason, until);
        }
    }

    /// So many bytes have come.
    pub(crate) fn has_read(&mut self, bytes: usize, now: Instant) {
        if let Some(pace) = &mut self.pace {
            pace.advance(bytes, now);
        }
    }

    /// The peer sends nothing more.
    pub(crate) fn end_of_input(&mut self) {
        if self.input == Side::Open {
            self.input = Side::Ended;
        }
    }

    /// The deadline has passed. A peer that `is_stuck` does not read what it has been sent, and is
    /// not sent more.
    pub(crate) fn expire(&mut self, is_stuck: bool) {
        if is_stuck {
            self.break_off(Closed::TimedOut);
        } else {
            self.has_expired = true;
        }
    }

    /// Ends the connection if nothing that was begun would be lost. Returns whether that is so.
    pub(crate) fn drain(&mut self) -> bool {
        let is_idle = self.seen == 0
            && self.input == Side::Open
            && matches!(self.stage, Stage::New | Stage::Open);
        if is_idle {
            self.close(Closed::Shutdown);
        }
        is_idle
    }

    /// When the peer must have sent more, if the connection waits for it from now on. `None` keeps
    /// the deadline that runs.
    #[inline(always)]
    pub(crate) fn deadline(&self, clock: &Clock, config: &ServerConfig) -> Option<Instant> {
        match self.stage {
            Stage::Lingering(_, until) => Some(until),
            _ => match (self.timeout, &self.pace) {
                (Some(timeout), _) => Some(timeout),
                (None, Some(pace)) => Some(pace.deadline()),
                (None, None) => Some(clock.after(config.keep_alive_timeout)),
            },
        }
    }

    /// Takes the protocol out, to be told why it is over. It is told nothing more.
    pub(crate) fn take_protocol(&mut self) -> Option<(Box<dyn Protocol>, Closed, Route)> {
        if let Some(mailbox) = self.mailbox.take() {
            mailbox.end();
        }
        let reason = match self.stage {
            Stage::Closing(reason) | Stage::Lingering(reason, _) => reason,
            _ => Closed::Shutdown,
        };
        match std::mem::replace(&mut self.actor, Actor::Gone) {
            Actor::Present(protocol) => Some((protocol, reason, self.route)),
            Actor::Expected(_) | Actor::Gone => None,
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // What is left when a server ends by its deadline.
        if let Some((mut protocol, reason, _)) = self.take_protocol() {
            protocol.close(reason);
        }
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw")
            .field("seen", &self.seen)
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

/// HTTP, answered by this service, as on a connection that has just been accepted.
fn as_http(site: Arc<Site>) -> Successor {
    Successor::Guest(Guest::Http(Http::new(Some(site))))
}
