//! The head of a frame (RFC 6455 section 5.2).

use crate::error::ProtocolError;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A further fragment of the current message.
    Continuation,
    /// A text message, or its first fragment.
    Text,
    /// A binary message, or its first fragment.
    Binary,
    /// The sender closes the connection.
    Close,
    /// Asks the peer for a pong, to check that it is still there.
    Ping,
    /// The answer to a ping.
    Pong,
}

impl Opcode {
    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    /// Returns whether frames of this kind may stand between the fragments of a message.
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// Longest content of a control frame.
pub const CONTROL_BYTES_MAX: usize = 125;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

/// The head of a frame: everything before its content.
///
/// ```
/// use filoplume_websocket::{FrameHead, Opcode};
///
/// let (head, used) = FrameHead::parse(&[0x81, 5, b'H', b'e'])?.expect("the head is whole");
/// assert_eq!((head.opcode, head.is_final, head.length, used), (Opcode::Text, true, 5, 2));
///
/// let mut output = Vec::new();
/// head.encode(&mut output);
/// assert_eq!(output, [0x81, 5]);
/// # Ok::<(), filoplume_websocket::ProtocolError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Whether this is the last or only fragment.
    pub is_final: bool,
    /// The three reserved bits, as they stand in the first byte.
    pub reserved: u8,
    /// What the frame is for.
    pub opcode: Opcode,
    /// The masking key, in frames of clients.
    pub mask: Option<[u8; 4]>,
    /// The length of the content.
    pub length: u64,
}

impl FrameHead {
    /// The reserved bit that marks compressed messages.
    pub const COMPRESSED: u8 = 0x40;
    /// Longest head: two bytes, a length of eight and a mask of four.
    pub const BYTES_MAX: usize = 14;

    const RESERVED: u8 = 0x70;

    /// Reads the head at the beginning of `input`. Returns it with its length in bytes, or `None`
    /// if it is not complete.
    ///
    /// # Errors
    ///
    /// Returns the errors that do not depend on what was negotiated: an unknown opcode, a control
    /// frame that is long or a fragment, or a length that is not encoded in the shortest form.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ProtocolError> {
        let Some((&[first, second], rest)) = input.split_first_chunk::<2>() else {
            return Ok(None);
        };
        let opcode = Opcode::from_bits(first & 0x0f).ok_or(ProtocolError::OpcodeReserved)?;
        let is_final = first & FIN != 0;
        let short = second & !MASKED;
        if opcode.is_control() {
            if !is_final {
                return Err(ProtocolError::ControlFragmented);
            }
            if short >= LENGTH_16 {
                return Err(ProtocolError::ControlTooLong);
            }
        }
        let (length, rest, mut used) = match short {
            LENGTH_16 => {
                let Some((&bytes, rest)) = rest.split_first_chunk::<2>() else {
                    return Ok(None);
                };
                let length = u64::from(u16::from_be_bytes(bytes));
                if length < u64::from(LENGTH_16) {
                    return Err(ProtocolError::LengthNotMinimal);
                }
                (length, rest, 4)
            }
            LENGTH_64 => {
                let Some((&bytes, rest)) = rest.split_first_chunk::<8>() else {
                    return Ok(None);
                };
                let length = u64::from_be_bytes(bytes);
                if length >> 63 != 0 {
                    return Err(ProtocolError::LengthTooLarge);
                }
                if length <= u64::from(u16::MAX) {
                    return Err(ProtocolError::LengthNotMinimal);
                }
                (length, rest, 10)
            }
            short => (u64::from(short), rest, 2_usize),
        };
        let mask = if second & MASKED == 0 {
            None
        } else {
            let Some(&mask) = rest.first_chunk::<4>() else {
                return Ok(None);
            };
            used = used.saturating_add(4);
            Some(mask)
        };
        let reserved = first & Self::RESERVED;
        Ok(Some((Self { is_final, reserved, opcode, mask, length }, used)))
    }

    /// Appends the head to `output`, with the length in its shortest form.
    pub fn encode(&self, output: &mut Vec<u8>) {
        let fin = if self.is_final { FIN } else { 0 };
        output.push(fin | (self.reserved & Self::RESERVED) | self.opcode.bits());
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        if let Some(short) = u8::try_from(self.length).ok().filter(|short| *short < LENGTH_16) {
            output.push(masked | short);
        } else if let Ok(length) = u16::try_from(self.length) {
            output.push(masked | LENGTH_16);
            output.extend_from_slice(&length.to_be_bytes());
        } else {
            output.push(masked | LENGTH_64);
            output.extend_from_slice(&self.length.to_be_bytes());
        }
        if let Some(mask) = self.mask {
            output.extend_from_slice(&mask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_was_written_is_read_again() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, u64::MAX >> 1] {
            for mask in [None, Some([1, 2, 3, 4])] {
                let head = FrameHead {
                    is_final: false,
                    reserved: 0x40,
                    opcode: Opcode::Binary,
                    mask,
                    length,
                };
                let mut bytes = Vec::new();
                head.encode(&mut bytes);
                assert_eq!(FrameHead::parse(&bytes), Ok(Some((head, bytes.len()))));
                for cut in 0..bytes.len() {
                    assert_eq!(FrameHead::parse(&bytes[..cut]), Ok(None), "{head:?} at {cut}");
                }
            }
        }
    }

    #[test]
    fn every_first_byte_is_a_head_or_an_error() {
        for first in 0..=255 {
            let parsed = FrameHead::parse(&[first, 0]);
            let known = matches!(first & 0x0f, 0..=2 | 8..=10);
            let fragment = first & 0x88 == 0x08;
            assert_eq!(parsed.is_ok(), known && !fragment, "{first:#x}: {parsed:?}");
        }
    }

    #[test]
    fn reserved_bits_touch_no_others() {
        let of = |reserved| {
            let head = FrameHead {
                is_final: false,
                reserved,
                opcode: Opcode::Text,
                mask: None,
                length: 0,
            };
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            bytes
        };
        assert_eq!(of(0xff), [0x71, 0]);
        assert_eq!(of(0x0f), [0x01, 0]);
    }
}
