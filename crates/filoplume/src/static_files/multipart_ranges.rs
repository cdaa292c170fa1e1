//! Several ranges in one response: `multipart/byteranges` (RFC 9110, 14.6). Memory is constant, and
//! the length is known in advance.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read};
use std::vec;

use super::content::Content;
use crate::semantics::range::ByteRange;

/// The properties that all parts share.
struct PartInfo {
    boundary: String,
    content_type: String,
    total: u64,
}

/// A reader of all parts in order.
pub(super) struct MultipartRanges {
    content: Content,
    common: PartInfo,
    ranges: vec::IntoIter<ByteRange>,
    stage: Stage,
}

enum Stage {
    /// The head before a range.
    Head { text: io::Cursor<String>, then: ByteRange },
    /// The bytes of a range.
    Bytes { offset: u64, left: u64 },
    /// The boundary after the last range.
    End { text: io::Cursor<String> },
}

impl MultipartRanges {
    /// `total` is the length of the content.
    pub(super) fn new(
        content: Content,
        content_type: &str,
        total: u64,
        ranges: Vec<ByteRange>,
    ) -> Self {
        let common =
            PartInfo { boundary: boundary(), content_type: content_type.to_owned(), total };
        let mut ranges = ranges.into_iter();
        let stage = common.next(&mut ranges);
        Self { content, common, ranges, stage }
    }

    /// Returns the `Content-Type` of the response.
    pub(super) fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.common.boundary)
    }

    /// Returns the total length, if nothing has been read yet.
    pub(super) fn length(&self) -> u64 {
        let Stage::Head { then: first, .. } = self.stage else { return 0 };
        let ranges = std::iter::once(first).chain(self.ranges.as_slice().iter().copied());
        let lengths =
            ranges.map(|range| range.length().saturating_add(self.common.head(range).len() as u64));
        lengths.fold(self.common.end().len() as u64, u64::saturating_add)
    }
}

impl PartInfo {
    fn next(&self, ranges: &mut vec::IntoIter<ByteRange>) -> Stage {
        match ranges.next() {
            Some(range) => Stage::Head { text: io::Cursor::new(self.head(range)), then: range },
            None => Stage::End { text: io::Cursor::new(self.end()) },
        }
    }

    fn head(&self, range: ByteRange) -> String {
        let Self { boundary, content_type, total } = self;
        let content_range = range.of(*total);
        format!(
            "\r\n--{boundary}\r\ncontent-type: {content_type}\r\ncontent-range: \
             {content_range}\r\n\r\n"
        )
    }

    fn end(&self) -> String {
        format!("\r\n--{}--\r\n", self.boundary)
    }
}

/// Fills the buffer as far as there is content. The engine writes to the socket after each read,
/// and many short parts would otherwise cost a write and a packet each, and one for each head.
impl Read for MultipartRanges {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_piece(&mut buffer[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }
}

impl MultipartRanges {
    /// Reads bytes of one head or one range. The buffer must not be empty.
    fn read_piece(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.stage {
                Stage::Head { text, then } => match text.read(buffer)? {
                    0 => self.stage = Stage::Bytes { offset: then.start, left: then.length() },
                    read => return Ok(read),
                },
                Stage::Bytes { left: 0, .. } => self.stage = self.common.next(&mut self.ranges),
                Stage::Bytes { offset, left } => {
                    let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                    let read = self.content.read_at(*offset, &mut buffer[..wanted])?;
                    *offset += read as u64;
                    *left -= read as u64;
                    // The file is shorter than it was. The engine closes the connection, because
                    // the announced length is not reached, whatever the file has later.
                    if read == 0 {
                        self.stage = Stage::End { text: io::Cursor::default() };
                    }
                    return Ok(read);
                }
                Stage::End { text } => return text.read(buffer),
            }
        }
    }
}

/// Returns a text that the content does not contain: it is random and made for this response, so
/// the author of the content cannot know it.
fn boundary() -> String {
    let mut text = String::with_capacity(32);
    for _ in 0..2 {
        let number = RandomState::new().build_hasher().finish();
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{number:016x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn parts_have_heads_and_a_known_total_length() {
        let ranges = vec![ByteRange { start: 0, last: 1 }, ByteRange { start: 8, last: 8 }];
        let content = Content::Memory(Bytes::from_static(b"0123456789"));
        let mut parts = MultipartRanges::new(content, "text/plain", 10, ranges);
        let boundary = parts.common.boundary.clone();
        let length = parts.length();
        assert_eq!(parts.content_type(), format!("multipart/byteranges; boundary={boundary}"));
        let mut text = String::new();
        // One byte per read, to check that no state is lost between reads.
        let mut byte = [0];
        while parts.read(&mut byte).expect("it is in memory") == 1 {
            text.push(char::from(byte[0]));
        }
        let expected = "\r\n--B\r\ncontent-type: text/plain\r\ncontent-range: bytes \
                        0-1/10\r\n\r\n01\r\n--B\r\ncontent-type: text/plain\r\ncontent-range: \
                        bytes 8-8/10\r\n\r\n8\r\n--B--\r\n";
        assert_eq!(text, expected.replace('B', &boundary));
        assert_eq!(text.len() as u64, length);
    }

    #[test]
    fn many_short_parts_are_read_at_once() {
        let ranges = (0..32).map(|part| ByteRange { start: part * 3, last: part * 3 }).collect();
        let content = Content::Memory(Bytes::from(vec![b'x'; 100]));
        let mut parts = MultipartRanges::new(content, "text/plain", 100, ranges);
        let length = parts.length();
        let mut buffer = vec![0; 64 * 1024];
        assert_eq!(parts.read(&mut buffer).expect("it is in memory") as u64, length);
        assert_eq!(parts.read(&mut buffer).expect("it is in memory"), 0);
    }

    #[test]
    fn a_truncated_content_ends_early() {
        let ranges = vec![ByteRange { start: 0, last: 9 }];
        let content = Content::Memory(Bytes::from_static(b"01234"));
        let mut parts = MultipartRanges::new(content, "text/plain", 10, ranges);
        let length = parts.length();
        let mut bytes = Vec::new();
        parts.read_to_end(&mut bytes).expect("it is in memory");
        assert!((bytes.len() as u64) < length);
    }

    #[test]
    fn boundaries_are_unique() {
        assert_ne!(boundary(), boundary());
        assert_eq!(boundary().len(), 32);
    }

    #[test]
    fn a_read_without_room_skips_nothing() {
        let ranges = vec![ByteRange { start: 0, last: 1 }, ByteRange { start: 8, last: 8 }];
        let content = Content::Memory(Bytes::from_static(b"0123456789"));
        let mut parts = MultipartRanges::new(content, "text/plain", 10, ranges);
        let (length, mut read, mut byte) = (parts.length(), 0, [0]);
        loop {
            assert_eq!(parts.read(&mut []).expect("it is in memory"), 0);
            match parts.read(&mut byte).expect("it is in memory") {
                0 => break,
                count => read += count as u64,
            }
        }
        assert_eq!(read, length);
    }
}
