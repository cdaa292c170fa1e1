//! The content of a request: collected, handed over to be streamed, or skipped.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use filoplume_http1::{ContentDecoder, Framing, ParseError};

#[cfg(feature = "spool")]
use super::spool::Spooling;
use super::{Http, Skipping, Stage, Step, Streaming};
use crate::budget::account::{Account, Charge};
#[cfg(feature = "spool")]
use crate::budget::clients::ClientConnection;
use crate::budget::refusal::Refusal;
#[cfg(feature = "spool")]
use crate::budget::spool::SpoolSpace;
use crate::buffers::{Buffers, Content};
use crate::clock::Pace;
use crate::config::ServerConfig;
use crate::execution::key::Route;
use crate::service;
use crate::service::body::{Body, StreamLeft, Streamed};
use crate::service::incomplete::Arrived;
use crate::service::request::Request;

/// A request whose content is being collected.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) request: Request,
    route: Route,
    pub(super) decoder: ContentDecoder,
    pub(super) content: Content,
    /// The content's share of the memory budget.
    pub(super) charge: Charge,
    /// The head's share, charged when the request waits. That never fails: a content that comes
    /// right behind its head is accepted even if all memory is used.
    head_charge: Charge,
    /// Maximum number of collected bytes.
    pub(super) bytes_max: u64,
    pub(super) beyond: Beyond,
    pub(super) pace: Pace,
}

/// What becomes of a content that is longer than what is collected.
#[derive(Debug)]
pub(super) enum Beyond {
    Refused,
    Streamed,
    #[cfg(feature = "spool")]
    Spooled(Spooling),
}

impl Receiving {
    pub(super) fn deadline(&self) -> Instant {
        self.pace.deadline()
    }

    pub(super) fn pressed_deadline(&self) -> Instant {
        self.pace.pressed_deadline()
    }

    /// Returns the deadline that applies while disk space is short. `None` means that no part of
    /// the content is in a file.
    pub(super) fn deadline_while_disk_short(&self) -> Option<Instant> {
        match &self.beyond {
            Beyond::Refused | Beyond::Streamed => None,
            #[cfg(feature = "spool")]
            Beyond::Spooled(spooling) => {
                Some(spooling.deadline_while_short()?.min(self.pressed_deadline()))
            }
        }
    }

    /// Returns the length of the whole content, or of what is not in a file yet, if it is known.
    fn expected(&self) -> Option<usize> {
        let remaining = usize::try_from(self.decoder.remaining_length()?).ok()?;
        Some(remaining.saturating_add(self.content.len()))
    }

    /// Called before the request waits for its content, or for a thread that writes it to a file.
    pub(super) fn charge_head(&mut self) {
        self.head_charge.set_beside(&self.charge, self.request.head().memory());
    }
}

impl Beyond {
    /// Returns whether a part of the content is in a file already.
    pub(super) fn has_file(&self) -> bool {
        match self {
            Self::Refused | Self::Streamed => false,
            #[cfg(feature = "spool")]
            Self::Spooled(spooling) => spooling.has_file(),
        }
    }

    /// Returns how many bytes of the content will be in memory, if that is known.
    fn in_memory(&self, decoder: &ContentDecoder) -> Option<u64> {
        let length = decoder.remaining_length();
        match self {
            Self::Refused | Self::Streamed => length,
            #[cfg(feature = "spool")]
            Self::Spooled(_) => length.map(|length| length.min(super::spool::PART_BYTES)),
        }
    }

    /// Returns the body if it is in a file.
    fn into_body(self) -> Option<io::Result<Body>> {
        match self {
            Self::Refused | Self::Streamed => None,
            #[cfg(feature = "spool")]
            Self::Spooled(spooling) => spooling.into_body(),
        }
    }
}

/// How a content is received, as the plan or otherwise the server's configuration says.
#[derive(Debug)]
pub(crate) struct ContentPlan<'a> {
    plan: &'a service::Content,
    content_bytes_max: u64,
    buffered_bytes_max: u64,
    /// Whether threads are scarce. If so, more is collected before a handler starts.
    is_crowded: bool,
    account: &'a Arc<Account>,
    /// The disk space, and the client that it is for.
    #[cfg(feature = "spool")]
    pub(super) disk: Option<(&'a SpoolSpace, Option<&'a Arc<ClientConnection>>)>,
}

/// How much of a long content must have arrived before its handler starts. A peer that sends
/// nothing costs no thread.
const STREAM_START_BYTES: u64 = 64 * 1024;

impl<'a> ContentPlan<'a> {
    pub(crate) fn of(
        plan: &'a service::Plan,
        config: &ServerConfig,
        is_crowded: bool,
        account: &'a Arc<Account>,
    ) -> Self {
        Self {
            plan: &plan.content,
            content_bytes_max: plan.content_bytes_max.unwrap_or(config.content_bytes_max),
            buffered_bytes_max: plan
                .buffered_content_bytes_max
                .unwrap_or(config.buffered_content_bytes_max),
            is_crowded,
            account,
            #[cfg(feature = "spool")]
            disk: None,
        }
    }

    fn beyond(&self) -> Beyond {
        match self.plan {
            service::Content::Streamed | service::Content::Any => Beyond::Streamed,
            #[cfg(feature = "spool")]
            service::Content::Spooled => Beyond::Spooled(Spooling::default()),
            service::Content::Buffered | service::Content::Refused(_) => Beyond::Refused,
        }
    }

    /// Returns how many bytes are collected before the handler starts.
    fn collected_max(&self, framing: Framing, is_here: bool, expects_continue: bool) -> u64 {
        let buffered = self.buffered_bytes_max.min(self.content_bytes_max);
        let is_long = matches!(framing, Framing::Length(length) if length > buffered);
        match self.plan {
            #[cfg(feature = "spool")]
            service::Content::Spooled => super::spool::collected_max(is_long, buffered),
            _ if is_here || self.is_crowded => buffered,
            service::Content::Streamed => 0,
            // The handler may refuse the content, so `100 Continue` is sent only when the handler
            // reads.
            _ if is_long && expects_continue => 0,
            _ if is_long => buffered.min(STREAM_START_BYTES),
            _ => buffered,
        }
    }
}

impl Http {
    /// Begins to receive the content of a request as planned. The request must have a content.
    pub(crate) fn begin_content(
        &mut self,
        request: Request,
        route: Route,
        content_plan: &ContentPlan<'_>,
        buffers: &mut Buffers,
        config: &ServerConfig,
    ) {
        let framing = request.head().framing();
        let beyond = content_plan.beyond();
        let buffered_max = content_plan.buffered_bytes_max.min(content_plan.content_bytes_max);
        let accepted_max = match beyond {
            Beyond::Refused => buffered_max,
            _ => content_plan.content_bytes_max,
        };
        let decoder = match ContentDecoder::new(framing, accepted_max, &config.limits) {
            Ok(decoder) => decoder,
            Err(error) => {
                return self.refuse_content(error, request);
            }
        };
        // A content that has arrived completely needs no stream, whatever the plan says.
        let arrived = buffers.input.unread().len() as u64;
        let is_here = matches!(framing, Framing::Length(length) if length <= arrived);
        let bytes_max =
            content_plan.collected_max(framing, is_here, request.head().expects_continue());
        let is_collected = bytes_max > 0 && !is_here;
        if is_collected && !content_plan.account.may_begin(beyond.in_memory(&decoder)) {
            self.messages.content_abandoned();
            self.stage = Stage::Refusing(Box::new(request), Refusal::Memory);
            return;
        }
        #[cfg(feature = "spool")]
        if !is_here && !content_plan.fits_on_disk(&beyond, &decoder, bytes_max) {
            self.messages.content_abandoned();
            self.stage = Stage::Refusing(Box::new(request), Refusal::Spool);
            return;
        }
        let pace =
            Pace::new(buffers.clock.now(), config.content_timeout, config.bytes_per_second_min);
        self.stage = Stage::Receiving(Box::new(Receiving {
            request,
            route,
            decoder,
            content: Content::default(),
            charge: Charge::of(content_plan.account),
            head_charge: Charge::default(),
            bytes_max,
            beyond,
            pace,
        }));
    }

    /// Collects the content from the buffered input.
    pub(super) fn receive(&mut self, buffers: &mut Buffers) -> Step {
        let Stage::Receiving(receiving) = &mut self.stage else { return Step::Again };
        if let Some(length) = receiving.decoder.remaining_length() {
            let arrived = buffers.input.unread().len();
            let is_first = receiving.content.is_empty() && !receiving.beyond.has_file();
            if arrived as u64 >= length && is_first {
                // The whole content is in the input: it is split off without a copy.
                let length = usize::try_from(length).unwrap_or(arrived);
                receiving.content = buffers.input.split_content(length);
                return self.call();
            }
        }
        loop {
            if receiving.content.len() as u64 > receiving.bytes_max || receiving.bytes_max == 0 {
                return self.go_beyond(buffers);
            }
            let expected = receiving.expected();
            match receiving.decoder.decode(buffers.input.unread()) {
                Ok(decoded) => {
                    let data = buffers.input.unread().get(decoded.data).unwrap_or_default();
                    receiving.content.extend_expected(data, expected);
                    if !receiving.charge.try_set(receiving.content.capacity()) {
                        self.messages.content_abandoned();
                        if let Stage::Receiving(receiving) =
                            std::mem::replace(&mut self.stage, Stage::Head)
                        {
                            self.stage =
                                Stage::Refusing(Box::new(receiving.request), Refusal::Memory);
                        }
                        return Step::Again;
                    }
                    receiving.pace.advance(decoded.consumed, buffers.clock.now());
                    buffers.input.consume(decoded.consumed);
                    if receiving.decoder.is_complete() {
                        return self.complete();
                    }
                    if decoded.consumed == 0 {
                        receiving.charge_head();
                        self.messages.write_continue(&mut buffers.output);
                        return Step::Read;
                    }
                }
                // The handler gets the same error from its stream, and decides about the response.
                Err(ParseError::ContentTooLong) if matches!(receiving.beyond, Beyond::Streamed) => {
                    return self.stream(buffers);
                }
                Err(error) => {
                    if let Stage::Receiving(receiving) =
                        std::mem::replace(&mut self.stage, Stage::Head)
                    {
                        self.refuse_content(error, receiving.request);
                    }
                    return Step::Again;
                }
            }
        }
    }

    /// Returns the buffer for the next read if the content takes undecoded bytes. This avoids a
    /// copy.
    pub(crate) fn content_spare(&mut self) -> Option<&mut [u8]> {
        let Stage::Receiving(receiving) = &mut self.stage else { return None };
        let remaining = receiving.decoder.remaining_length()?;
        if remaining < DIRECT_BYTES_MIN || receiving.bytes_max == 0 {
            return None;
        }
        let expected = usize::try_from(remaining).ok()?.checked_add(receiving.content.len())?;
        #[cfg(feature = "spool")]
        let expected = receiving.at_once(expected);
        Some(receiving.content.spare(expected))
    }

    /// Records that `read` bytes were read into [`content_spare`](Self::content_spare).
    pub(crate) fn content_filled(&mut self, read: usize, now: Instant) {
        let Stage::Receiving(receiving) = &mut self.stage else { return };
        let before = receiving.content.len();
        receiving.content.filled(read);
        let new = receiving.content.as_slice().get(before..).unwrap_or_default();
        // A content with a length has no framing within it: decoding only counts bytes.
        let decoded = receiving.decoder.decode(new);
        debug_assert!(
            decoded.is_ok_and(|decoded| decoded.consumed == read),
            "read beyond the content"
        );
        receiving.pace.advance(read, now);
    }

    fn call(&mut self) -> Step {
        let Stage::Receiving(receiving) = std::mem::replace(&mut self.stage, Stage::Head) else {
            return Step::Again;
        };
        let Receiving { mut request, route, content, charge, beyond, .. } = *receiving;
        self.messages.content_done();
        match beyond.into_body() {
            Some(Ok(body)) => request.set_body(body),
            Some(Err(error)) => {
                tracing::error!(%error, "the file of a content cannot be read");
                self.stage = Stage::Refusing(Box::new(request), Refusal::Spool);
                return Step::Again;
            }
            None => request.set_body(Body::from_charged(content, charge)),
        }
        Step::Call(request, route)
    }

    /// Called when the content is complete. The last part of a long one is still in memory.
    fn complete(&mut self) -> Step {
        #[cfg(feature = "spool")]
        if self.has_unwritten() {
            return self.spool();
        }
        self.call()
    }

    /// Called when the content is too long to collect.
    fn go_beyond(&mut self, buffers: &mut Buffers) -> Step {
        #[cfg(feature = "spool")]
        if let Stage::Receiving(receiving) = &self.stage {
            if matches!(receiving.beyond, Beyond::Spooled(_)) {
                return self.spool();
            }
        }
        self.stream(buffers)
    }

    /// Streams the content to the handler, or refuses it.
    fn stream(&mut self, buffers: &mut Buffers) -> Step {
        let Stage::Receiving(receiving) = std::mem::replace(&mut self.stage, Stage::Head) else {
            return Step::Again;
        };
        let Receiving { request, route, decoder, content, charge, beyond, .. } = *receiving;
        if !matches!(beyond, Beyond::Streamed) {
            self.refuse_content(ParseError::ContentTooLong, request);
            return Step::Again;
        }
        let owes_continue =
            request.head().expects_continue() && buffers.input.is_empty() && content.is_empty();
        let content = Streamed { decoder, prefix: content, prefix_charge: charge, owes_continue };
        Step::Stream(Box::new(Streaming { request, route, content }))
    }

    /// Postpones the streaming of a content until the peer has taken earlier responses.
    pub(crate) fn stream_later(
        &mut self,
        streaming: Streaming,
        now: Instant,
        config: &ServerConfig,
    ) {
        let Streaming { request, route, content } = streaming;
        let Streamed { decoder, prefix: content, prefix_charge: charge, owes_continue: _ } =
            content;
        let pace = Pace::new(now, config.content_timeout, config.bytes_per_second_min);
        let mut receiving = Receiving {
            request,
            route,
            decoder,
            content,
            charge,
            head_charge: Charge::default(),
            bytes_max: 0,
            beyond: Beyond::Streamed,
            pace,
        };
        receiving.charge_head();
        self.stage = Stage::Receiving(Box::new(receiving));
    }

    /// Refuses a content, and its request with it.
    pub(crate) fn refuse_content(&mut self, error: ParseError, request: Request) {
        self.messages.content_refused(error);
        self.refuse(error, Arrived::Head(request));
    }

    /// Takes back the rest of a streamed content after the response. `None` means that the content
    /// is still being read or the stream has failed, so the connection cannot continue.
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
        // The time that the handler took does not count against the peer.
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

    /// Called before a response to a request whose content was not read.
    pub(crate) fn leave_unread(
        &mut self,
        request: &Request,
        buffers: &Buffers,
        config: &ServerConfig,
    ) {
        let framing = request.head().framing();
        if !framing.has_content() {
            return;
        }
        // The peer waits for `100 Continue`. It is not known whether it sends its content after a
        // final status (RFC 9110, section 10.1.1).
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
        let pace =
            Pace::new(buffers.clock.now(), config.content_timeout, config.bytes_per_second_min);
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

/// Shorter contents are read into the input, so that the next request may arrive in the same read.
const DIRECT_BYTES_MIN: u64 = 4096;
