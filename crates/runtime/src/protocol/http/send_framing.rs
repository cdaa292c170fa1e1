//! The framing of response bodies that are sent piece by piece.

use std::io;

use filoplume_http1::{BodyEncoding, CHUNK_END, LAST_CHUNK, encode_chunk_head};

/// How the end of a body is told, while it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum SendFraming {
    Length { left: u64 },
    Chunked,
    UntilClose,
}

impl SendFraming {
    /// Returns `None` if no body is sent.
    pub(super) fn of(encoding: BodyEncoding) -> Option<Self> {
        match encoding {
            BodyEncoding::None => None,
            BodyEncoding::Length(left) => Some(Self::Length { left }),
            BodyEncoding::Chunked => Some(Self::Chunked),
            BodyEncoding::UntilClose => Some(Self::UntilClose),
        }
    }

    pub(super) fn ends_with_connection(self) -> bool {
        matches!(self, Self::UntilClose)
    }

    /// Appends a piece of the body, with its framing. Returns whether it was the last one. An empty
    /// piece means that the reader has ended.
    pub(super) fn encode(&mut self, piece: &[u8], output: &mut Vec<u8>) -> io::Result<bool> {
        match self {
            Self::Length { left } => {
                *left -= piece.len() as u64;
                output.extend_from_slice(piece);
                if piece.is_empty() && *left > 0 {
                    let error = format!("the body ended {left} bytes early");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error));
                }
                Ok(*left == 0)
            }
            Self::Chunked if piece.is_empty() => {
                output.extend_from_slice(LAST_CHUNK);
                Ok(true)
            }
            Self::Chunked => {
                encode_chunk_head(piece.len(), output);
                output.extend_from_slice(piece);
                output.extend_from_slice(CHUNK_END);
                Ok(false)
            }
            Self::UntilClose => {
                output.extend_from_slice(piece);
                Ok(piece.is_empty())
            }
        }
    }
}
