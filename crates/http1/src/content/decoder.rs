//! Decodes the content of a message: framed bytes in, runs of data out.

use crate::content::chunked::ChunkedDecoder;
use crate::content::decoded::Decoded;
use crate::error::ParseError;
use crate::fields::Headers;
use crate::framing::Framing;
use crate::limits::Limits;

/// Finds the content and its end in the bytes after a head.
///
/// ```
/// use filoplume_http1::{ContentDecoder, Framing, Limits};
///
/// let mut input = b"5\r\nHello\r\n7\r\n, world\r\n0\r\n\r\nGET / HTTP/1.1".as_slice();
/// let mut decoder = ContentDecoder::new(Framing::Chunked, 1024, &Limits::default())?;
/// let mut content = Vec::new();
/// while !decoder.is_complete() {
///     let decoded = decoder.decode(input)?;
///     assert!(decoded.consumed > 0, "all bytes are here");
///     content.extend_from_slice(&input[decoded.data]);
///     input = &input[decoded.consumed..];
/// }
/// assert_eq!(content, b"Hello, world");
/// assert_eq!(input, b"GET / HTTP/1.1");
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Debug)]
pub struct ContentDecoder(State);

#[derive(Debug)]
enum State {
    Length { left: u64 },
    Chunked(ChunkedDecoder),
}

impl ContentDecoder {
    /// Returns a decoder for the content of one message.
    ///
    /// # Errors
    ///
    /// Returns [`ParseError::ContentTooLong`] if the declared length exceeds `content_bytes_max`.
    /// Nothing is allocated for a declared length.
    #[inline]
    pub fn new(
        framing: Framing,
        content_bytes_max: u64,
        limits: &Limits,
    ) -> Result<Self, ParseError> {
        match framing {
            Framing::Empty => Ok(Self(State::Length { left: 0 })),
            Framing::Length(length) if length > content_bytes_max => {
                Err(ParseError::ContentTooLong)
            }
            Framing::Length(left) => Ok(Self(State::Length { left })),
            Framing::Chunked => {
                Ok(Self(State::Chunked(ChunkedDecoder::new(content_bytes_max, limits))))
            }
        }
    }

    /// Returns the next run of data at the start of `input`. The caller drops the consumed bytes
    /// and calls again until the content [is complete](Self::is_complete). No byte after the end of
    /// the content is consumed.
    ///
    /// # Errors
    ///
    /// Returns an error if the content is too long or is not framed as RFC 9112 section 7.1
    /// demands. Every later call returns the same error.
    #[inline]
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, ParseError> {
        match &mut self.0 {
            State::Length { left } => {
                let run = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left = left.saturating_sub(run as u64);
                Ok(Decoded { consumed: run, data: 0..run })
            }
            State::Chunked(chunked) => chunked.decode(input),
        }
    }

    /// Counts bytes of content with a declared length as consumed. This is for content that the
    /// caller moves without decoding it, for example with a system call. Bytes beyond the length
    /// are not counted. Nothing happens if the content is chunked, because its framing has to be
    /// read.
    ///
    /// ```
    /// use filoplume_http1::{ContentDecoder, Framing, Limits};
    ///
    /// let mut decoder = ContentDecoder::new(Framing::Length(10), 1024, &Limits::default())?;
    /// decoder.skip(4);
    /// assert_eq!(decoder.remaining_length(), Some(6));
    /// # Ok::<(), filoplume_http1::ParseError>(())
    /// ```
    pub fn skip(&mut self, bytes: u64) {
        if let State::Length { left } = &mut self.0 {
            *left = left.saturating_sub(bytes);
        }
    }

    /// Returns whether the last byte of the message was consumed.
    #[inline]
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            State::Length { left } => *left == 0,
            State::Chunked(chunked) => chunked.is_complete(),
        }
    }

    /// Returns the number of bytes that still have to arrive, if the length was declared.
    #[inline]
    pub fn remaining_length(&self) -> Option<u64> {
        match &self.0 {
            State::Length { left } => Some(*left),
            State::Chunked(_) => None,
        }
    }

    /// Returns the trailer fields of chunked content that is complete (RFC 9112 section 7.1.2).
    /// Fields that RFC 9110 section 6.5.1 forbids in trailers are not included.
    pub fn trailers(&self) -> Option<&Headers> {
        match &self.0 {
            State::Length { .. } => None,
            State::Chunked(chunked) => chunked.trailers(),
        }
    }

    /// Returns the trailer fields and leaves none behind.
    pub fn take_trailers(&mut self) -> Option<Headers> {
        match &mut self.0 {
            State::Length { .. } => None,
            State::Chunked(chunked) => chunked.take_trailers(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_length_is_known_at_every_byte() {
        let limits = Limits::default();
        for length in 0..4 {
            let mut decoder = ContentDecoder::new(Framing::Length(length), 4, &limits).unwrap();
            for left in (1..=length).rev() {
                assert_eq!(
                    (decoder.remaining_length(), decoder.is_complete()),
                    (Some(left), false)
                );
                assert_eq!(decoder.decode(b"a").unwrap(), Decoded { consumed: 1, data: 0..1 });
            }
            assert_eq!((decoder.remaining_length(), decoder.is_complete()), (Some(0), true));
        }
        let none = ContentDecoder::new(Framing::Empty, 4, &limits).unwrap();
        assert_eq!(none.remaining_length(), Some(0));
    }

    #[test]
    fn bytes_that_are_skipped_count_unless_the_content_is_chunked() {
        let limits = Limits::default();
        let mut decoder = ContentDecoder::new(Framing::Length(4), 4, &limits).unwrap();
        decoder.skip(3);
        assert_eq!((decoder.remaining_length(), decoder.is_complete()), (Some(1), false));
        decoder.skip(u64::MAX);
        assert!(decoder.is_complete());
        let mut chunked = ContentDecoder::new(Framing::Chunked, 4, &limits).unwrap();
        chunked.skip(4);
        assert!(!chunked.is_complete());
    }

    #[test]
    fn chunks_have_no_remaining_length() {
        let mut decoder = ContentDecoder::new(Framing::Chunked, 4, &Limits::default()).unwrap();
        assert_eq!(decoder.remaining_length(), None);
        decoder.decode(b"3\r\na").unwrap();
        assert_eq!(decoder.remaining_length(), None);
    }
}
