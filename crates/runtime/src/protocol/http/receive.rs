//! The content of a request: collected, handed over to be streamed, or skipped.

use std::time::Instant;

use filoplume_http1::{ContentDecoder, Framing, ParseError};

use super::{Http, Skipping, Stage, Step, Streaming};
use crate::buffers::{Buffers, Content};
use crate::clock::Pace;
use crate::config::ServerConfig;
use crate::execution::key::Route;
use crate::service;
use crate::service::body::{Body, StreamLeft};
use crate::service::request::Request;

/// A request whose content is being collected.
#[derive(Debug)]
pub(super) struct Receiving {
    request: Request,
    route: Route,
    decoder: ContentDecoder,
    content: Content,
    /// How much is collected; beyond it the content is streamed, if the plan lets it.
    bytes_max: u64,
    may_stream: bool,
    pace: Pace,
}

impl Receiving {
    pub(super) fn deadline(&self) -> Instant {
        self.pace.deadline()
    }
}

impl Http {
    /// Begins the content of a request, as planned. Only for one that has a content.
    pub(crate) fn begin_content(
        &mut self,
        request: Request,
        route: Route,
        plan: &service::Content,
        content_bytes_max: u64,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) {
        let framing = request.head().framing();
        let is_streamed = matches!(plan, service::Content::Streamed);
        let may_stream = is_streamed || matches!(plan, service::Content::Any);
        let buffered_max = config.buffered_content_bytes_max.min(content_bytes_max);
        let accepted_max = if may_stream { content_bytes_max } else { buffered_max };
        let decoder = match ContentDecoder::new(framing, accepted_max, &config.limits) {
            Ok(decoder) => decoder,
            Err(error) => {
                self.messages.content_refused(error);
                self.refuse(error, buffers);
                return;
            }
        };
        // What has arrived entirely needs no stream, whatever the plan.
        let arrived = buffers.input.unread().len() as u64;
        let is_here = matches!(framing, Framing::Length(length) if length <= arrived);
        let is_long = matches!(framing, Framing::Length(length) if length > buffered_max);
        let bytes_max = if !is_here && (is_streamed || is_long) { 0 } else { buffered_max };
        let pace = Pace::new(buffers.clock.now(), config.content_timeout, config.bytes_per_second_min);
        let content = Content::default();
        self.stage = Stage::Receiving(Box::new(Receiving {
            request,
            route,
            decoder,
            content,
            bytes_max,
            may_stream,
            pace,
        }));
    }

    /// Collects what is at hand.
    pub(super) fn receive(&mut self, buffers: &mut Buffers) -> Step {
        let Stage::Receiving(receiving) = &mut self.stage else { return Step::Again };
        if let Some(length) = receiving.decoder.remaining_length() {
            let arrived = buffers.input.unread().len();
            if arrived as u64 >= length && receiving.content.is_empty() {
                // The whole content lies in the input: it moves without a copy.
                let length = usize::try_from(length).unwrap_or(arrived);
                receiving.content = buffers.input.split_content(length);
                return self.call();
            }
        }
        loop {
            if receiving.content.len() as u64 > receiving.bytes_max || receiving.bytes_max == 0 {
                return self.stream(buffers);
            }
            match receiving.decoder.decode(buffers.input.unread()) {
                Ok(decoded) => {
                    receiving.content.extend(buffers.input.unread().get(decoded.data).unwrap_or_default());
                    receiving.pace.advance(decoded.consumed, buffers.clock.now());
                    buffers.input.consume(decoded.consumed);
                    if receiving.decoder.is_complete() {
                        return self.call();
                    }
                    if decoded.consumed == 0 {
                        self.messages.write_continue(&mut buffers.output);
                        return Step::Read;
                    }
                }
                Err(error) => {
                    self.refuse_content(error, buffers);
                    return Step::Again;
                }
            }
        }
    }

    /// Where the next read should go, if the content takes it as it comes: no copy, no second look.
    pub(crate) fn content_spare(&mut self) -> Option<&mut [u8]> {
        let Stage::Receiving(receiving) = &mut self.stage else { return None };
        let remaining = receiving.decoder.remaining_length()?;
        if remaining < DIRECT_BYTES_MIN || receiving.bytes_max == 0 {
            return None;
        }
        let expected = usize::try_from(remaining).ok()?.checked_add(receiving.content.len())?;
        Some(receiving.content.spare(expected))
    }

    /// Takes note of what was read into [`content_spare`](Self::content_spare).
    pub(crate) fn content_filled(&mut self, read: usize, now: Instant) {
        let Stage::Receiving(receiving) = &mut self.stage else { return };
        let before = receiving.content.len();
        receiving.content.filled(read);
        let new = receiving.content.as_slice().get(before..).unwrap_or_default();
        // Of a content with a length every byte within it is data: decoding only counts.
        let decoded = receiving.decoder.decode(new);
        debug_assert!(decoded.is_ok_and(|decoded| decoded.consumed == read), "read beyond the content");
        receiving.pace.advance(read, now);
    }

    fn call(&mut self) -> Step {
        let Stage::Receiving(receiving) = std::mem::replace(&mut self.stage, Stage::Head) else {
            return Step::Again;
        };
        let Receiving { mut request, route, content, .. } = *receiving;
        self.messages.content_done();
        request.set_body(Body::from_content(content));
        Step::Call(request, route)
    }

    /// The content is too long to collect: the handler reads it, or nobody does.
    fn stream(&mut self, buffers: &mut Buffers) -> Step {
        let Stage::Receiving(receiving) = std::mem::replace(&mut self.stage, Stage::Head) else {
            return Step::Again;
        };
        let Receiving { request, route, decoder, content, may_stream, .. } = *receiving;
        if !may_stream {
            self.refuse_content(ParseError::ContentTooLong, buffers);
            return Step::Again;
        }
        let owes_continue =
            request.head().expects_continue() && buffers.input.is_empty() && content.is_empty();
        Step::Stream(Box::new(Streaming { request, route, decoder, prefix: content, owes_continue }))
    }

    /// Takes a content back that was to be streamed: earlier answers have to be taken by the peer first.
    pub(crate) fn stream_later(&mut self, streaming: Streaming, now: Instant, config: &ServerConfig) {
        let Streaming { request, route, decoder, prefix: content, owes_continue: _ } = streaming;
        let pace = Pace::new(now, config.content_timeout, config.bytes_per_second_min);
        let (bytes_max, may_stream) = (0, true);
        let receiving = Receiving { request, route, decoder, content, bytes_max, may_stream, pace };
        self.stage = Stage::Receiving(Box::new(receiving));
    }

    fn refuse_content(&mut self, error: ParseError, buffers: &mut Buffers) {
        self.messages.content_refused(error);
        self.refuse(error, buffers);
    }

    /// Takes back what a stream left, after the response. `None`: somebody still reads, or the
    /// stream failed: there is no way to go on.
    pub(crate) fn end_stream(
        &mut self,
        left: Option<StreamLeft>,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) {
        let Some(left) = left else {
            self.messages.content_abandoned();
            return;
        };
        // The handler may have taken its time: it does not count against the peer.
        buffers.clock.refresh();
        let mut unread = left.unread;
        unread.extend_from_slice(buffers.input.unread());
        buffers.input.load(Content::of(unread));
        if left.decoder.is_complete() {
            self.messages.content_done();
        } else if left.is_stuck {
            self.messages.content_abandoned();
        } else {
            self.leave_content(left.decoder, buffers, config);
        }
    }

    /// The response was given without the content being read.
    pub(crate) fn leave_unread(&mut self, request: &Request, buffers: &Buffers, config: &ServerConfig) {
        let framing = request.head().framing();
        if !framing.has_content() {
            return;
        }
        // The peer waits for a word: whether it sends its content after a final status is its own guess (RFC 9110, 10.1.1).
        let waits = request.head().expects_continue() && buffers.input.is_empty();
        match ContentDecoder::new(framing, config.unread_content_bytes_max, &config.limits) {
            Ok(decoder) if !waits => self.leave_content(decoder, buffers, config),
            _ => self.messages.content_abandoned(),
        }
    }

    fn leave_content(&mut self, decoder: ContentDecoder, buffers: &Buffers, config: &ServerConfig) {
        let bytes_left = config.unread_content_bytes_max;
        if decoder.remaining_length().is_some_and(|length| length > bytes_left) {
            self.messages.content_abandoned();
            return;
        }
        let pace = Pace::new(buffers.clock.now(), config.content_timeout, config.bytes_per_second_min);
        self.skipping = Some(Box::new(Skipping { decoder, bytes_left, pace }));
    }

    pub(super) fn skip(&mut self, buffers: &mut Buffers) -> Step {
        let Stage::Skipping(skipping) = &mut self.stage else { return Step::Again };
        loop {
            let Ok(decoded) = skipping.decoder.decode(buffers.input.unread()) else {
                break self.messages.content_abandoned();
            };
            buffers.input.consume(decoded.consumed);
            skipping.pace.advance(decoded.consumed, buffers.clock.now());
            if skipping.decoder.is_complete() {
                break self.messages.content_done();
            }
            let Some(left) = skipping.bytes_left.checked_sub(decoded.consumed as u64) else {
                break self.messages.content_abandoned();
            };
            skipping.bytes_left = left;
            if decoded.consumed == 0 {
                return Step::Read;
            }
        }
        self.settle(!buffers.input.is_empty());
        Step::Again
    }
}

/// Below this a read goes to the input, where the next request may follow in the same read.
const DIRECT_BYTES_MIN: u64 = 4096;
