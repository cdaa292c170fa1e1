//! A raw protocol on one connection: its next event, and the effects of its calls.
//!
//! Like [`Http`](super::http::Http), [`Raw`] never reads or writes a socket, and never calls the
//! protocol on its own. It returns what it needs next as a [`Step`], and the thread that serves the
//! connection carries it out.

mod ending;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiting;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::{Step, Successor};
use crate::budget::account::Account;
use crate::budget::refusal::Refusal;
use crate::buffers::Buffers;
use crate::clock::Pace;
use crate::config::ServerConfig;
use crate::execution::key::{ExecutionKey, Route};
use crate::service::mailbox::{Mailbox, WakeConnection};
use crate::service::tcp::{
    Asked, Borrowed, Calls, Closed, End, Held, Io, Protocol, Reading, TcpService,
};
use crate::transport::Peer;

/// The state of a raw protocol on one connection.
pub(crate) struct Raw {
    actor: Actor,
    /// The route that the calls count as for the execution policy.
    route: Route,
    stage: Stage,
    /// The number of unread bytes that the protocol has seen and not used.
    seen: usize,
    /// The pace that the peer must keep to complete a message it has begun. Boxed, as other things
    /// that idle connections do not have: of those there are many.
    pace: Option<Box<Pace>>,
    /// The deadline that the protocol has set.
    timeout: Option<Instant>,
    /// When it began to wait, after it was served last.
    waits_since: Option<Instant>,
    /// The event that is due because the deadline of the connection has passed.
    expired: Option<Event>,
    /// Whether the connection expires because memory is short.
    is_pressed: bool,
    /// Why the peer was refused something, until it is counted.
    refused: Option<Refusal>,
    /// What the protocol itself holds of an incomplete message.
    held: Option<Box<Held>>,
    notify_drained: bool,
    reading: Reading,
    /// Whether another thread wants the protocol to be called.
    is_notified: bool,
    /// Whether the protocol was told that the server shuts down.
    shutdown: Shutdown,
    /// Whether the peer has closed its direction, and whether the protocol was told.
    input: Side,
    /// The bytes that other threads want to send.
    mailbox: Option<Arc<Mailbox>>,
    /// The requests of the protocol that an HTTP service answers.
    calls: Option<Box<Calls>>,
}

/// The program's code that handles the connection.
enum Actor {
    /// The protocol is not created yet. This service creates it before the first event.
    Expected(Arc<dyn TcpService>),
    Present(Box<dyn Protocol>),
    /// The protocol was told that the connection has ended.
    Gone,
}

/// The stage of the connection.
enum Stage {
    /// The protocol has not had any event.
    New,
    Open,
    /// The output is complete, and the connection ends.
    Closing(Closed),
    /// Discards input until the peer closes, so that the last output is not lost to a reset.
    Lingering(Closed, Instant),
    /// Replaced by another guest or a thread once everything is sent.
    Leaving(Box<Successor>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Open,
    Ended,
    Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    NotBegun,
    Due,
    Told,
}

/// What a call of the protocol may use of its connection and of the server.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) home: &'a dyn Fn() -> Weak<dyn WakeConnection>,
    pub(crate) token: usize,
    /// How many connections share the event loop at the moment.
    pub(crate) crowd: u32,
    pub(crate) account: &'a Arc<Account>,
    pub(crate) config: &'a ServerConfig,
}

/// An event for the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Open,
    Data,
    End,
    Drained,
    Deadline,
    MemoryPressure,
    Notified,
    /// A call of the protocol is answered.
    Answered,
    Shutdown,
}

impl Raw {
    /// A connection of a raw service. All calls count as one route for the execution policy.
    pub(crate) fn new(service: Arc<dyn TcpService>) -> Self {
        Self::of(Actor::Expected(service), Route::learned(ExecutionKey::of_raw()))
    }

    /// A connection that a request of this route has upgraded. The cost of its messages is measured
    /// separately from the route's requests.
    pub(crate) fn upgraded(protocol: Box<dyn Protocol>, route: Route) -> Self {
        let key = route.key.of_upgrade();
        // The number is kept for the name of the route.
        let route = Route { number: route.number, ..Route::learned(key) };
        Self::of(Actor::Present(protocol), route)
    }

    fn of(actor: Actor, route: Route) -> Self {
        Self {
            actor,
            route,
            stage: Stage::New,
            seen: 0,
            pace: None,
            timeout: None,
            waits_since: None,
            expired: None,
            is_pressed: false,
            refused: None,
            held: None,
            notify_drained: false,
            reading: Reading::Resumed,
            is_notified: false,
            shutdown: Shutdown::NotBegun,
            input: Side::Open,
            mailbox: None,
            calls: None,
        }
    }

    pub(crate) fn route(&self) -> Route {
        self.route
    }

    /// Returns what is needed next. Moves the bytes of other threads to the output.
    #[inline(always)]
    pub(crate) fn step(&mut self, buffers: &mut Buffers) -> Step {
        if !matches!(self.stage, Stage::Open) {
            return self.step_cold(buffers);
        }
        if let Some(mailbox) = &self.mailbox {
            let must_close = mailbox.queue.take(&mut buffers.output);
            self.is_notified |= mailbox.take_call();
            if must_close {
                self.stage = Stage::Closing(Closed::ByProtocol);
                return Step::Again;
            }
            if !buffers.output.is_empty() {
                return Step::Flush;
            }
        }
        if let Some(step) = self.calls.as_mut().and_then(|calls| step_calls(calls)) {
            return step;
        }
        if self.is_notified {
            return Step::Notify(Event::Notified);
        }
        if let Some(event) = self.expired {
            return Step::Notify(event);
        }
        if self.notify_drained {
            return Step::Notify(Event::Drained);
        }
        if self.reading == Reading::Paused {
            return self.step_paused();
        }
        if buffers.input.len() > self.seen {
            return Step::Notify(Event::Data);
        }
        match self.input {
            Side::Open if self.shutdown == Shutdown::Due && !self.awaits_answers() => {
                Step::Notify(Event::Shutdown)
            }
            Side::Open => Step::Read,
            Side::Ended => Step::Notify(Event::End),
            Side::Told => Step::Wait,
        }
    }

    /// Returns the next step while reading is paused. The protocol is still told of a shutdown.
    #[cold]
    fn step_paused(&self) -> Step {
        let must_tell = self.shutdown == Shutdown::Due && !self.awaits_answers();
        if must_tell { Step::Notify(Event::Shutdown) } else { Step::Wait }
    }

    /// Returns whether the protocol handles this event without blocking.
    pub(crate) fn is_quick(&self, event: Event) -> bool {
        event == Event::Notified
            && matches!(&self.actor, Actor::Present(protocol) if !protocol.notified_may_block())
    }

    /// Passes an event to the protocol. This runs the program's code. Returns how many input bytes
    /// the protocol has used.
    #[inline(always)]
    pub(crate) fn call(
        &mut self,
        event: Event,
        of: Surroundings<'_>,
        asked: &mut Asked,
        buffers: &mut Buffers,
    ) -> usize {
        let Surroundings { peer, home, token, crowd, account, config } = of;
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
            calls: &mut self.calls,
            home,
            token,
            crowd,
            held: &mut self.held,
            account,
            config,
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
            Event::MemoryPressure => protocol.memory_pressure(&mut io),
            Event::Notified => protocol.notified(&mut io),
            Event::Answered => {
                if let Some((number, response)) = io.next_answer() {
                    protocol.answered(number, response, &mut io);
                }
            }
            Event::Shutdown => protocol.shutdown(&mut io),
        }
        if matches!(asked.end, Some(End::Succeed(_))) {
            // The input that the protocol got with the end belongs to the successor.
            used = if event == Event::End { 0 } else { used };
            self.replace_protocol(asked);
        }
        used
    }

    /// Replaces the protocol by its successor. This runs the program's code.
    #[cold]
    fn replace_protocol(&mut self, asked: &mut Asked) {
        let Some(End::Succeed(successor)) = asked.end.take() else { return };
        *asked = Asked {
            sent_back: asked.sent_back,
            has_rare: true,
            end: Some(End::Succeeded),
            ..Asked::default()
        };
        let predecessor = std::mem::replace(&mut self.actor, Actor::Present(successor));
        if let Actor::Present(mut predecessor) = predecessor {
            predecessor.close(Closed::Succeeded);
        }
    }

    /// Applies the effects of a call in which the protocol used `used` bytes. Returns how many of
    /// these bytes are sent back to the peer directly from the input.
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
        let Asked { sent_back: Borrowed(mut sent_back), end, timeout, .. } = asked;
        self.refused = self.refused.or(asked.refused);
        match event {
            Event::Open => self.stage = Stage::Open,
            Event::End => self.input = Side::Told,
            Event::Drained => self.notify_drained = false,
            Event::Deadline => {
                self.expired = None;
                self.timeout = None;
                self.pace = None;
            }
            Event::MemoryPressure => {
                self.expired = None;
                self.pace = None;
            }
            Event::Notified => self.is_notified = false,
            Event::Shutdown => self.shutdown = Shutdown::Told,
            Event::Data | Event::Answered => {}
        }
        self.notify_drained |= asked.notify_drained;
        self.reading = asked.reading.unwrap_or(self.reading);
        let is_resumed = asked.reading == Some(Reading::Resumed);
        if event == Event::Data && is_resumed && used < buffers.input.len() {
            self.reading = Reading::Stopped;
        }
        if self.reading == Reading::Paused {
            // Resuming shows the protocol all input again, and the peer may be silent until then.
            self.seen = 0;
            self.pace = None;
        }
        if timeout.is_some() {
            self.timeout = timeout;
        }
        if sent_back > used {
            // These bytes are sent back but not all consumed, so they must be copied.
            let copy = buffers.input.unread()[..sent_back].to_vec();
            buffers.output.splice(0..0, copy);
            sent_back = 0;
        }
        let unread = buffers.input.len() - used;
        // Only these events show the protocol its input. Bytes that have arrived since then do not
        // count as left unused.
        let is_shown = matches!(event, Event::Data | Event::End);
        let left = if is_shown { unread } else { self.seen };
        if used > 0 {
            self.pace = None;
        }
        // Unless reading is paused or resumed, the bytes that are left are an incomplete message.
        let is_left_on_purpose = asked.reading.is_some() || self.reading == Reading::Paused;
        match end {
            Some(End::Succeeded) => {
                self.restart();
                return Borrowed(sent_back);
            }
            Some(end) => self.apply_end(end, event),
            None if left == 0 || is_left_on_purpose => {}
            None => self.wait_for_more(left, buffers.clock.now(), config),
        }
        if is_shown {
            self.seen = if is_left_on_purpose { 0 } else { unread };
        }
        Borrowed(sent_back)
    }

    /// Called when the protocol has left bytes unused: more must arrive in time, and within the
    /// protocol's limit.
    fn wait_for_more(&mut self, unread: usize, now: Instant, config: &ServerConfig) {
        let unread_max = match &self.actor {
            Actor::Present(protocol) => protocol.unread_bytes_max(),
            Actor::Expected(_) | Actor::Gone => 0,
        };
        if unread > unread_max {
            self.close(Closed::TooLong);
        } else if self.pace.is_none() {
            let pace = Pace::new(now, config.content_timeout, config.bytes_per_second_min);
            self.pace = Some(Box::new(pace));
        }
    }

    /// Starts over with the successor, which has not had any event.
    #[cold]
    fn restart(&mut self) {
        self.stage = Stage::New;
        self.seen = 0;
        self.pace = None;
        self.timeout = None;
        self.expired = None;
        self.held = None;
        self.calls = None;
        self.notify_drained = false;
        self.reading = Reading::Resumed;
        if self.input == Side::Told {
            self.input = Side::Ended;
        }
    }

    /// Returns whether the protocol has stopped within its input since the last call of this, and
    /// wants to see the rest.
    #[inline]
    pub(crate) fn take_stop(&mut self) -> bool {
        let has_stopped = self.reading == Reading::Stopped;
        if has_stopped {
            self.reading = Reading::Resumed;
        }
        has_stopped
    }

    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.refused.take()
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

/// Returns what the calls of a protocol need next.
#[cold]
fn step_calls(calls: &mut Calls) -> Option<Step> {
    if let Some(ask) = calls.next_asked() {
        return Some(Step::Ask(Box::new(ask)));
    }
    calls.has_answers().then_some(Step::Notify(Event::Answered))
}
