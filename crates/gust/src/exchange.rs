//! The requests and answers of one connection: which are on their way, and what the bytes that come
//! mean.
//!
//! No socket and no clock: the moment is an argument, and bytes go in and out as slices.

use std::collections::VecDeque;

use filoplume_http1::{Limits, PeerClosed, ResponseEvent, ResponseHead, ResponseReader};

use crate::plan::{Plan, Protocol, Template};
use crate::tally::{ErrorKind, Tally};
use crate::units::Nanos;
use crate::verify::{Answer, Digest, Verify};

/// Different requests are gathered into one write up to this size.
const GATHERED_BYTES_MAX: usize = 64 * 1024;

/// What follows when bytes were taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    /// Nothing may be asked on this connection any more.
    Closing,
}

/// One connection's requests, from being begun to being answered.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// In the order they were begun, which is that of the answers.
    pending: VecDeque<Pending>,
    /// How many of them, at the back, were not written to their end.
    unsent: usize,
    /// How much of the first of these was written.
    offset: usize,
    answers: Answers,
    /// The start of a head whose end has not come.
    unread: Vec<u8>,
    /// All answers, those of the warm-up too.
    pub(crate) answered: u64,
    /// Answers that counted.
    pub(crate) served: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    intended: Nanos,
    sent: Nanos,
    template: u16,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a connection, and a box would be one more place to look at"
)]
enum Answers {
    Http {
        reader: ResponseReader,
        seen: Answer,
    },
    /// How much of the echo in progress has come.
    Echo {
        received: usize,
    },
}

impl Exchange {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            pending: VecDeque::with_capacity(plan.depth),
            unsent: 0,
            offset: 0,
            answers: Answers::new(plan.protocol),
            unread: Vec::new(),
            answered: 0,
            served: 0,
        }
    }

    /// Forgets what was on its way, for the next connection, and returns how many requests that
    /// were counted.
    pub(crate) fn restart(&mut self, tally: &Tally) -> u64 {
        let lost = self.unanswered(tally.counts_from);
        self.pending.clear();
        self.unread.clear();
        self.unsent = 0;
        self.offset = 0;
        match &mut self.answers {
            Answers::Http { reader, .. } => reader.restart(),
            Answers::Echo { received } => *received = 0,
        }
        lost
    }

    /// Begins a request. It goes out with the next write.
    #[inline]
    pub(crate) fn begin(&mut self, template: u16, intended: Nanos, now: Nanos, tally: &mut Tally) {
        self.pending.push_back(Pending { intended, sent: now, template });
        self.unsent += 1;
        tally.request(now);
    }

    #[inline]
    pub(crate) fn on_their_way(&self) -> usize {
        self.pending.len()
    }

    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Requests without an answer that were sent after a moment.
    pub(crate) fn unanswered(&self, counts_from: Nanos) -> u64 {
        self.pending.iter().filter(|pending| pending.sent >= counts_from).count() as u64
    }

    /// When the request that has waited longest should have been sent.
    pub(crate) fn oldest_intended(&self) -> Option<Nanos> {
        self.pending.front().map(|pending| pending.intended)
    }

    /// When the request that has waited longest was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Nanos> {
        self.pending.front().map(|pending| pending.sent)
    }

    /// What is to be written next: as much as one write should take.
    #[inline]
    pub(crate) fn to_write<'a>(&self, plan: &'a Plan, gathered: &'a mut Vec<u8>) -> &'a [u8] {
        if let Some(only) = plan.requests.only() {
            return &only.repeated(self.unsent)[self.offset..];
        }
        gathered.clear();
        let first = self.pending.len() - self.unsent;
        for pending in self.pending.range(first..) {
            let bytes = &plan.requests.template(pending.template).bytes;
            // What is large goes out from where it lies.
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

    /// Takes note that so many bytes were written.
    #[inline]
    pub(crate) fn wrote(&mut self, plan: &Plan, written: usize) {
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

    /// The bytes kept from the last time are put before what comes next; returns how many.
    #[inline]
    pub(crate) fn restore(&mut self, buffer: &mut [u8]) -> usize {
        let kept = self.unread.len();
        if kept > 0 {
            buffer[..kept].copy_from_slice(&self.unread);
            self.unread.clear();
        }
        kept
    }

    /// Keeps the bytes that were restored: nothing came behind them.
    #[inline]
    pub(crate) fn put_back(&mut self, kept: &[u8]) {
        self.unread.extend_from_slice(kept);
    }

    /// Takes what came, with what [`restore`](Self::restore) put before it.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        plan: &Plan,
        input: &[u8],
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<Flow, ErrorKind> {
        match self.answers {
            Answers::Http { .. } => self.receive_http(plan, input, now, tally),
            Answers::Echo { .. } => self.receive_echo(plan, input, now, tally),
        }
    }

    /// Takes note that the peer sends nothing more.
    pub(crate) fn peer_closed(
        &mut self,
        plan: &Plan,
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<(), ErrorKind> {
        let Answers::Http { reader, .. } = &mut self.answers else {
            return if self.pending.is_empty() { Ok(()) } else { Err(ErrorKind::ClosedEarly) };
        };
        match reader.peer_closed(&self.unread) {
            PeerClosed::Ended => self.complete(plan, now, tally),
            PeerClosed::BetweenResponses if self.pending.is_empty() => return Ok(()),
            PeerClosed::BetweenResponses | PeerClosed::Truncated => {
                return Err(ErrorKind::ClosedEarly);
            }
        }
        if self.pending.is_empty() { Ok(()) } else { Err(ErrorKind::ClosedEarly) }
    }

    fn receive_http(
        &mut self,
        plan: &Plan,
        mut input: &[u8],
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<Flow, ErrorKind> {
        const LIMITS: Limits = Limits {
            head_bytes_max: Limits::HEAD_BYTES_MAX,
            target_bytes_max: Limits::TARGET_BYTES_MAX,
            fields_max: Limits::FIELDS_MAX,
            chunk_line_bytes_max: Limits::CHUNK_LINE_BYTES_MAX,
            chunk_extension_bytes_max: Limits::CHUNK_EXTENSION_BYTES_MAX,
            trailer_bytes_max: Limits::TRAILER_BYTES_MAX,
        };
        loop {
            let Some(asked) = self.pending.front() else {
                return if input.is_empty() { Ok(Flow::Open) } else { Err(ErrorKind::Unsolicited) };
            };
            if self.unsent == self.pending.len() && self.offset == 0 && !input.is_empty() {
                return Err(ErrorKind::Unsolicited);
            }
            let Answers::Http { reader, seen } = &mut self.answers else {
                return Ok(Flow::Open);
            };
            let method = &plan.requests.template(asked.template).method;
            let (used, event) =
                reader.receive(input, method, &LIMITS).map_err(|_| ErrorKind::Malformed)?;
            input = &input[used..];
            match event {
                None => {
                    self.unread.extend_from_slice(input);
                    return Ok(Flow::Open);
                }
                Some(ResponseEvent::Interim(_)) => {}
                Some(ResponseEvent::Head(head)) => *seen = begin_answer(&head),
                Some(ResponseEvent::Content(content)) => {
                    if plan.verify.is_some() {
                        seen.content.update(content);
                    }
                }
                Some(ResponseEvent::End) => {
                    let may_follow = reader.is_persistent();
                    // An answer that came before its request was written: the rest of it would be
                    // read as another.
                    let was_early = self.unsent == self.pending.len();
                    self.complete(plan, now, tally);
                    if !may_follow || was_early {
                        return Ok(Flow::Closing);
                    }
                }
            }
        }
    }

    /// The answer to the oldest request is whole.
    #[inline]
    fn complete(&mut self, plan: &Plan, now: Nanos, tally: &mut Tally) {
        let Some(asked) = self.pending.pop_front() else { return };
        self.unsent = self.unsent.min(self.pending.len());
        self.answered += 1;
        if !tally.response(asked.intended, asked.sent, now) {
            return;
        }
        self.served += 1;
        let Answers::Http { seen, .. } = &self.answers else { return };
        tally.slice.count_status(seen.status);
        if plan.expect.as_ref().is_some_and(|expected| !expected.has(seen.status)) {
            tally.error(ErrorKind::Status, 1);
        }
        if let Some(verify) = plan.verify {
            if !agrees(verify, plan.requests.template(asked.template), seen) {
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
            let Answers::Echo { received } = &mut self.answers else { break };
            let Some(asked) = self.pending.front() else { return Err(ErrorKind::Unsolicited) };
            let message = &plan.requests.template(asked.template).bytes;
            let is_first_unsent = self.unsent == self.pending.len();
            let written = if is_first_unsent { self.offset } else { message.len() };
            let run = (message.len() - *received).min(input.len());
            if *received + run > written {
                return Err(ErrorKind::Unsolicited);
            }
            let (echo, rest) = input.split_at(run);
            // Behind a wrong byte it is unknown where the next message begins.
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

impl Answers {
    fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Http {
                reader: ResponseReader::new(),
                seen: Answer { status: 0, content: Digest::EMPTY },
            },
            Protocol::Echo => Self::Echo { received: 0 },
        }
    }
}

#[inline]
fn begin_answer(head: &ResponseHead<'_>) -> Answer {
    Answer { status: head.status().as_u16(), content: Digest::EMPTY }
}

fn agrees(verify: Verify, template: &Template, seen: &Answer) -> bool {
    match verify {
        Verify::Echo => seen.content == template.content,
        Verify::Status => template.first.get_or_init(|| *seen).status == seen.status,
        Verify::Body => template.first.get_or_init(|| *seen) == seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";

    /// Requests that were begun at these moments, and written.
    fn pipeline(plan: &Plan, begun: &[Nanos], tally: &mut Tally) -> Exchange {
        let mut exchange = Exchange::new(plan);
        for &at in begun {
            exchange.begin(0, at, at, tally);
        }
        while exchange.has_unsent() {
            let length = exchange.to_write(plan, &mut Vec::new()).len();
            exchange.wrote(plan, length);
        }
        exchange
    }

    #[test]
    fn a_pipeline_loses_what_was_counted_and_has_no_answer() {
        let plan = args::plan(":1 -p 8").unwrap();
        let mut tally = Tally::new(100, false);
        let mut exchange = pipeline(&plan, &[98, 99, 100, 101, 102], &mut tally);
        assert_eq!((exchange.oldest_sent(), exchange.unanswered(100)), (Some(98), 3));
        let flow = exchange.receive(&plan, &ANSWER.repeat(3), 200, &mut tally);
        assert_eq!((flow, exchange.answered, exchange.served), (Ok(Flow::Open), 3, 1));
        assert_eq!((exchange.on_their_way(), exchange.oldest_sent()), (2, Some(101)));
        assert_eq!(exchange.restart(&tally), 2);
        assert_eq!((exchange.on_their_way(), exchange.has_unsent()), (0, false));
        assert_eq!(exchange.restart(&tally), 0);
    }

    #[test]
    fn the_next_connection_starts_with_a_whole_request() {
        let plan = args::plan(":1 -p 2").unwrap();
        let mut tally = Tally::new(0, false);
        let mut exchange = Exchange::new(&plan);
        exchange.begin(0, 1, 1, &mut tally);
        exchange.begin(0, 2, 2, &mut tally);
        let whole = exchange.to_write(&plan, &mut Vec::new()).to_vec();
        exchange.wrote(&plan, whole.len() / 2 + 3);
        // Half of an answer is kept as well.
        exchange.receive(&plan, &ANSWER[..9], 3, &mut tally).unwrap();
        assert_eq!(exchange.restart(&tally), 2);
        exchange.begin(0, 4, 4, &mut tally);
        exchange.begin(0, 5, 5, &mut tally);
        assert_eq!(exchange.to_write(&plan, &mut Vec::new()), whole);
        assert_eq!(exchange.restore(&mut [0; 64]), 0);
    }
}
