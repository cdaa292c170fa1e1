//! HTTP/1.1 on one connection: what the bytes that arrived ask for, and which bytes answer.
//!
//! [`Http`] never reads or writes a socket and never calls a handler. It says what it needs next, a
//! [`Step`], and the thread that holds the connection, a [`Worker`](crate::worker::Worker), does
//! it.

mod receive;
mod send;

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
use crate::service::refused::Refused;
use crate::service::request::Request;
use crate::service::response::Upgrade;
use receive::Receiving;
pub(crate) use receive::Taking;
pub(crate) use send::Responded;
use send::Sending;

/// HTTP/1.1 on one connection, between two moments of work.
#[derive(Debug)]
pub(crate) struct Http {
    /// Who answers the requests. `None`: the program, which pulls them.
    site: Option<Arc<Site>>,
    messages: ServerConnection,
    stage: Stage,
    /// What is left of the content when the response is written.
    skipping: Option<Box<Skipping>>,
    head: HeadDeadline,
    /// Why the peer is refused, until somebody asks.
    refusal: Option<Refusal>,
}

/// Which deadline runs while a head is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadDeadline {
    /// That of a new connection: it runs from the start, whatever comes.
    First,
    /// That of an idle connection.
    Idle,
    /// That of a head of which something has come.
    Begun,
}

/// Where the exchange at hand is.
#[derive(Debug)]
enum Stage {
    /// Between two requests, or within a head; and as long as the handler has the request.
    Head,
    /// The head is read; the content is collected.
    Receiving(Box<Receiving>),
    /// The response body comes from a reader.
    Sending(Box<Sending>),
    /// The response is written; the rest of the content is skipped.
    Skipping(Box<Skipping>),
    /// A `101` is written: another protocol follows.
    Leaving(Upgrade, Route),
    /// Everything is said that will be said.
    Closing { lingers: bool },
    /// As [`Closing`](Self::Closing), within a content whose end is that of the connection.
    CutShort,
    /// Only the end of what the peer sends is waited for, so that the answer reaches it (RFC 9112,
    /// 9.6).
    Lingering { until: Instant },
}

/// A content that nobody wants, to be read so that the connection can be kept.
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
        }
    }

    /// Who answers the requests. `None`: the program, which pulls them.
    #[inline]
    pub(crate) fn site(&self) -> Option<&Site> {
        self.site.as_deref()
    }

    /// Whether a head is what comes next.
    #[inline]
    pub(crate) fn expects_head(&self) -> bool {
        matches!(self.stage, Stage::Head)
    }

    /// Reads the next head. Only if one is expected. `None`: [`step`](Self::step) says what is
    /// needed.
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
                self.refuse(error, buffers);
                None
            }
        }
    }

    /// Goes on as far as the bytes at hand allow. Heads are read by [`next_head`](Self::next_head).
    #[inline(always)]
    pub(crate) fn step(&mut self, buffers: &mut Buffers) -> Step {
        if matches!(self.stage, Stage::Head) { Step::Read } else { self.step_cold(buffers) }
    }

    #[inline(never)]
    fn step_cold(&mut self, buffers: &mut Buffers) -> Step {
        match &mut self.stage {
            Stage::Head => Step::Read,
            Stage::Receiving(_) => self.receive(buffers),
            Stage::Sending(_) => Step::Pump,
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

    /// Takes what follows a `101`.
    pub(crate) fn leave(&mut self) -> Option<Successor> {
        match std::mem::replace(&mut self.stage, Stage::Closing { lingers: false }) {
            Stage::Leaving(Upgrade::Thread(handler), route) => {
                Some(Successor::Thread(handler, route.key.of_upgrade()))
            }
            Stage::Leaving(Upgrade::Protocol(protocol), route) => {
                Some(Successor::Guest(Guest::Raw(Box::new(Raw::upgraded(protocol, route)))))
            }
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Ends the connection if it is between two requests, or before its first. Returns whether it
    /// is.
    pub(crate) fn drain(&mut self, has_input: bool) -> bool {
        let is_idle = matches!(self.stage, Stage::Head) && !has_input;
        if is_idle {
            self.close(CloseReason::Shutdown, false);
        }
        is_idle
    }

    /// What the connection waits for. For one that is parked.
    pub(crate) fn waits_for(&self, has_input: bool) -> Waiting {
        match (&self.stage, self.head) {
            (Stage::Head, HeadDeadline::First | HeadDeadline::Begun) => Waiting::Head,
            (Stage::Head, HeadDeadline::Idle) if !has_input => Waiting::Idle,
            // With input it has only let others have their turn.
            _ => Waiting::Other,
        }
    }

    /// Whether a handler could go on at once if there were input.
    pub(crate) fn is_reading_request(&self) -> bool {
        matches!(self.stage, Stage::Head | Stage::Receiving(_))
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
            Stage::Sending(_) | Stage::Leaving(..) | Stage::Closing { .. } | Stage::CutShort => {
                Some(now + config.write_timeout)
            }
        }
    }

    /// The deadline has passed. Says what is owed to the peer, if anything is, and closes. A peer
    /// that `is_stuck` does not read what it has been sent, and is not sent more.
    pub(crate) fn expire(&mut self, is_stuck: bool, buffers: &mut Buffers) {
        let owes_answer = match &self.stage {
            Stage::Head => !buffers.input.is_empty(),
            Stage::Receiving(_) => true,
            _ => false,
        };
        if owes_answer && !is_stuck {
            let (date, out) = (buffers.clock.date(), &mut buffers.output);
            self.messages.write_refusal(StatusCode::REQUEST_TIMEOUT, date, None, out);
            self.refusal = Some(Refusal::Late);
            self.close(CloseReason::Error, true);
        } else {
            self.close(CloseReason::Error, false);
        }
    }

    /// The peer has ended its direction. What it asked for before was answered; half a request is
    /// not.
    pub(crate) fn end_of_input(&mut self) {
        self.close(CloseReason::PeerAsked, false);
    }

    /// When the peer of a content must have sent more if memory is short.
    pub(crate) fn pressed_deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Receiving(receiving) => Some(receiving.pressed_deadline()),
            _ => None,
        }
    }

    /// Our direction is closed too; what still comes is thrown away.
    pub(crate) fn linger(&mut self, until: Instant) {
        self.stage = Stage::Lingering { until };
    }

    /// Announces the end with the response that is written next.
    pub(crate) fn close_after_response(&mut self, reason: CloseReason) {
        self.messages.close(reason);
    }

    /// Refuses what the peer sent: the answer, then the end. Nothing behind it is looked at.
    #[cold]
    fn refuse(&mut self, error: ParseError, buffers: &mut Buffers) {
        let (date, out) = (buffers.clock.date(), &mut buffers.output);
        self.messages.write_refusal(error.status_code(), date, None, out);
        self.refusal = Some(Refusal::Request(error));
        self.close(CloseReason::Refused(error), true);
    }

    /// Refuses a content for which there is no memory.
    #[cold]
    fn refuse_for_memory(&mut self, request: &Request, buffers: &mut Buffers) {
        let refused = Refused::new(Refusal::Memory, 1, &"`ServerConfig::memory_max` is the limit");
        let own = self.site().and_then(|site| refused.ask(&*site.service, request));
        let (date, out) = (buffers.clock.date(), &mut buffers.output);
        match own.as_ref().and_then(|response| response.as_plain(usize::MAX)) {
            Some((status, headers, bytes)) => {
                // Before the head, which says so.
                self.messages.close(CloseReason::Error);
                let length = ContentLength::Known(bytes.len() as u64);
                if self.messages.write_head(status, headers, length, date, out)
                    != BodyEncoding::None
                {
                    out.extend_from_slice(bytes);
                }
            }
            None => {
                let retry_after = Some(("retry-after", "1"));
                self.messages.write_refusal(
                    StatusCode::SERVICE_UNAVAILABLE,
                    date,
                    retry_after,
                    out,
                );
            }
        }
        self.refusal = Some(Refusal::Memory);
        self.close(CloseReason::Error, true);
    }

    /// Why the peer is refused, if it is. Told once.
    pub(crate) fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    fn close(&mut self, reason: CloseReason, lingers: bool) {
        self.messages.close(reason);
        self.stage = if self.is_cut_short() { Stage::CutShort } else { Stage::Closing { lingers } };
    }

    /// Whether an orderly end of the connection now would make half of a content the whole of it.
    pub(crate) fn is_cut_short(&self) -> bool {
        match &self.stage {
            Stage::Sending(sending) => sending.ends_with_connection(),
            stage => matches!(stage, Stage::CutShort),
        }
    }

    /// Both halves of the exchange are complete, or the content is still to be skipped.
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
                // Closing a socket with unread bytes in it, or before they come, resets the
                // connection, and the response may be lost with it (RFC 9112, 9.6). Only a peer
                // that knows the end sends nothing more.
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
