//! Writes messages as frames.

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;

use crate::close::{CLOSE_REASON_BYTES_MAX, CloseFrame};
#[cfg(feature = "deflate")]
use crate::deflate::{DeflateOptions, DeflateParams, Deflater};
use crate::frame::{CONTROL_BYTES_MAX, FrameHead, Opcode};
use crate::mask::{MaskKeys, apply_mask};
use crate::role::Role;

/// Writes messages as frames.
///
/// ```
/// use filoplume_websocket::{Encoder, Role};
///
/// let mut encoder = Encoder::new(Role::Server);
/// let mut output = Vec::new();
/// encoder.text("Hello", &mut output);
/// assert_eq!(output, b"\x81\x05Hello");
/// ```
#[derive(Debug)]
pub struct Encoder {
    /// A client's keys; a server does not mask. Boxed, because servers have many sockets.
    keys: Option<Box<MaskKeys>>,
    fragment_bytes_max: Option<NonZeroUsize>,
    #[cfg(feature = "deflate")]
    /// Boxed, because most sockets have none.
    deflater: Option<Box<Deflater>>,
}

/// The content of a ping or pong is longer than 125 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlTooLong;

impl Encoder {
    /// Returns an encoder for the given end of a connection. A client masks its frames with keys
    /// that cannot be predicted.
    pub fn new(role: Role) -> Self {
        let keys = match role {
            Role::Server => None,
            Role::Client => Some(Box::new(MaskKeys::random())),
        };
        Self {
            keys,
            fragment_bytes_max: None,
            #[cfg(feature = "deflate")]
            deflater: None,
        }
    }

    /// Returns the encoder of a server.
    pub fn server() -> Self {
        Self::new(Role::Server)
    }

    /// Masks every frame with the same key, if this is a client. For tests and measurements: the
    /// key of a real client must not be predictable.
    #[must_use]
    pub fn with_fixed_mask(mut self, key: [u8; 4]) -> Self {
        self.keys = self.keys.map(|_| Box::new(MaskKeys::Fixed(key)));
        self
    }

    /// Splits longer messages into fragments of this size. By default a message is a single frame.
    #[must_use]
    pub fn with_fragments(mut self, bytes_max: NonZeroUsize) -> Self {
        self.fragment_bytes_max = Some(bytes_max);
        self
    }

    /// Compresses messages, with the negotiated parameters.
    #[cfg(feature = "deflate")]
    #[must_use]
    pub fn with_deflate(mut self, params: &DeflateParams, options: DeflateOptions) -> Self {
        let role = if self.keys.is_some() { Role::Client } else { Role::Server };
        self.deflater = Deflater::new(role, params, options).map(Box::new);
        self
    }

    /// Appends a text message to `output`.
    pub fn text(&mut self, text: &str, output: &mut Vec<u8>) {
        self.message(Opcode::Text, text.as_bytes(), output);
    }

    /// Appends a binary message to `output`.
    pub fn binary(&mut self, content: &[u8], output: &mut Vec<u8>) {
        self.message(Opcode::Binary, content, output);
    }

    /// Appends a ping to `output`. The peer answers with a pong that has the same content.
    ///
    /// # Errors
    ///
    /// Returns an error if the content is longer than 125 bytes.
    pub fn ping(&mut self, content: &[u8], output: &mut Vec<u8>) -> Result<(), ControlTooLong> {
        self.control(Opcode::Ping, content, output)
    }

    /// Appends a pong to `output`.
    ///
    /// # Errors
    ///
    /// Returns an error if the content is longer than 125 bytes.
    pub fn pong(&mut self, content: &[u8], output: &mut Vec<u8>) -> Result<(), ControlTooLong> {
        self.control(Opcode::Pong, content, output)
    }

    /// Appends a close frame to `output`. Nothing may be sent after it.
    ///
    /// A code that may not be sent is left out together with the reason. A reason that is longer
    /// than 123 bytes is cut.
    pub fn close(&mut self, frame: Option<CloseFrame<'_>>, output: &mut Vec<u8>) {
        let mut content = Vec::new();
        if let Some(frame) = frame.filter(|frame| frame.code.is_sendable()) {
            content.extend_from_slice(&frame.code.value().to_be_bytes());
            content.extend_from_slice(shorten(frame.reason).as_bytes());
        }
        self.frame(true, 0, Opcode::Close, &content, output);
    }

    fn control(
        &mut self,
        opcode: Opcode,
        content: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), ControlTooLong> {
        if content.len() > CONTROL_BYTES_MAX {
            return Err(ControlTooLong);
        }
        self.frame(true, 0, opcode, content, output);
        Ok(())
    }

    fn message(&mut self, opcode: Opcode, content: &[u8], output: &mut Vec<u8>) {
        #[cfg(feature = "deflate")]
        if let Some(mut deflater) = self.deflater.take() {
            deflater.deflate(content, |content, is_compressed| {
                let reserved = if is_compressed { FrameHead::COMPRESSED } else { 0 };
                self.fragments(opcode, reserved, content, output);
            });
            self.deflater = Some(deflater);
            return;
        }
        self.fragments(opcode, 0, content, output);
    }

    fn fragments(&mut self, opcode: Opcode, reserved: u8, content: &[u8], output: &mut Vec<u8>) {
        let bytes_max = self.fragment_bytes_max.map_or(usize::MAX, NonZeroUsize::get);
        if content.len() <= bytes_max {
            return self.frame(true, reserved, opcode, content, output);
        }
        let (mut opcode, mut reserved) = (opcode, reserved);
        let mut chunks = content.chunks(bytes_max).peekable();
        while let Some(chunk) = chunks.next() {
            self.frame(chunks.peek().is_none(), reserved, opcode, chunk, output);
            (opcode, reserved) = (Opcode::Continuation, 0);
        }
    }

    fn frame(
        &mut self,
        is_final: bool,
        reserved: u8,
        opcode: Opcode,
        content: &[u8],
        output: &mut Vec<u8>,
    ) {
        let mask = self.keys.as_mut().map(|keys| keys.next());
        output.reserve(content.len().saturating_add(FrameHead::BYTES_MAX));
        let length = content.len() as u64;
        FrameHead { is_final, reserved, opcode, mask, length }.encode(output);
        let start = output.len();
        output.extend_from_slice(content);
        if let (Some(key), Some(content)) = (mask, output.get_mut(start..)) {
            apply_mask(content, key, 0);
        }
    }
}

/// Cuts a reason between two characters, so that it fits into a control frame.
fn shorten(reason: &str) -> &str {
    let mut length = reason.len().min(CLOSE_REASON_BYTES_MAX);
    loop {
        if let Some(reason) = reason.get(..length) {
            return reason;
        }
        length = length.saturating_sub(1);
    }
}

impl fmt::Display for ControlTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the content of a ping or pong has more than 125 bytes")
    }
}

impl Error for ControlTooLong {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::close::CloseCode;

    #[test]
    fn a_ping_has_125_bytes_at_most() {
        let (mut encoder, mut output) = (Encoder::server(), Vec::new());
        assert_eq!(encoder.ping(&[0; 126], &mut output), Err(ControlTooLong));
        assert!(output.is_empty());
        assert_eq!(encoder.ping(&[0; 125], &mut output), Ok(()));
        assert_eq!(output.len(), 2 + 125);
    }

    #[test]
    fn codes_that_only_a_program_may_see_are_not_sent() {
        for code in [CloseCode::NONE, CloseCode::ABNORMAL] {
            let mut output = Vec::new();
            Encoder::server().close(Some(CloseFrame { code, reason: "bye" }), &mut output);
            assert_eq!(output, [0x88, 0], "{code}");
        }
    }
}
