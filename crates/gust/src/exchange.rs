//! The requests and responses of one connection: it tracks requests in flight and interprets
//! received bytes.
//!
//! This module has no socket and no clock: the time is an argument, and bytes are passed as slices.

mod live;

use std::collections::VecDeque;

use filoplume_http1::{Limits, PeerClosed, ResponseEvent, ResponseHead, ResponseReader};
use filoplume_websocket::Decoder;

use crate::arrival::SEARCHED_BYTES;
use crate::event_stream::EventParser;
use crate::plan::{Plan, Protocol, Template};
use crate::tally::{ErrorKind, Tally};
use crate::units::Nanos;
use crate::verify::{Digest, ResponseSummary, Verify};

/// Most bytes of different requests that are gathered into one write.
const GATHERED_BYTES_MAX: usize = 64 * 1024;

/// The limits of heads and trailers.
const LIMITS: Limits = Limits {
    head_bytes_max: Limits::HEAD_BYTES_MAX,
    target_bytes_max: Limits::TARGET_BYTES_MAX,
    fields_max: Limits::FIELDS_MAX,
    chunk_line_bytes_max: Limits::CHUNK_LINE_BYTES_MAX,
    chunk_extension_bytes_max: Limits::CHUNK_EXTENSION_BYTES_MAX,
    trailer_bytes_max: Limits::TRAILER_BYTES_MAX,
};

/// What may follow on a connection after bytes were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    /// No further request may be sent on this connection.
    Closing,
}

/// The requests of one connection, from start to response.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Requests in flight, in the order in which they were started. Responses have the same order.
    pending: VecDeque<Pending>,
    /// How many of the last pending requests are not completely written.
    unsent: usize,
    /// How many bytes of the first unsent request were written.
    offset: usize,
    state: ResponseState,
    /// The start of a head whose end has not arrived.
    unread: Vec<u8>,
    /// Answers to pings, which are sent between messages.
    replies: Vec<u8>,
    /// Number of responses, including those of the warm-up.
    pub(crate) answered: u64,
    /// Number of responses that were counted.
    pub(crate) served: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    intended: Nanos,
    sent: Nanos,
    template: u16,
}

#[derive(Debug)]
enum ResponseState {
    Http {
        reader: ResponseReader,
        summary: ResponseSummary,
    },
    /// How many bytes of the echo in progress were received.
    Echo {
        received: usize,
    },
    /// The messages of a WebSocket, once it is open.
    WebSocket {
        decoder: Option<Box<Decoder>>,
    },
    Events {
        reader: ResponseReader,
        parser: EventParser,
        /// The head of the stream was received.
        is_open: bool,
    },
}

impl Exchange {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            pending: VecDeque::with_capacity(plan.depth),
            unsent: 0,
            offset: 0,
            state: ResponseState::new(plan.protocol),
            unread: Vec::new(),
            replies: Vec::new(),
            answered: 0,
            served: 0,
        }
    }

    /// Drops the requests in flight, for the next connection, and returns how many of them were
    /// counted.
    pub(crate) fn restart(&mut self, tally: &Tally) -> u64 {
        let lost = self.unanswered(tally.counts_from);
        self.pending.clear();
        self.unread.clear();
        self.replies.clear();
        self.unsent = 0;
        self.offset = 0;
        match &mut self.state {
            ResponseState::Http { reader, .. } => reader.restart(),
            ResponseState::Echo { received } => *received = 0,
            ResponseState::WebSocket { decoder } => *decoder = None,
            ResponseState::Events { .. } => self.state = ResponseState::new(Protocol::Events),
        }
        lost
    }

    /// Starts a request. It is sent with the next write.
    #[inline]
    pub(crate) fn begin(&mut self, template: u16, intended: Nanos, now: Nanos, tally: &mut Tally) {
        self.pending.push_back(Pending { intended, sent: now, template });
        self.unsent += 1;
        tally.request(now);
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.pending.len()
    }

    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent > 0 || !self.replies.is_empty()
    }

    /// Returns the number of unanswered requests that were sent at `counts_from` or later.
    pub(crate) fn unanswered(&self, counts_from: Nanos) -> u64 {
        self.pending.iter().filter(|pending| pending.sent >= counts_from).count() as u64
    }

    /// Returns when the oldest request was due.
    pub(crate) fn oldest_intended(&self) -> Option<Nanos> {
        self.pending.front().map(|pending| pending.intended)
    }

    /// Returns when the oldest request was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Nanos> {
        self.pending.front().map(|pending| pending.sent)
    }

    /// Returns the bytes for the next write.
    #[inline]
    pub(crate) fn unsent_bytes<'a>(
        &'a self,
        plan: &'a Plan,
        gathered: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        if self.sends_replies() {
            return &self.replies;
        }
        if let Some(only) = plan.requests.only() {
            return &only.repeated(self.unsent)[self.offset..];
        }
        gathered.clear();
        let first = self.pending.len() - self.unsent;
        for pending in self.pending.range(first..) {
            let bytes = &plan.requests.template(pending.template).bytes;
            // A large request is written without a copy.
            if gathered.is_empty() && bytes.len() - self.offset >= GATHERED_BYTES_MAX {
                return &bytes[self.offset..];
            }
            if gathered.len() + bytes.len() > GATHERED_BYTES_MAX + self.offset {
                break;
            }
            gathered.extend_from_slice(bytes);
        }
        &gathered[self.offset..]
    }

    /// Records that this many bytes were written.
    #[inline]
    pub(crate) fn note_written(&mut self, plan: &Plan, written: usize) {
        if self.sends_replies() {
            self.replies.drain(..written);
            return;
        }
        self.offset += written;
        if let Some(only) = plan.requests.only() {
            self.unsent -= self.offset / only.bytes.len();
            self.offset %= only.bytes.len();
            return;
        }
        while self.unsent > 0 {
            let next = self.pending[self.pending.len() - self.unsent].template;
            let length = plan.requests.template(next).bytes.len();
            if self.offset < length {
                break;
            }
            self.offset -= length;
            self.unsent -= 1;
        }
    }

    /// Returns whether replies are sent next, which is so between two messages.
    #[inline]
    fn sends_replies(&self) -> bool {
        self.offset == 0 && !self.replies.is_empty()
    }

    /// Copies the bytes that were kept from the last read to the start of `buffer`, and returns how
    /// many.
    #[inline]
    pub(crate) fn restore(&mut self, buffer: &mut [u8]) -> usize {
        let kept = self.unread.len();
        if kept > 0 {
            buffer[..kept].copy_from_slice(&self.unread);
            self.unread.clear();
        }
        kept
    }

    /// Keeps the restored bytes, because no more bytes arrived.
    #[inline]
    pub(crate) fn put_back(&mut self, kept: &[u8]) {
        self.unread.extend_from_slice(kept);
    }

    /// Handles received bytes. `input` begins with the bytes from [`restore`](Self::restore).
    #[inline]
    pub(crate) fn receive(
        &mut self,
        plan: &Plan,
        input: &mut [u8],
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<Flow, ErrorKind> {
        match self.state {
            ResponseState::Http { .. } => self.receive_http(plan, input, now, tally),
            ResponseState::Echo { .. } => self.receive_echo(plan, input, now, tally),
            ResponseState::WebSocket { .. } => self.receive_messages(plan, input, now, tally),
            ResponseState::Events { .. } => self.receive_events(input, now, tally),
        }
    }

    /// Records that the peer has closed the connection.
    pub(crate) fn peer_closed(
        &mut self,
        plan: &Plan,
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<(), ErrorKind> {
        let ResponseState::Http { reader, .. } = &mut self.state else {
            let is_expected = self.pending.is_empty() && !plan.holds;
            return if is_expected { Ok(()) } else { Err(ErrorKind::ClosedEarly) };
        };
        match reader.peer_closed(&self.unread) {
            PeerClosed::Ended => self.complete(plan, now, tally),
            PeerClosed::BetweenResponses if self.pending.is_empty() && !plan.holds => return Ok(()),
            PeerClosed::BetweenResponses | PeerClosed::Truncated => {
                return Err(ErrorKind::ClosedEarly);
            }
        }
        if self.pending.is_empty() && !plan.holds { Ok(()) } else { Err(ErrorKind::ClosedEarly) }
    }

    fn receive_http(
        &mut self,
        plan: &Plan,
        mut input: &[u8],
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<Flow, ErrorKind> {
        loop {
            let Some(request) = self.pending.front() else {
                return if input.is_empty() { Ok(Flow::Open) } else { Err(ErrorKind::Unsolicited) };
            };
            if self.unsent == self.pending.len() && self.offset == 0 && !input.is_empty() {
                return Err(ErrorKind::Unsolicited);
            }
            let ResponseState::Http { reader, summary } = &mut self.state else {
                return Ok(Flow::Open);
            };
            let method = &plan.requests.template(request.template).method;
            let (used, event) =
                reader.receive(input, method, &LIMITS).map_err(|_| ErrorKind::Malformed)?;
            input = &input[used..];
            match event {
                None => {
                    self.unread.extend_from_slice(input);
                    return Ok(Flow::Open);
                }
                Some(ResponseEvent::Interim(_)) => {}
                Some(ResponseEvent::Head(head)) => *summary = begin_response(&head),
                Some(ResponseEvent::Content(content)) => {
                    if plan.verify.is_some() {
                        summary.content.update(content);
                    }
                }
                Some(ResponseEvent::End) => {
                    let may_follow = reader.is_persistent();
                    // The response came before its request was completely written. The server would
                    // read the rest of the request as another one.
                    let was_early = self.unsent == self.pending.len();
                    self.complete(plan, now, tally);
                    if !may_follow || was_early {
                        // A connection that ends cannot be held.
                        let ends = Ok(Flow::Closing);
                        return if plan.holds { Err(ErrorKind::ClosedEarly) } else { ends };
                    }
                }
            }
        }
    }

    /// Records the complete response to the oldest request.
    #[inline]
    fn complete(&mut self, plan: &Plan, now: Nanos, tally: &mut Tally) {
        let Some(request) = self.pending.pop_front() else { return };
        self.unsent = self.unsent.min(self.pending.len());
        self.answered += 1;
        if !tally.response(request.intended, request.sent, now) {
            return;
        }
        self.served += 1;
        let ResponseState::Http { summary, .. } = &self.state else { return };
        tally.slice.count_status(summary.status);
        if plan.expect.as_ref().is_some_and(|expected| !expected.has(summary.status)) {
            tally.error(ErrorKind::Status, 1);
        }
        if let Some(verify) = plan.verify {
            if !agrees(verify, plan.requests.template(request.template), summary) {
                tally.error(ErrorKind::Mismatch, 1);
            }
        }
    }

    fn receive_echo(
        &mut self,
        plan: &Plan,
        mut input: &[u8],
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<Flow, ErrorKind> {
        let verifies = plan.verify.is_some();
        while !input.is_empty() {
            let ResponseState::Echo { received } = &mut self.state else { break };
            let Some(request) = self.pending.front() else { return Err(ErrorKind::Unsolicited) };
            let message = &plan.requests.template(request.template).bytes;
            let is_first_unsent = self.unsent == self.pending.len();
            let written = if is_first_unsent { self.offset } else { message.len() };
            let run = (message.len() - *received).min(input.len());
            if *received + run > written {
                return Err(ErrorKind::Unsolicited);
            }
            let (echo, rest) = input.split_at(run);
            // After a wrong byte the start of the next message is unknown.
            if verifies && echo != &message[*received..*received + run] {
                return Err(ErrorKind::Mismatch);
            }
            *received += run;
            if *received == message.len() {
                *received = 0;
                self.complete(plan, now, tally);
            }
            input = rest;
        }
        Ok(Flow::Open)
    }
}

impl ResponseState {
    fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Http {
                reader: ResponseReader::new(),
                summary: ResponseSummary { status: 0, content: Digest::EMPTY },
            },
            Protocol::Echo => Self::Echo { received: 0 },
            Protocol::WebSocket => Self::WebSocket { decoder: None },
            Protocol::Events => Self::Events {
                reader: ResponseReader::new(),
                parser: EventParser::keeping(SEARCHED_BYTES),
                is_open: false,
            },
        }
    }
}

#[inline]
fn begin_response(head: &ResponseHead<'_>) -> ResponseSummary {
    ResponseSummary { status: head.status().as_u16(), content: Digest::EMPTY }
}

fn agrees(verify: Verify, template: &Template, summary: &ResponseSummary) -> bool {
    match verify {
        Verify::Echo => summary.content == template.content,
        Verify::Status => template.first.get_or_init(|| *summary).status == summary.status,
        Verify::Body => template.first.get_or_init(|| *summary) == summary,
    }
}

#[cfg(test)]
mod tests;
