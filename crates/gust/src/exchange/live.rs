//! Long-lived connections: the messages of WebSockets and the events of event streams.

use filoplume_http1::ResponseEvent;
use filoplume_websocket::{Decoder, Event};
use http::Method;

use super::{Exchange, Flow, LIMITS, ResponseState};
use crate::arrival::sent_at;
use crate::plan::Plan;
use crate::tally::{ErrorKind, Tally};
use crate::units::Nanos;
use crate::verify::Digest;
use crate::websocket::pong;

/// The kind of an event from a WebSocket server. It does not borrow the bytes of the event.
enum Frame {
    Message { agrees: bool, sent_at: Option<u64> },
    Close,
    Other,
}

impl Exchange {
    /// Begins to read the messages of a WebSocket.
    pub(crate) fn open(&mut self, decoder: Decoder) {
        self.state = ResponseState::WebSocket { decoder: Some(Box::new(decoder)) };
    }

    /// Returns whether an open connection receives what the server sends by itself, or has its
    /// response.
    pub(crate) fn is_held(&self) -> bool {
        match &self.state {
            ResponseState::WebSocket { decoder } => decoder.is_some(),
            ResponseState::Events { is_open, .. } => *is_open,
            ResponseState::Http { .. } => self.pending.is_empty(),
            ResponseState::Echo { .. } => false,
        }
    }

    pub(super) fn receive_messages(
        &mut self,
        plan: &Plan,
        input: &mut [u8],
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<Flow, ErrorKind> {
        let mut start = 0;
        loop {
            let ResponseState::WebSocket { decoder: Some(decoder) } = &mut self.state else {
                return Ok(Flow::Open);
            };
            let (used, event) =
                decoder.receive(&mut input[start..]).map_err(|_| ErrorKind::Malformed)?;
            start += used;
            let Some(event) = event else {
                self.unread.extend_from_slice(&input[start..]);
                return Ok(Flow::Open);
            };
            let frame = match event {
                Event::Text(text) => Frame::of_message(plan, text.as_bytes()),
                Event::Binary(bytes) => Frame::of_message(plan, bytes),
                Event::Ping(content) => {
                    pong(content, &mut self.replies);
                    Frame::Other
                }
                Event::Pong(_) => Frame::Other,
                Event::Close(_) => Frame::Close,
            };
            match frame {
                Frame::Other => {}
                Frame::Close if plan.holds => return Err(ErrorKind::ClosedEarly),
                Frame::Close => return Ok(Flow::Closing),
                Frame::Message { sent_at, .. } if plan.holds => self.arrived(sent_at, now, tally),
                Frame::Message { agrees, .. } => {
                    let is_unsent = self.unsent == self.pending.len() && self.offset == 0;
                    if self.pending.is_empty() || is_unsent {
                        return Err(ErrorKind::Unsolicited);
                    }
                    self.complete(plan, now, tally);
                    if !agrees {
                        tally.error(ErrorKind::Mismatch, 1);
                    }
                }
            }
        }
    }

    pub(super) fn receive_events(
        &mut self,
        mut input: &[u8],
        now: Nanos,
        tally: &mut Tally,
    ) -> Result<Flow, ErrorKind> {
        let mut arrivals = Vec::new();
        loop {
            let ResponseState::Events { reader, parser, is_open } = &mut self.state else {
                return Ok(Flow::Open);
            };
            let (used, event) =
                reader.receive(input, &Method::GET, &LIMITS).map_err(|_| ErrorKind::Malformed)?;
            input = &input[used..];
            match event {
                None => {
                    self.unread.extend_from_slice(input);
                    return Ok(Flow::Open);
                }
                Some(ResponseEvent::Interim(_)) => {}
                Some(ResponseEvent::Head(head)) => {
                    let content_type = head.field("content-type").unwrap_or_default();
                    let is_stream = content_type
                        .get(..EVENT_STREAM.len())
                        .is_some_and(|start| start.eq_ignore_ascii_case(EVENT_STREAM));
                    let status = head.status().as_u16();
                    if now >= tally.counts_from {
                        tally.slice.count_status(status);
                    }
                    if status != 200 || !is_stream {
                        return Err(ErrorKind::Status);
                    }
                    *is_open = true;
                    // The response has begun, which is all that is waited for.
                    self.pending.clear();
                }
                Some(ResponseEvent::Content(content)) => {
                    parser.receive(content, |event| arrivals.push(sent_at(event.data)));
                    for sent_at in arrivals.drain(..) {
                        self.arrived(sent_at, now, tally);
                    }
                }
                Some(ResponseEvent::End) => return Err(ErrorKind::ClosedEarly),
            }
        }
    }

    /// Counts a message that no request asked for.
    fn arrived(&mut self, sent_at: Option<u64>, now: Nanos, tally: &mut Tally) {
        self.answered += 1;
        self.served += u64::from(tally.arrival(sent_at, now));
    }
}

/// The media type of event streams.
const EVENT_STREAM: &[u8] = b"text/event-stream";

impl Frame {
    fn of_message(plan: &Plan, content: &[u8]) -> Self {
        if plan.holds {
            return Self::Message { agrees: true, sent_at: sent_at(content) };
        }
        // All messages of a run are the same.
        let agrees =
            plan.verify.is_none() || Digest::of(content) == plan.requests.template(0).content;
        Self::Message { agrees, sent_at: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    fn connection(plan: &Plan, tally: &mut Tally) -> Exchange {
        let mut exchange = Exchange::new(plan);
        exchange.begin(0, 0, 0, tally);
        let length = exchange.unsent_bytes(plan, &mut Vec::new()).len();
        exchange.note_written(plan, length);
        exchange
    }

    #[test]
    fn an_event_stream_is_counted_wherever_it_is_cut() {
        let plan = args::plan(":1 --sse").unwrap();
        let stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
            Transfer-Encoding: chunked\r\n\r\n\
            d\r\n: hi\n\ndata: 1\r\n5\r\n\ndata\r\n14\r\n: 0000000000001000\n\n\r\n";
        for cut in 0..=stream.len() {
            let mut tally = Tally::new(0, false);
            tally.wall_start = 400;
            let mut exchange = connection(&plan, &mut tally);
            for piece in [&stream[..cut], &stream[cut..]] {
                let mut input = vec![0; 1000];
                let kept = exchange.restore(&mut input);
                input[kept..kept + piece.len()].copy_from_slice(piece);
                let input = &mut input[..kept + piece.len()];
                exchange.receive(&plan, input, 1_000_000, &mut tally).unwrap();
            }
            assert!(exchange.is_held());
            assert_eq!((tally.slice.responses, exchange.in_flight()), (1, 0), "{cut}");
            assert_eq!(exchange.served, 1, "{cut}");
            // Sent at 1000 microseconds, arrived 1000 after the start at 400.
            assert_eq!((tally.slice.latency.count(), tally.slice.latency.max()), (1, 400_000));
        }
    }

    #[test]
    fn what_is_no_event_stream_is_an_error() {
        let plan = args::plan(":1 --sse").unwrap();
        for (answer, expected) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ErrorKind::Status),
            ("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", ErrorKind::Status),
            ("HTTP/1.1 203 OK\r\nContent-Type: text/event-stream\r\n\r\n", ErrorKind::Status),
            (
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n",
                ErrorKind::ClosedEarly,
            ),
            ("nonsense\r\n\r\n", ErrorKind::Malformed),
        ] {
            let mut tally = Tally::new(0, false);
            let mut exchange = connection(&plan, &mut tally);
            let mut input = answer.as_bytes().to_vec();
            let result = exchange.receive(&plan, &mut input, 1, &mut tally);
            assert_eq!(result, Err(expected), "{answer}");
        }
    }

    #[test]
    fn a_ping_is_answered_between_messages() {
        let plan = args::plan("ws://127.0.0.1:1 -l 5 -p 2").unwrap();
        let mut tally = Tally::new(0, false);
        let mut exchange = Exchange::new(&plan);
        let limits = filoplume_websocket::Limits::default();
        exchange.open(Decoder::new(filoplume_websocket::Role::Client, limits));
        exchange.begin(0, 1, 1, &mut tally);
        // A part of the message is written when the ping comes.
        exchange.note_written(&plan, 3);
        let mut input = *b"\x89\x02hi";
        exchange.receive(&plan, &mut input, 2, &mut tally).unwrap();
        let message = plan.requests.template(0).bytes.clone();
        assert_eq!(exchange.unsent_bytes(&plan, &mut Vec::new()), &message[3..]);
        exchange.note_written(&plan, message.len() - 3);
        assert!(exchange.has_unsent());
        let reply = exchange.unsent_bytes(&plan, &mut Vec::new()).to_vec();
        assert_eq!((reply[0], reply.len()), (0x8a, 8));
        exchange.note_written(&plan, reply.len());
        assert!(!exchange.has_unsent());
        let mut echo = *b"\x81\x0501234";
        exchange.receive(&plan, &mut echo, 9, &mut tally).unwrap();
        assert_eq!((tally.slice.responses, tally.slice.errors.total()), (1, 0));
        let mut again = *b"\x81\x0501234";
        let result = exchange.receive(&plan, &mut again, 9, &mut tally);
        assert_eq!(result, Err(ErrorKind::Unsolicited));
    }

    #[test]
    fn the_status_of_a_stream_that_is_opened_during_the_warm_up_does_not_count() {
        let plan = args::plan(":1 --sse").unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        for (now, statuses) in [(99, vec![]), (100, vec![(200, 1)])] {
            let mut tally = Tally::new(100, false);
            let mut exchange = connection(&plan, &mut tally);
            exchange.receive(&plan, &mut head.as_bytes().to_vec(), now, &mut tally).unwrap();
            assert_eq!(tally.slice.statuses, statuses, "at {now}");
        }
    }

    #[test]
    fn a_stream_that_the_server_ends_is_an_error() {
        let plan = args::plan(":1 --sse").unwrap();
        let mut tally = Tally::new(0, false);
        let mut exchange = connection(&plan, &mut tally);
        let mut head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n".to_vec();
        exchange.receive(&plan, &mut head, 1, &mut tally).unwrap();
        assert_eq!(exchange.peer_closed(&plan, 2, &mut tally), Err(ErrorKind::ClosedEarly));
    }

    #[test]
    fn a_message_follows_what_was_written_and_is_compared_only_if_that_is_asked_for() {
        const OTHER: [u8; 7] = *b"\x81\x0599999";
        for (arguments, mismatches) in [("", 0), (" --verify", 1)] {
            let plan = args::plan(&format!("ws://127.0.0.1:1 -l 5{arguments}")).unwrap();
            let mut tally = Tally::new(0, false);
            let mut exchange = Exchange::new(&plan);
            let limits = filoplume_websocket::Limits::default();
            exchange.open(Decoder::new(filoplume_websocket::Role::Client, limits));
            exchange.begin(0, 1, 1, &mut tally);
            let early = exchange.receive(&plan, &mut OTHER.clone(), 2, &mut tally);
            assert_eq!(early, Err(ErrorKind::Unsolicited), "nothing was written");
            let length = exchange.unsent_bytes(&plan, &mut Vec::new()).len();
            exchange.note_written(&plan, length);
            exchange.receive(&plan, &mut OTHER.clone(), 3, &mut tally).unwrap();
            let slice = &tally.slice;
            assert_eq!((slice.responses, slice.errors.total()), (1, mismatches), "{arguments}");
        }
    }
}
