//! What a peer can do wrong after the handshake, and the close code that answers it.

use std::error::Error;
use std::fmt;

use crate::close::CloseCode;

/// What a peer did wrong. Each reason has the code of the close frame that answers it.
///
/// ```
/// use filoplume_websocket::{CloseCode, Decoder, Limits, ProtocolError, Role};
///
/// let mut decoder = Decoder::new(Role::Server, Limits::default());
/// // A text frame without a mask.
/// let refused = decoder.receive(&mut [0x81, 1, b'a']).unwrap_err();
/// assert_eq!(refused, ProtocolError::MaskMissing);
/// assert_eq!(refused.close_code(), CloseCode::PROTOCOL_ERROR);
/// assert_eq!(refused.to_string(), "a client's frame is not masked");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A reserved bit is set that no negotiated extension uses, or none on this kind of frame.
    ReservedBits,
    /// The opcode is not defined.
    OpcodeReserved,
    /// A control frame is a fragment.
    ControlFragmented,
    /// A control frame has more than 125 bytes.
    ControlTooLong,
    /// A length is encoded in more bytes than necessary.
    LengthNotMinimal,
    /// A length of 64 bits has its highest bit set.
    LengthTooLarge,
    /// A client's frame is not masked.
    MaskMissing,
    /// A server's frame is masked.
    MaskUnexpected,
    /// A continuation frame does not follow a fragment.
    ContinuationUnexpected,
    /// A new message begins before the current one is complete.
    ContinuationMissing,
    /// A close frame has a single byte.
    CloseTooShort,
    /// A close frame has a code that may not be sent.
    CloseCodeInvalid,
    /// The reason in a close frame is not UTF-8.
    CloseReasonInvalid,
    /// A text message is not UTF-8.
    TextInvalid,
    /// A compressed message cannot be inflated.
    DeflateInvalid,
    /// A frame is longer than [`Limits::frame_bytes_max`](crate::Limits::frame_bytes_max).
    FrameTooLong,
    /// A message is longer than [`Limits::message_bytes_max`](crate::Limits::message_bytes_max).
    MessageTooLong,
    /// A message has more fragments than
    /// [`Limits::fragments_max`](crate::Limits::fragments_max).
    TooManyFragments,
}

impl ProtocolError {
    /// Returns the code of the close frame that answers this error.
    pub const fn close_code(self) -> CloseCode {
        match self {
            Self::ReservedBits
            | Self::OpcodeReserved
            | Self::ControlFragmented
            | Self::ControlTooLong
            | Self::LengthNotMinimal
            | Self::LengthTooLarge
            | Self::MaskMissing
            | Self::MaskUnexpected
            | Self::ContinuationUnexpected
            | Self::ContinuationMissing
            | Self::CloseTooShort
            | Self::CloseCodeInvalid => CloseCode::PROTOCOL_ERROR,
            Self::CloseReasonInvalid | Self::TextInvalid | Self::DeflateInvalid => {
                CloseCode::INVALID_DATA
            }
            Self::FrameTooLong | Self::MessageTooLong | Self::TooManyFragments => {
                CloseCode::TOO_BIG
            }
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::ReservedBits => "a reserved bit is set that no extension uses",
            Self::OpcodeReserved => "the opcode is not defined",
            Self::ControlFragmented => "a control frame is a fragment",
            Self::ControlTooLong => "a control frame has more than 125 bytes",
            Self::LengthNotMinimal => "a length is encoded in more bytes than necessary",
            Self::LengthTooLarge => "a length has its highest bit set",
            Self::MaskMissing => "a client's frame is not masked",
            Self::MaskUnexpected => "a server's frame is masked",
            Self::ContinuationUnexpected => "a continuation does not follow a fragment",
            Self::ContinuationMissing => "a message begins before the current one is complete",
            Self::CloseTooShort => "a close frame has a single byte",
            Self::CloseCodeInvalid => "a close frame has a code that may not be sent",
            Self::CloseReasonInvalid => "the reason in a close frame is not UTF-8",
            Self::TextInvalid => "a text message is not UTF-8",
            Self::DeflateInvalid => "a compressed message cannot be inflated",
            Self::FrameTooLong => "a frame is too long",
            Self::MessageTooLong => "a message is too long",
            Self::TooManyFragments => "a message has too many fragments",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455, section 7.4.1.
    #[test]
    fn most_errors_are_closed_as_errors_of_the_protocol() {
        for error in [
            ProtocolError::ReservedBits,
            ProtocolError::OpcodeReserved,
            ProtocolError::ControlFragmented,
            ProtocolError::ControlTooLong,
            ProtocolError::LengthNotMinimal,
            ProtocolError::LengthTooLarge,
            ProtocolError::MaskMissing,
            ProtocolError::MaskUnexpected,
            ProtocolError::ContinuationUnexpected,
            ProtocolError::ContinuationMissing,
            ProtocolError::CloseTooShort,
            ProtocolError::CloseCodeInvalid,
        ] {
            assert_eq!(error.close_code(), CloseCode::PROTOCOL_ERROR, "{error}");
        }
    }
}
