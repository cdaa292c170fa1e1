//! Reads messages from the bytes of a peer, wherever the network splits them.

use std::ops::Range;
use std::str;

use crate::close::{CloseCode, CloseFrame};
#[cfg(feature = "deflate")]
use crate::deflate::{DeflateParams, Inflater};
use crate::error::ProtocolError;
use crate::frame::{FrameHead, Opcode};
use crate::limits::Limits;
use crate::mask::apply_mask;
use crate::role::Role;

/// What a peer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A text message.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
    /// A ping. It is answered with a pong that has the same content.
    Ping(&'a [u8]),
    /// A pong: the answer to a ping, or an unsolicited heartbeat.
    Pong(&'a [u8]),
    /// The peer closes the connection, or confirms the close. Nothing follows. The value is `None`
    /// if the frame has no content.
    Close(Option<CloseFrame<'a>>),
}

/// Reads messages from the bytes of a peer.
///
/// The caller passes what has arrived and removes what was used. Content is unmasked in the
/// caller's buffer. A message that arrived in one piece is returned from that buffer. The pieces of
/// any other message are collected in the decoder.
///
/// ```
/// use filoplume_websocket::{Decoder, Event, Limits, Role};
///
/// let mut decoder = Decoder::new(Role::Client, Limits::default());
/// let mut input = *b"\x81\x05Hello\x89\x00";
/// assert_eq!(decoder.receive(&mut input)?, (7, Some(Event::Text("Hello"))));
/// assert_eq!(decoder.receive(&mut input[7..])?, (2, Some(Event::Ping(b""))));
/// # Ok::<(), filoplume_websocket::ProtocolError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    limits: Limits,
    reading: Reading,
    /// Whether messages are skipped.
    skips_messages: bool,
    /// The message that is not complete yet.
    message: Option<Message>,
    /// What has arrived of the message, or the message that was returned last.
    content: Vec<u8>,
    #[cfg(feature = "deflate")]
    /// Boxed, because most sockets have none.
    inflater: Option<Box<Inflater>>,
}

/// What the next bytes are.
#[derive(Debug)]
enum Reading {
    Head,
    Content(Frame),
    /// After a close frame or an error. Further input is discarded.
    Closed,
}

/// A data frame whose content is arriving.
#[derive(Debug)]
struct Frame {
    is_final: bool,
    mask: Option<[u8; 4]>,
    mask_offset: usize,
    left: u64,
}

#[derive(Debug)]
struct Message {
    is_text: bool,
    is_compressed: bool,
    fragments: usize,
    /// How many bytes of a text are known to be UTF-8.
    valid: usize,
}

/// An event as positions in the buffers. Only the returned [`Event`] borrows from them.
enum Ready {
    /// A message that lies in the input.
    Whole(Opcode, Range<usize>),
    /// The message in `content`.
    Collected { is_text: bool },
    /// A control frame that lies in the input.
    Control(Opcode, Range<usize>),
}

impl Decoder {
    /// Returns a decoder for the given end of a connection. A server reads masked frames, a client
    /// reads unmasked ones.
    pub const fn new(role: Role, limits: Limits) -> Self {
        Self {
            role,
            limits,
            reading: Reading::Head,
            skips_messages: false,
            message: None,
            content: Vec::new(),
            #[cfg(feature = "deflate")]
            inflater: None,
        }
    }

    /// Returns the decoder of a server.
    pub const fn server(limits: Limits) -> Self {
        Self::new(Role::Server, limits)
    }

    /// Accepts compressed messages, with the negotiated parameters.
    #[cfg(feature = "deflate")]
    #[must_use]
    pub fn with_deflate(mut self, params: &DeflateParams) -> Self {
        self.inflater = Some(Box::new(Inflater::new(self.role, params)));
        self
    }

    /// Reads up to the next event. Returns how many bytes were used and the event, or `None` if
    /// more bytes are needed.
    ///
    /// Unused bytes have to be passed again, followed by more. If there is no event, they are an
    /// incomplete frame head or an incomplete control frame, 139 bytes at most. After a close frame
    /// everything is discarded.
    ///
    /// # Errors
    ///
    /// Returns what the peer did wrong. The connection is closed with
    /// [`ProtocolError::close_code`]; further bytes are discarded.
    pub fn receive<'a>(
        &'a mut self,
        input: &'a mut [u8],
    ) -> Result<(usize, Option<Event<'a>>), ProtocolError> {
        let (used, ready) = match self.advance(input) {
            Ok(advanced) => advanced,
            Err(error) => {
                self.discard();
                return Err(error);
            }
        };
        let Some(ready) = ready else {
            return Ok((used, None));
        };
        let result = match ready {
            Ready::Whole(opcode, range) => {
                let content = input.get(range).unwrap_or_default();
                message(opcode == Opcode::Text, content)
            }
            Ready::Collected { is_text } => message(is_text, &self.content),
            Ready::Control(opcode, range) => {
                let content = input.get(range).unwrap_or_default();
                match opcode {
                    Opcode::Ping => Ok(Event::Ping(content)),
                    Opcode::Pong => Ok(Event::Pong(content)),
                    _ => {
                        self.reading = Reading::Closed;
                        close(content).map(Event::Close)
                    }
                }
            }
        };
        match result {
            Ok(event) => Ok((used, Some(event))),
            Err(error) => {
                self.reading = Reading::Closed;
                Err(error)
            }
        }
    }

    /// Frees the memory of the message that was returned last. Call it when the connection becomes
    /// idle, so that a connection without traffic holds no buffer.
    pub fn release(&mut self) {
        if self.message.is_none() {
            self.content = Vec::new();
        }
    }

    /// Discards everything from now on, and frees the memory of an incomplete message. Call it when
    /// the connection is closed before a close frame of the peer has arrived.
    pub fn discard(&mut self) {
        self.reading = Reading::Closed;
        self.message = None;
        self.free();
    }

    /// Skips messages from now on: they are not inflated, not checked and not returned. Call it
    /// when a close frame was sent (RFC 6455, section 1.4): only the close frame of the peer is
    /// awaited, and what it sends before that should cost nothing. Control frames are returned as
    /// before.
    ///
    /// ```
    /// use filoplume_websocket::{Decoder, Event, Limits, Role};
    ///
    /// let mut decoder = Decoder::new(Role::Client, Limits::default());
    /// decoder.skip_messages();
    /// let mut input = *b"\x81\x05Hello\x88\x00";
    /// assert_eq!(decoder.receive(&mut input)?, (9, Some(Event::Close(None))));
    /// # Ok::<(), filoplume_websocket::ProtocolError>(())
    /// ```
    pub fn skip_messages(&mut self) {
        self.skips_messages = true;
        self.free();
    }

    /// Frees the memory of messages. No further one may be inflated.
    fn free(&mut self) {
        self.content = Vec::new();
        #[cfg(feature = "deflate")]
        if let Some(inflater) = &mut self.inflater {
            inflater.release();
        }
    }

    /// Returns how many bytes of memory the decoder holds for an incomplete message, or for the
    /// message that was returned last. A compressed message that is incomplete also holds its
    /// decompressor, 48 KiB.
    pub fn held_bytes(&self) -> usize {
        #[cfg(feature = "deflate")]
        if let (Some(Message { is_compressed: true, .. }), Some(inflater)) =
            (&self.message, &self.inflater)
        {
            return self.content.capacity().saturating_add(inflater.held_bytes());
        }
        self.content.capacity()
    }

    /// Returns whether a message has begun and is not complete.
    pub const fn is_within_message(&self) -> bool {
        self.message.is_some()
    }

    fn advance(&mut self, input: &mut [u8]) -> Result<(usize, Option<Ready>), ProtocolError> {
        let mut used = 0_usize;
        loop {
            let rest = input.get_mut(used..).unwrap_or_default();
            match &mut self.reading {
                Reading::Closed => return Ok((input.len(), None)),
                Reading::Head => {
                    let Some((head, head_bytes)) = FrameHead::parse(rest)? else {
                        return Ok((used, None));
                    };
                    self.check_head(&head)?;
                    let (_, content) = rest.split_at_mut_checked(head_bytes).unwrap_or_default();
                    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
                    let whole = content.get_mut(..length);
                    let start = used.saturating_add(head_bytes);
                    let range = start..start.saturating_add(length);
                    if head.opcode.is_control() {
                        let Some(content) = whole else {
                            return Ok((used, None));
                        };
                        unmask(content, head.mask, 0);
                        return Ok((range.end, Some(Ready::Control(head.opcode, range))));
                    }
                    if let (Some(content), true) = (whole, self.is_plain_message(&head)) {
                        if self.skips_messages {
                            used = range.end;
                            continue;
                        }
                        unmask(content, head.mask, 0);
                        return Ok((range.end, Some(Ready::Whole(head.opcode, range))));
                    }
                    self.begin(&head)?;
                    used = start;
                }
                Reading::Content(frame) => {
                    let left = usize::try_from(frame.left).unwrap_or(usize::MAX);
                    let length = left.min(rest.len());
                    let piece = rest.get_mut(..length).unwrap_or_default();
                    if !self.skips_messages {
                        unmask(piece, frame.mask, frame.mask_offset);
                    }
                    frame.mask_offset = frame.mask_offset.wrapping_add(length);
                    frame.left = frame.left.saturating_sub(length as u64);
                    used = used.saturating_add(length);
                    let (complete, is_final) = (frame.left == 0, frame.is_final);
                    self.append(piece)?;
                    if !complete {
                        return Ok((used, None));
                    }
                    self.reading = Reading::Head;
                    if is_final && self.skips_messages {
                        self.message = None;
                    } else if is_final {
                        let is_text = self.finish()?;
                        return Ok((used, Some(Ready::Collected { is_text })));
                    }
                }
            }
        }
    }

    /// Checks the rules that depend on the role, the extensions, the limits and the earlier frames.
    fn check_head(&self, head: &FrameHead) -> Result<(), ProtocolError> {
        let begins = matches!(head.opcode, Opcode::Text | Opcode::Binary);
        let allowed = if begins && self.is_deflating() { FrameHead::COMPRESSED } else { 0 };
        if head.reserved & !allowed != 0 {
            return Err(ProtocolError::ReservedBits);
        }
        match (self.role, head.mask) {
            (Role::Server, None) => return Err(ProtocolError::MaskMissing),
            (Role::Client, Some(_)) => return Err(ProtocolError::MaskUnexpected),
            _ => {}
        }
        if head.opcode.is_control() {
            return Ok(());
        }
        let (fragments, held, is_compressed) = match &self.message {
            None if !begins => return Err(ProtocolError::ContinuationUnexpected),
            Some(_) if begins => return Err(ProtocolError::ContinuationMissing),
            None => (0, 0, head.reserved != 0),
            Some(message) => (message.fragments, self.content.len(), message.is_compressed),
        };
        if head.length > self.limits.frame_bytes_max as u64 {
            return Err(ProtocolError::FrameTooLong);
        }
        let bytes = (held as u64).saturating_add(head.length);
        if !is_compressed && bytes > self.limits.message_bytes_max as u64 {
            return Err(ProtocolError::MessageTooLong);
        }
        // A limit of 0 still admits the first frame of a message, which is a fragment only if
        // others follow.
        if fragments >= self.limits.fragments_max.max(1) {
            return Err(ProtocolError::TooManyFragments);
        }
        Ok(())
    }

    #[cfg(feature = "deflate")]
    const fn is_deflating(&self) -> bool {
        self.inflater.is_some()
    }

    #[cfg(not(feature = "deflate"))]
    #[allow(clippy::unused_self, reason = "as with the feature")]
    const fn is_deflating(&self) -> bool {
        false
    }

    /// Whether the frame is a message that can be returned from the input.
    const fn is_plain_message(&self, head: &FrameHead) -> bool {
        self.message.is_none() && head.is_final && head.reserved == 0
    }

    fn begin(&mut self, head: &FrameHead) -> Result<(), ProtocolError> {
        match &mut self.message {
            Some(message) => message.fragments = message.fragments.saturating_add(1),
            None => {
                self.content.clear();
                self.message = Some(Message {
                    is_text: head.opcode == Opcode::Text,
                    is_compressed: head.reserved & FrameHead::COMPRESSED != 0,
                    fragments: 1,
                    valid: 0,
                });
            }
        }
        self.reading = Reading::Content(Frame {
            is_final: head.is_final,
            mask: head.mask,
            mask_offset: 0,
            left: head.length,
        });
        Ok(())
    }

    /// Adds content to the current message, and checks what is new.
    fn append(&mut self, piece: &[u8]) -> Result<(), ProtocolError> {
        let Some(message) = self.message.as_mut().filter(|_| !self.skips_messages) else {
            return Ok(());
        };
        #[cfg(feature = "deflate")]
        if let (true, Some(inflater)) = (message.is_compressed, &mut self.inflater) {
            let bytes_max = self.limits.message_bytes_max;
            let inflated = inflater.inflate(piece, &mut self.content, bytes_max);
            // An error in the text is reported before an error in later bytes, wherever the bytes
            // are split.
            message.check_text(self.content.get(..bytes_max).unwrap_or(&self.content))?;
            return inflated;
        }
        self.content.extend_from_slice(piece);
        message.check_text(&self.content)
    }

    /// Ends the current message. Returns whether it is a text.
    fn finish(&mut self) -> Result<bool, ProtocolError> {
        let Some(mut message) = self.message.take() else {
            return Ok(false);
        };
        #[cfg(feature = "deflate")]
        if let (true, Some(inflater)) = (message.is_compressed, &mut self.inflater) {
            let bytes_max = self.limits.message_bytes_max;
            let inflated = inflater.finish(&mut self.content, bytes_max);
            message.check_text(self.content.get(..bytes_max).unwrap_or(&self.content))?;
            inflated?;
        }
        if message.is_text && message.valid != self.content.len() {
            return Err(ProtocolError::TextInvalid);
        }
        message.valid = 0;
        Ok(message.is_text)
    }
}

impl Message {
    /// Checks the part of a text that is new. A character may still be incomplete at its end.
    fn check_text(&mut self, content: &[u8]) -> Result<(), ProtocolError> {
        if !self.is_text {
            return Ok(());
        }
        let new = content.get(self.valid..).unwrap_or_default();
        let valid = match str::from_utf8(new) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(ProtocolError::TextInvalid),
        };
        self.valid = self.valid.saturating_add(valid);
        Ok(())
    }
}

fn unmask(content: &mut [u8], mask: Option<[u8; 4]>, offset: usize) {
    if let Some(key) = mask {
        apply_mask(content, key, offset);
    }
}

fn message(is_text: bool, content: &[u8]) -> Result<Event<'_>, ProtocolError> {
    if is_text {
        let text = str::from_utf8(content).map_err(|_| ProtocolError::TextInvalid)?;
        return Ok(Event::Text(text));
    }
    Ok(Event::Binary(content))
}

fn close(content: &[u8]) -> Result<Option<CloseFrame<'_>>, ProtocolError> {
    if content.is_empty() {
        return Ok(None);
    }
    let Some((code, reason)) = content.split_first_chunk::<2>() else {
        return Err(ProtocolError::CloseTooShort);
    };
    let code = CloseCode::new(u16::from_be_bytes(*code)).ok_or(ProtocolError::CloseCodeInvalid)?;
    let reason = str::from_utf8(reason).map_err(|_| ProtocolError::CloseReasonInvalid)?;
    Ok(Some(CloseFrame { code, reason }))
}

#[cfg(all(test, feature = "deflate"))]
mod tests;
