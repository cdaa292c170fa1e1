//! HTTP/1.1 on one connection: requests from input bytes, and output bytes from responses.
//!
//! [`Http`] never reads or writes a socket and never calls a handler. It returns what it needs next
//! as a [`Step`]. The thread that serves the connection, a
//! [`Worker`](crate::engine::worker::Worker), carries it out.

mod measuring;
mod push;
mod receive;
mod send;
mod send_file;
mod send_framing;
#[cfg(feature = "spool")]
mod spool;

use std::sync::Arc;
use std::time::Instant;

use filoplume_http1::{
    BodyEncoding, CloseReason, ContentDecoder, ContentLength, Next, ParseError, RequestHead,
    ServerConnection,
};
use http::StatusCode;

use super::raw::Raw;
use super::{Guest, Step, Successor, Waiting};
use crate::budget::refusal::Refusal;
use crate::buffers::Buffers;
use crate::clock::{Clock, Pace};
use crate::config::ServerConfig;
use crate::execution::key::Route;
use crate::service::Site;
use crate::service::body::Streamed;
use crate::service::incomplete::Arrived;
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::upgrade::Upgrade;
use measuring::Measuring;
pub(crate) use measuring::{Answered, Phase};
pub(crate) use push::PushFailed;
use push::Pushing;
pub(crate) use receive::ContentPlan;
use receive::Receiving;
pub(crate) use send::Responded;
use send::Sending;
pub(crate) use send_file::FileSent;

/// The state of HTTP/1.1 on one connection.
#[derive(Debug)]
pub(crate) struct Http {
    /// The service that answers the requests. `None` if the program pulls them.
    site: Option<Arc<Site>>,
    messages: ServerConnection,
    stage: Stage,
    /// The rest of the content, to be skipped when the response is written.
    skipping: Option<Box<Skipping>>,
    head: HeadDeadline,
    /// Why the peer is refused, until it is reported.
    refusal: Option<Refusal>,
    /// What had arrived of the request that is refused.
    arrived: Option<Box<Arrived>>,
    /// The measurement of the current exchange, if there is one.
    measuring: Option<Box<Measuring>>,
}

/// Which deadline applies while a head is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadDeadline {
    /// The deadline of a new connection, which does not move.
    First,
    /// The deadline of an idle connection.
    Idle,
    /// The deadline of a head that has begun to arrive.
    Begun,
}

/// The stage of the current exchange.
#[derive(Debug)]
enum Stage {
    /// Between two requests, within a head, or while the handler has the request.
    Head,
    /// The content is being collected.
    Receiving(Box<Receiving>),
    /// There is no memory or no disk space for the content of this request.
    Refusing(Box<Request>, Refusal),
    /// The response body comes from a reader.
    Sending(Box<Sending>),
    /// The response body comes from other threads.
    Pushing(Box<Pushing>),
    /// The response is written, and the rest of the content is skipped.
    Skipping(Box<Skipping>),
    /// A `101` is written, and another protocol follows.
    Leaving(Upgrade, Route),
    /// The output is complete, and the connection ends.
    Closing { lingers: bool },
    /// As [`Closing`](Self::Closing), within a response body that is delimited by the end of the
    /// connection.
    CutShort,
    /// Discards input until the peer closes, so that the response is not lost to a reset (RFC 9112,
    /// section 9.6).
    Lingering { until: Instant },
}

/// An unread content that is skipped, so that the connection can be kept.
#[derive(Debug)]
struct Skipping {
    decoder: ContentDecoder,
    bytes_left: u64,
    pace: Pace,
}

/// A request whose handler reads the content itself.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) request: Request,
    pub(crate) route: Route,
    pub(crate) content: Streamed,
}

impl Http {
    pub(crate) fn new(site: Option<Arc<Site>>) -> Self {
        Self {
            site,
            messages: ServerConnection::new(),
            stage: Stage::Head,
            skipping: None,
            head: HeadDeadline::First,
            refusal: None,
            arrived: None,
            measuring: None,
        }
    }

    /// Continues a connection of another process. If `has_begun`, the deadline of its head runs
    /// already. Otherwise the connection is idle.
    #[cfg(unix)]
    pub(crate) fn resume(&mut self, has_begun: bool) {
        self.head = if has_begun { HeadDeadline::Begun } else { HeadDeadline::Idle };
    }

    /// As [`site`](Self::site), shared so that it can be kept.
    pub(crate) fn shared_site(&self) -> Option<Arc<Site>> {
        self.site.as_ref().map(Arc::clone)
    }

    /// Returns the service that answers the requests. `None` if the program pulls them.
    #[inline]
    pub(crate) fn site(&self) -> Option<&Site> {
        self.site.as_deref()
    }

    /// Returns whether a request head is expected next.
    #[inline]
    pub(crate) fn expects_head(&self) -> bool {
        matches!(self.stage, Stage::Head)
    }

    /// Parses the next head. May only be called if one is expected. After `None`,
    /// [`step`](Self::step) returns what is needed.
    #[inline(always)]
    pub(crate) fn next_head(
        &mut self,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Option<RequestHead> {
        match self.messages.read_head(buffers.input.unread(), &config.limits) {
            Ok(Some((head, used))) => {
                buffers.input.consume(used);
                self.head = HeadDeadline::Idle;
                Some(head)
            }
            Ok(None) => None,
            Err(error) => {
                let arrived = Arrived::line_of(buffers.input.unread());
                self.refuse(error, arrived);
                None
            }
        }
    }

    /// Processes the buffered input as far as possible. Heads are parsed by
    /// [`next_head`](Self::next_head).
    #[inline(always)]
    pub(crate) fn step(&mut self, buffers: &mut Buffers) -> Step {
        if matches!(self.stage, Stage::Head) { Step::Read } else { self.step_cold(buffers) }
    }

    #[inline(never)]
    fn step_cold(&mut self, buffers: &mut Buffers) -> Step {
        match &mut self.stage {
            Stage::Head => Step::Read,
            Stage::Receiving(_) => self.receive(buffers),
            Stage::Refusing(..) => self.refusing(),
            Stage::Sending(_) => Step::Pump,
            Stage::Pushing(_) => self.push(buffers),
            Stage::Skipping(_) => self.skip(buffers),
            Stage::Leaving(..) => Step::Leave,
            Stage::Closing { lingers: true } => Step::Linger,
            Stage::Closing { lingers: false } | Stage::CutShort => Step::Close,
            Stage::Lingering { .. } => {
                buffers.input.clear();
                Step::Read
            }
        }
    }

    #[cold]
    fn refusing(&mut self) -> Step {
        match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Refusing(request, refusal) => Step::RefuseContent(request, refusal),
            stage => {
                self.stage = stage;
                Step::Again
            }
        }
    }

    /// Takes the successor after a `101`.
    pub(crate) fn leave(&mut self) -> Option<Successor> {
        match std::mem::replace(&mut self.stage, Stage::Closing { lingers: false }) {
            Stage::Leaving(Upgrade::Reserved(thread), _) => Some(Successor::Reserved(thread)),
            Stage::Leaving(Upgrade::Protocol(protocol), route) => {
                Some(Successor::Guest(Guest::Raw(Box::new(Raw::upgraded(protocol, route)))))
            }
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Ends the connection if it is idle between two requests, or the response if it is pushed
    /// without an end of its own. Returns whether something ends. A new connection does not end,
    /// because its first request may be on its way.
    pub(crate) fn drain(&mut self, has_input: bool) -> bool {
        if self.stop_pushing() {
            return true;
        }
        let is_idle =
            matches!(self.stage, Stage::Head) && !has_input && self.head == HeadDeadline::Idle;
        if is_idle {
            self.close(CloseReason::Shutdown, false);
        }
        is_idle
    }

    /// Returns what a parked connection waits for.
    pub(crate) fn waits_for(&self, has_input: bool) -> Waiting {
        match (&self.stage, self.head) {
            (Stage::Head, HeadDeadline::First | HeadDeadline::Begun) => Waiting::Head,
            (Stage::Head, HeadDeadline::Idle) if !has_input => Waiting::Idle,
            (Stage::Receiving(receiving), _) => {
                Waiting::Content { until: receiving.pressed_deadline() }
            }
            (Stage::Skipping(skipping), _) => {
                Waiting::Content { until: skipping.pace.pressed_deadline() }
            }
            (Stage::Lingering { .. }, _) => Waiting::Lingering,
            (Stage::Pushing(pushing), _) => Waiting::Stream { since: pushing.sent_at() },
            // A connection with input has only yielded to other connections.
            _ => Waiting::Other,
        }
    }

    /// Returns whether the next input belongs to a request.
    pub(crate) fn is_reading_request(&self) -> bool {
        matches!(self.stage, Stage::Head | Stage::Receiving(_))
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
        let is_idle = matches!(self.stage, Stage::Head) && !has_input;
        if is_idle && self.head == HeadDeadline::Idle {
            return Some(clock.after(config.keep_alive_timeout));
        }
        self.deadline_cold(clock.now(), has_input, config)
    }

    #[inline(never)]
    fn deadline_cold(
        &mut self,
        now: Instant,
        has_input: bool,
        config: &ServerConfig,
    ) -> Option<Instant> {
        match &self.stage {
            Stage::Head if has_input => self.measure_wait(Phase::Head, now),
            Stage::Receiving(_) => self.measure_wait(Phase::Content, now),
            _ => {}
        }
        match &self.stage {
            Stage::Head => match self.head {
                HeadDeadline::First | HeadDeadline::Begun => None,
                HeadDeadline::Idle if !has_input => Some(now + config.keep_alive_timeout),
                HeadDeadline::Idle => {
                    self.head = HeadDeadline::Begun;
                    Some(now + config.head_timeout)
                }
            },
            Stage::Receiving(receiving) => Some(receiving.deadline()),
            Stage::Skipping(skipping) => Some(skipping.pace.deadline()),
            Stage::Lingering { until } => Some(*until),
            Stage::Pushing(pushing) => Some(pushing.deadline(now, config)),
            Stage::Sending(_)
            | Stage::Refusing(..)
            | Stage::Leaving(..)
            | Stage::Closing { .. }
            | Stage::CutShort => Some(now + config.write_timeout),
        }
    }

    /// Called when the deadline has passed. Answers an incomplete request with a `408`, and closes.
    /// If `is_stuck`, the peer does not read its output, so nothing more is sent.
    pub(crate) fn expire(&mut self, is_stuck: bool, buffers: &Buffers) {
        let begun = match std::mem::replace(&mut self.stage, Stage::Head) {
            Stage::Head if !buffers.input.is_empty() => {
                Some(Arrived::line_of(buffers.input.unread()))
            }
            Stage::Receiving(receiving) => Some(Arrived::Head(receiving.request)),
            stage => {
                self.stage = stage;
                None
            }
        };
        // A request that has begun is owed an answer.
        if let Some(arrived) = begun.filter(|_| !is_stuck) {
            self.refusal = Some(Refusal::Late);
            self.arrived = Some(Box::new(arrived));
            self.close(CloseReason::Error, true);
        } else {
            self.close(CloseReason::Error, false);
        }
    }

    /// Called when the peer has closed its direction. Its complete requests are answered already.
    /// An incomplete one is not answered.
    pub(crate) fn end_of_input(&mut self) {
        self.close(CloseReason::PeerAsked, false);
    }

    /// Returns the deadline for a peer that sends a content while memory is short.
    pub(crate) fn pressed_deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Receiving(receiving) => Some(receiving.pressed_deadline()),
            _ => None,
        }
    }

    /// Returns the deadline for a peer whose content is in a file while disk space is short.
    pub(crate) fn deadline_while_disk_short(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Receiving(receiving) => receiving.deadline_while_disk_short(),
            _ => None,
        }
    }

    /// Returns whether a part of the content is in a file.
    #[cfg(feature = "spool")]
    pub(crate) fn has_file(&self) -> bool {
        matches!(&self.stage, Stage::Receiving(receiving) if receiving.beyond.has_file())
    }

    /// Called when the write direction is shut down. Input is discarded until `until`.
    pub(crate) fn linger(&mut self, until: Instant) {
        self.stage = Stage::Lingering { until };
    }

    /// Closes the connection after the next response, which announces it.
    pub(crate) fn close_after_response(&mut self, reason: CloseReason) {
        self.messages.close(reason);
    }

    /// Refuses the peer's input and closes. The input after it is ignored. The response is written
    /// when the connection lingers, because the service may add to it.
    #[cold]
    fn refuse(&mut self, error: ParseError, arrived: Arrived) {
        self.refusal = Some(Refusal::Request(error));
        self.arrived = Some(Box::new(arrived));
        self.close(CloseReason::Refused(error), true);
    }

    /// Refuses a content for which there is no room, with the service's own response, if it has
    /// one. `retry_after` is in seconds.
    #[cold]
    pub(crate) fn refuse_for(
        &mut self,
        retry_after: u64,
        own: Option<&Response>,
        buffers: &mut Buffers,
    ) {
        let (date, out) = (buffers.clock.date(), &mut buffers.output);
        match own.and_then(|response| response.as_plain(usize::MAX)) {
            Some((status, headers, bytes)) => {
                // Called before the head is written, so that the head announces the close.
                self.messages.close(CloseReason::Error);
                let length = ContentLength::Known(bytes.len() as u64);
                if self.messages.write_head(status, headers, length, date, out)
                    != BodyEncoding::None
                {
                    out.extend_from_slice(bytes);
                }
            }
            None => {
                let seconds = retry_after.to_string();
                self.messages.write_refusal(
                    StatusCode::SERVICE_UNAVAILABLE,
                    date,
                    Some(("retry-after", &seconds)),
                    out,
                );
            }
        }
        self.close(CloseReason::Error, true);
    }

    /// Writes the response to a request that was refused before it was complete, with a header of
    /// the service.
    #[cold]
    pub(crate) fn write_refusal(
        &mut self,
        refusal: Refusal,
        header: Option<(&str, &str)>,
        buffers: &mut Buffers,
    ) {
        let status = refusal.status().and_then(|status| StatusCode::from_u16(status).ok());
        let Some(status) = status else { return };
        self.messages.write_refusal(status, buffers.clock.date(), header, &mut buffers.output);
    }

    /// Takes the reason why the peer is refused, if it is.
    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    /// Takes what had arrived of a request that is refused.
    pub(crate) fn take_arrived(&mut self) -> Option<Box<Arrived>> {
        self.arrived.take()
    }

    fn close(&mut self, reason: CloseReason, lingers: bool) {
        self.messages.close(reason);
        self.stage = if self.is_cut_short() { Stage::CutShort } else { Stage::Closing { lingers } };
    }

    /// Returns whether the peer would take an incomplete response for a complete one if the
    /// connection ended in an orderly way now.
    pub(crate) fn is_cut_short(&self) -> bool {
        match &self.stage {
            Stage::Sending(sending) => sending.ends_with_connection(),
            Stage::Pushing(pushing) => pushing.ends_with_connection(),
            stage => matches!(stage, Stage::CutShort),
        }
    }

    /// Called when the response is complete. The content of the request may still have to be
    /// skipped.
    #[inline(always)]
    fn settle(&mut self, has_input: bool) {
        let next = self.messages.next();
        if !(next == Some(Next::KeepAlive) && matches!(self.stage, Stage::Head)) {
            self.settle_cold(next, has_input);
        }
    }

    #[inline(never)]
    fn settle_cold(&mut self, next: Option<Next>, has_input: bool) {
        match next {
            Some(Next::KeepAlive) => self.stage = Stage::Head,
            Some(Next::Close(reason)) => {
                // Closing a socket with unread input, or before further input arrives, resets the
                // connection, and the response may be lost (RFC 9112, section 9.6). Only a peer
                // that knows that the connection ends sends nothing more.
                let lingers =
                    has_input || !matches!(reason, CloseReason::PeerAsked | CloseReason::Http10);
                self.close(reason, lingers);
            }
            None => {
                if let Some(skipping) = self.skipping.take() {
                    self.stage = Stage::Skipping(skipping);
                }
            }
        }
    }
}
