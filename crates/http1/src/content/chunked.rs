//! Reads and writes chunks (RFC 9112 section 7.1).
//!
//! The decoder is a state machine that reads one byte of framing at a time. It does not buffer
//! lines, so the result does not depend on how the network splits the bytes. Only a trailer section
//! is buffered.

use std::ops::Range;

use crate::content::decoded::Decoded;
use crate::content::trailers::parse_trailers;
use crate::error::ParseError;
use crate::fields::Headers;
use crate::limits::Limits;
use crate::syntax::TOKEN;

/// The line end after the data of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk and an empty trailer section.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends the line that precedes the data of one chunk. [`CHUNK_END`] must follow the data.
///
/// Nothing is appended if `len` is zero: an empty chunk would be the last one.
///
/// ```
/// use filoplume_http1::{CHUNK_END, LAST_CHUNK, encode_chunk_head};
///
/// let mut out = Vec::new();
/// encode_chunk_head(13, &mut out);
/// out.extend_from_slice(b"Hello, world!");
/// out.extend_from_slice(CHUNK_END);
/// out.extend_from_slice(LAST_CHUNK);
/// assert_eq!(out, b"d\r\nHello, world!\r\n0\r\n\r\n");
/// ```
#[inline]
pub fn encode_chunk_head(len: usize, out: &mut Vec<u8>) {
    if len == 0 {
        return;
    }
    // Up to 16 digits, filled from the end.
    let mut digits = [0u8; 16];
    let mut left = len;
    let mut written = 0usize;
    for place in digits.iter_mut().rev() {
        *place = HEX.get(left & 0xf).copied().unwrap_or(b'0');
        left >>= 4;
        written = written.saturating_add(1);
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len().saturating_sub(written)..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends the last chunk with trailer fields. Framing fields are left out.
///
/// ```
/// use filoplume_http1::{Headers, encode_last_chunk};
///
/// let mut trailers = Headers::new();
/// trailers.append("digest", "sha-256=abc")?;
/// let mut out = Vec::new();
/// encode_last_chunk(&trailers, &mut out);
/// assert_eq!(out, b"0\r\ndigest: sha-256=abc\r\n\r\n");
/// # Ok::<(), filoplume_http1::InvalidHeader>(())
/// ```
pub fn encode_last_chunk(trailers: &Headers, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    trailers.write_lines(out, |name, _| {
        !name.eq_ignore_ascii_case(b"content-length")
            && !name.eq_ignore_ascii_case(b"transfer-encoding")
    });
    out.extend_from_slice(b"\r\n");
}

#[derive(Debug)]
pub(crate) struct ChunkedDecoder {
    state: State,
    content_left_max: u64,
    line_left: u32,
    extensions_left: u32,
    line_bytes_max: u32,
    trailer_bytes_max: u32,
    fields_max: u32,
    trailer_section: Vec<u8>,
    trailers: Headers,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first digit of a size.
    SizeStart,
    Size(u64),
    Extension(u64, Extension),
    SizeLineFeed(u64),
    Data(u64),
    DataCarriageReturn,
    DataLineFeed,
    /// The first byte after the last chunk. Nearly all trailer sections are empty, and an empty one
    /// is not buffered.
    TrailersStart,
    TrailersLineFeed,
    Trailers,
    Complete,
    Refused(ParseError),
}

/// `*( ";" name [ "=" ( token / quoted-string ) ] )`. The whitespace that RFC 9112 calls "bad" must
/// be accepted around `;` and `=`. It is not accepted elsewhere, for example at the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// Whitespace before the first `;`.
    SizeSpace,
    NameStart,
    Name,
    NameSpace,
    ValueStart,
    Token,
    Quoted,
    QuotedPair,
    QuotedEnd,
    ValueSpace,
}

impl ChunkedDecoder {
    pub(crate) fn new(content_bytes_max: u64, limits: &Limits) -> Self {
        let narrow = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        Self {
            state: State::SizeStart,
            content_left_max: content_bytes_max,
            line_left: narrow(limits.chunk_line_bytes_max),
            extensions_left: narrow(limits.chunk_extension_bytes_max),
            line_bytes_max: narrow(limits.chunk_line_bytes_max),
            trailer_bytes_max: narrow(limits.trailer_bytes_max),
            fields_max: narrow(limits.fields_max),
            trailer_section: Vec::new(),
            trailers: Headers::new(),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    pub(crate) fn trailers(&self) -> Option<&Headers> {
        self.is_complete().then_some(&self.trailers)
    }

    pub(crate) fn take_trailers(&mut self) -> Option<Headers> {
        self.is_complete().then(|| std::mem::take(&mut self.trailers))
    }

    /// Reads framing up to the first data, and returns the data that has arrived.
    pub(crate) fn decode(&mut self, input: &[u8]) -> Result<Decoded, ParseError> {
        let mut unread = input;
        loop {
            match self.state {
                State::Complete => break,
                State::Refused(error) => return Err(error),
                State::Data(left) => {
                    let Some(data) = self.take_data(
                        left,
                        input.len().saturating_sub(unread.len()),
                        unread.len(),
                    ) else {
                        break;
                    };
                    return Ok(Decoded { consumed: data.end, data });
                }
                state => {
                    let Some((&byte, rest)) = unread.split_first() else {
                        break;
                    };
                    unread = rest;
                    self.state = self.next_state(state, byte).unwrap_or_else(State::Refused);
                }
            }
        }
        let consumed = input.len().saturating_sub(unread.len());
        Ok(Decoded { consumed, data: consumed..consumed })
    }

    fn take_data(&mut self, left: u64, start: usize, available: usize) -> Option<Range<usize>> {
        let run = usize::try_from(left).unwrap_or(usize::MAX).min(available);
        if run == 0 {
            return None;
        }
        self.state = match left.saturating_sub(run as u64) {
            0 => State::DataCarriageReturn,
            left => State::Data(left),
        };
        Some(start..start.saturating_add(run))
    }

    /// Returns the state after one byte of framing.
    fn next_state(&mut self, state: State, byte: u8) -> Result<State, ParseError> {
        match (state, byte) {
            (State::SizeStart, _) => {
                let digit = hex_digit(byte).ok_or(ParseError::ChunkSizeInvalid)?;
                self.line_left = self.line_bytes_max;
                self.count_line_byte()?;
                Ok(State::Size(digit))
            }
            (State::Size(size), b'\r') => Ok(State::SizeLineFeed(size)),
            (State::Size(size), b';') => {
                self.count_extension_byte()?;
                Ok(State::Extension(size, Extension::NameStart))
            }
            (State::Size(size), b' ' | b'\t') => {
                self.count_extension_byte()?;
                Ok(State::Extension(size, Extension::SizeSpace))
            }
            (State::Size(size), _) => {
                let digit = hex_digit(byte).ok_or(ParseError::ChunkSizeInvalid)?;
                self.count_line_byte()?;
                let shifted = size.checked_mul(16).ok_or(ParseError::ChunkSizeInvalid)?;
                Ok(State::Size(shifted | digit))
            }
            (State::Extension(size, extension), b'\r') if extension.may_end() => {
                Ok(State::SizeLineFeed(size))
            }
            (State::Extension(size, extension), _) => {
                self.count_extension_byte()?;
                let next = extension.next(byte).ok_or(ParseError::ChunkExtensionInvalid)?;
                Ok(State::Extension(size, next))
            }
            (State::SizeLineFeed(0), b'\n') => Ok(State::TrailersStart),
            (State::SizeLineFeed(size), b'\n') => {
                self.content_left_max =
                    self.content_left_max.checked_sub(size).ok_or(ParseError::ContentTooLong)?;
                Ok(State::Data(size))
            }
            (State::DataCarriageReturn, b'\r') => Ok(State::DataLineFeed),
            (State::DataLineFeed, b'\n') => Ok(State::SizeStart),
            (State::SizeLineFeed(_) | State::DataCarriageReturn | State::DataLineFeed, _) => {
                Err(ParseError::ChunkEndInvalid)
            }
            (State::TrailersStart, b'\r') if self.trailer_bytes_max > 1 => {
                Ok(State::TrailersLineFeed)
            }
            (State::TrailersLineFeed, b'\n') => Ok(State::Complete),
            (State::TrailersLineFeed, _) => Err(ParseError::TrailerInvalid),
            (State::TrailersStart | State::Trailers, _) => self.next_trailer_state(byte),
            (State::Data(_) | State::Complete | State::Refused(_), _) => Ok(state),
        }
    }

    fn count_line_byte(&mut self) -> Result<(), ParseError> {
        self.line_left = self.line_left.checked_sub(1).ok_or(ParseError::ChunkLineTooLong)?;
        Ok(())
    }

    fn count_extension_byte(&mut self) -> Result<(), ParseError> {
        self.count_line_byte()?;
        self.extensions_left =
            self.extensions_left.checked_sub(1).ok_or(ParseError::ChunkExtensionsTooLong)?;
        Ok(())
    }

    fn next_trailer_state(&mut self, byte: u8) -> Result<State, ParseError> {
        let section = &mut self.trailer_section;
        // CR and LF are accepted only together: a reader that accepts one of them alone would find
        // other fields.
        if (section.last() == Some(&b'\r')) != (byte == b'\n') {
            return Err(ParseError::TrailerInvalid);
        }
        if section.len() >= self.trailer_bytes_max as usize {
            return Err(ParseError::TrailerTooLong);
        }
        section.push(byte);
        if !section.ends_with(b"\r\n\r\n") {
            return Ok(State::Trailers);
        }
        self.trailers = parse_trailers(section, self.fields_max as usize)?;
        self.trailer_section = Vec::new();
        Ok(State::Complete)
    }
}

impl Extension {
    fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::QuotedEnd)
    }

    fn next(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::NameStart | Self::Name, _) if TOKEN.has(byte) => Some(Self::Name),
            (Self::Name | Self::NameSpace, b'=') => Some(Self::ValueStart),
            (Self::ValueStart, b'"') => Some(Self::Quoted),
            (Self::ValueStart | Self::Token, _) if TOKEN.has(byte) => Some(Self::Token),
            (
                Self::SizeSpace
                | Self::Name
                | Self::NameSpace
                | Self::Token
                | Self::QuotedEnd
                | Self::ValueSpace,
                b';',
            ) => Some(Self::NameStart),
            (
                Self::SizeSpace
                | Self::NameStart
                | Self::NameSpace
                | Self::ValueStart
                | Self::ValueSpace,
                b' ' | b'\t',
            ) => Some(self),
            (Self::Name, b' ' | b'\t') => Some(Self::NameSpace),
            (Self::Token | Self::QuotedEnd, b' ' | b'\t') => Some(Self::ValueSpace),
            (Self::Quoted, b'"') => Some(Self::QuotedEnd),
            (Self::Quoted, b'\\') => Some(Self::QuotedPair),
            (Self::Quoted | Self::QuotedPair, b'\t' | 0x20..=0x7e | 0x80..) => Some(Self::Quoted),
            _ => None,
        }
    }
}

fn hex_digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_that_would_frame_the_message_are_not_sent() {
        let mut trailers = Headers::new();
        for (name, value) in
            [("content-length", "5"), ("digest", "abc"), ("Transfer-Encoding", "chunked")]
        {
            trailers.append(name, value).unwrap();
        }
        let mut out = Vec::new();
        encode_last_chunk(&trailers, &mut out);
        assert_eq!(out, b"0\r\ndigest: abc\r\n\r\n");
    }

    #[test]
    fn the_longest_chunk_has_all_digits_in_its_head() {
        for len in [1, 0xf, 0x10, 0xffff, usize::MAX >> 4, usize::MAX] {
            let mut out = Vec::new();
            encode_chunk_head(len, &mut out);
            assert_eq!(out, format!("{len:x}\r\n").as_bytes());
        }
    }

    #[test]
    fn trailers_are_available_once_they_are_complete() {
        let mut decoder = ChunkedDecoder::new(u64::MAX, &Limits::default());
        decoder.decode(b"0\r\ndigest: abc\r\n").unwrap();
        assert!(decoder.trailers().is_none());
        decoder.decode(b"\r\n").unwrap();
        assert_eq!(
            decoder.trailers().and_then(|trailers| trailers.get("digest")),
            Some(b"abc".as_slice())
        );
    }

    #[test]
    fn the_line_end_of_an_empty_trailer_section_counts_for_the_limit() {
        for (trailer_bytes_max, expected) in [(1, Err(ParseError::TrailerTooLong)), (2, Ok(true))] {
            let limits = Limits { trailer_bytes_max, ..Limits::default() };
            let mut decoder = ChunkedDecoder::new(u64::MAX, &limits);
            let decoded = decoder.decode(b"0\r\n\r\n").and_then(|_| decoder.decode(b""));
            assert_eq!(decoded.map(|_| decoder.is_complete()), expected);
        }
    }
}
