//! Encoding responses, including bodies that come from a reader piece by piece.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use filoplume_http1::{BodyEncoding, CloseReason, ContentLength};
use http::StatusCode;

use super::push::Pushing;
use super::send_file::{PUMP_BYTES, Source};
use super::send_framing::SendFraming;
use super::{Http, Stage};
use crate::budget::account::{Account, Charge};
use crate::budget::descriptors::HeldDescriptor;
use crate::buffers::Buffers;
use crate::config::ServerConfig;
use crate::execution::key::Route;
use crate::service::body::StreamReturn;
use crate::service::response::{Response, ResponseBody};

/// A body of up to this length is copied after its head. A longer one is written without a copy.
const COPY_BYTES_MAX: usize = 8 * 1024;

/// A response body that comes from a reader.
pub(super) struct Sending {
    pub(super) source: Source,
    /// Counts the descriptor that the source may have. It is declared after the source, which is
    /// therefore dropped first.
    held: Option<HeldDescriptor>,
    pub(super) framing: SendFraming,
    route: Route,
    /// The content of the request, which the reader may still be reading.
    stream: Option<Arc<StreamReturn>>,
    /// What the reader keeps in memory until the body is sent.
    reader_memory: usize,
    /// The reader's share of the memory budget. It is charged from the first time that the peer
    /// does not take what it is sent until the body ends.
    charge: Charge,
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").field("framing", &self.framing).finish_non_exhaustive()
    }
}

impl Sending {
    fn new(
        source: Source,
        framing: SendFraming,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
        held: Option<HeldDescriptor>,
    ) -> Self {
        Self { source, held, framing, route, stream, reader_memory: 0, charge: Charge::default() }
    }

    pub(super) fn ends_with_connection(&self) -> bool {
        self.framing.ends_with_connection()
    }
}

/// What remains to be done for a response.
pub(crate) enum Responded {
    /// Nothing: it is completely in the output.
    Encoded,
    /// Its head is in the output. Its body comes from a reader, or is pushed.
    Begun,
    /// This body must be written after the output.
    Large(Bytes),
    /// Nothing is done: the response [needs a thread](Response::needs_thread), and the stream of
    /// the request's content comes back.
    NeedsThread(Option<Arc<StreamReturn>>),
}

impl Http {
    /// Encodes the response. A body that comes from a reader is sent by [`pump`](Self::pump).
    #[inline(always)]
    pub(crate) fn respond(
        &mut self,
        response: &mut Response,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Responded {
        if stream.is_none() {
            if let Some((status, headers, bytes)) = response.as_plain(COPY_BYTES_MAX) {
                // The common case: nothing blocks, and nothing remains to be done.
                let length = ContentLength::Known(bytes.len() as u64);
                let Buffers { clock, output, input, .. } = buffers;
                let encoding =
                    self.messages.write_head(status, headers, length, clock.date(), output);
                if encoding != BodyEncoding::None {
                    output.extend_from_slice(bytes);
                }
                self.messages.write_done();
                self.settle(!input.is_empty());
                return Responded::Encoded;
            }
        }
        self.respond_cold(response, route, stream, buffers, config)
    }

    #[inline(never)]
    fn respond_cold(
        &mut self,
        response: &mut Response,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Responded {
        if response.needs_thread() {
            return Responded::NeedsThread(stream);
        }
        let reader_memory = response.reader_memory();
        let (status, headers, body, upgrade) = std::mem::take(response).into_parts();
        let is_upgrade = status == StatusCode::SWITCHING_PROTOCOLS;
        if status.is_informational() && (!is_upgrade || upgrade.is_none()) {
            tracing::error!(
                %status,
                "an interim status is not a response; a 101 needs `Response::upgrade`"
            );
            return self.respond(&mut Response::new(500), route, stream, buffers, config);
        }
        let stream = stream.and_then(|stream| self.keep_stream(stream, &body, buffers, config));
        if is_upgrade && self.has_unread_content() {
            // Bytes of the content would be taken for the new protocol (RFC 9110, section 7.8).
            let mut refusal = Response::new(400);
            refusal.set_text("a request that changes the protocol must be complete");
            return self.respond(&mut refusal, route, stream, buffers, config);
        }
        let (length, date) = (length_of(&body), buffers.clock.date());
        let encoding =
            self.messages.write_head(status, &headers, length, date, &mut buffers.output);
        if let (true, Some(upgrade)) = (is_upgrade, upgrade) {
            self.stage = Stage::Leaving(*upgrade, route);
            return Responded::Encoded;
        }
        let framing = SendFraming::of(encoding);
        let responded = self.begin_body(body, framing, route, stream, buffers, config);
        if let Stage::Sending(sending) = &mut self.stage {
            sending.reader_memory = reader_memory;
        }
        responded
    }

    /// Returns whether the peer may still send content of the request.
    fn has_unread_content(&self) -> bool {
        !self.messages.reading_is_complete()
            || self.messages.will_close() == Some(CloseReason::ContentUnread)
    }

    /// Returns the stream of the request's content if the reader of the response may still be
    /// reading it. Otherwise the stream ends before the response.
    fn keep_stream(
        &mut self,
        stream: Arc<StreamReturn>,
        body: &ResponseBody,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Option<Arc<StreamReturn>> {
        stream.response_begins();
        match body {
            ResponseBody::Sized { .. } | ResponseBody::File { .. } | ResponseBody::Unsized(_) => {
                Some(stream)
            }
            ResponseBody::Empty | ResponseBody::Bytes(_) | ResponseBody::Pushed(_) => {
                self.end_stream(stream.take(), buffers, config);
                None
            }
        }
    }

    /// Begins the body, after the head. `framing` is `None` if the response has no body.
    fn begin_body(
        &mut self,
        body: ResponseBody,
        framing: Option<SendFraming>,
        route: Route,
        stream: Option<Arc<StreamReturn>>,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Responded {
        let held = None;
        match (body, framing) {
            (ResponseBody::Bytes(bytes), Some(_)) => {
                self.messages.write_done();
                self.settle(!buffers.input.is_empty());
                if bytes.len() > COPY_BYTES_MAX {
                    return Responded::Large(bytes);
                }
                buffers.output.extend_from_slice(&bytes);
            }
            (ResponseBody::Sized { reader, .. } | ResponseBody::Unsized(reader), Some(framing)) => {
                let sending = Sending::new(Source::Reader(reader), framing, route, stream, held);
                self.stage = Stage::Sending(Box::new(sending));
                return Responded::Begun;
            }
            (ResponseBody::File { content, .. }, Some(framing)) => {
                let source = Source::File { content, is_read: false };
                let sending = Sending::new(source, framing, route, stream, held);
                self.stage = Stage::Sending(Box::new(sending));
                return Responded::Begun;
            }
            (ResponseBody::Pushed(body), Some(framing)) => {
                let pushing = Pushing::new(body, framing, route, buffers.clock.now());
                self.stage = Stage::Pushing(Box::new(pushing));
                return Responded::Begun;
            }
            (body, _) => {
                // A reader is not needed. If it has the request's content, it returns that now.
                drop(body);
                if let Some(returns) = stream {
                    self.end_stream(returns.take(), buffers, config);
                }
                self.messages.write_done();
                self.settle(!buffers.input.is_empty());
            }
        }
        Responded::Encoded
    }

    /// Counts a descriptor as long as the body is sent, if it is sent piece by piece.
    pub(crate) fn keep_descriptor(&mut self, held: HeldDescriptor) {
        if let Stage::Sending(sending) = &mut self.stage {
            sending.held = Some(held);
        }
    }

    /// Returns the route whose code [`pump`](Self::pump) runs.
    pub(crate) fn sending_route(&self) -> Option<Route> {
        match &self.stage {
            Stage::Sending(sending) => Some(sending.route),
            _ => None,
        }
    }

    /// Reads the next piece of the response body into the output. This runs the program's code.
    /// Returns the error if the reader failed and the response was aborted.
    pub(crate) fn pump(
        &mut self,
        bytes_max: usize,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) -> Option<io::Error> {
        let Stage::Sending(sending) = &mut self.stage else { return None };
        let Buffers { output, scratch, .. } = buffers;
        if scratch.len() < PUMP_BYTES {
            scratch.resize(PUMP_BYTES, 0);
        }
        let wanted = match sending.framing {
            SendFraming::Length { left } => usize::try_from(left).unwrap_or(bytes_max),
            SendFraming::Chunked | SendFraming::UntilClose => bytes_max,
        };
        let wanted = wanted.min(bytes_max).min(PUMP_BYTES);
        let result = if wanted == 0 {
            Ok(0)
        } else {
            read_some(sending.source.reader(), &mut scratch[..wanted])
        };
        let piece = match result {
            Ok(read) => scratch.get(..read).unwrap_or_default(),
            Err(error) => {
                self.break_off();
                return Some(error);
            }
        };
        match sending.framing.encode(piece, output) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                self.break_off();
                return Some(error);
            }
        }
        let stream = sending.stream.take();
        // Drops the reader, and with it the stream that it may have been reading.
        self.stage = Stage::Head;
        if let Some(returns) = stream {
            self.end_stream(returns.take(), buffers, config);
        }
        self.messages.write_done();
        self.settle(!buffers.input.is_empty());
        None
    }

    /// Called when the peer does not take what it is sent: what the reader keeps is charged until
    /// the body is sent. Returns the number of these bytes.
    #[cold]
    pub(crate) fn charge_reader(&mut self, account: &Arc<Account>) -> usize {
        let Stage::Sending(sending) = &mut self.stage else { return 0 };
        sending.charge.set(account, sending.reader_memory);
        sending.reader_memory
    }

    /// Ends the connection so that the peer does not take the response for complete.
    pub(crate) fn break_off(&mut self) {
        self.close(CloseReason::Error, false);
    }

    /// Returns whether the body's reader may read the request's content, so that both directions
    /// are active.
    pub(crate) fn sends_what_it_receives(&self) -> bool {
        matches!(&self.stage, Stage::Sending(sending) if sending.stream.is_some())
    }
}

fn length_of(body: &ResponseBody) -> ContentLength {
    match body {
        ResponseBody::Empty => ContentLength::Known(0),
        ResponseBody::Bytes(bytes) => ContentLength::Known(bytes.len() as u64),
        ResponseBody::Sized { length, .. } | ResponseBody::File { length, .. } => {
            ContentLength::Known(*length)
        }
        ResponseBody::Unsized(_) | ResponseBody::Pushed(_) => ContentLength::Unknown,
    }
}

fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
