//! The four decoders, as readers. No other file names their crates.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};
use std::time::{Duration, Instant};

use filoplume_http1::ParseError;
use filoplume_runtime::{Body, HeldMemory};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use crate::core::coded_content::CodedContentError;
use crate::semantics::content_coding::ContentCoding;

/// How much a decoder reads at once, which is what the engine reads ahead.
const READ_BYTES: usize = 16 * 1024;

/// The first seven bits of Brotli with windows of up to a gigabyte.
const LARGE_WINDOW: u8 = 0b001_0001;

/// The memory that a decoder takes in addition to its window: buffers and tables.
const BUFFERS_BYTES: usize = 256 * 1024;

/// The tables of Brotli: up to 256 codes of 1,080 entries for each of three kinds of symbols. A
/// kilobyte of content can make a decoder allocate all of them.
const BROTLI_TABLES_BYTES: usize = 3 * 256 * 1080 * 4;

/// Log2 of the largest window of zstd, 8 MiB: the limit for content (RFC 9659).
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A coded content of this length or more is decoded in turns from its first byte on.
const LONG_BYTES: u64 = 4096;

/// How many bytes are decoded in the first turn: a few milliseconds of the content that costs most.
const TURN_BYTES: usize = READ_BYTES;

/// How many bytes are decoded in a turn at most.
const TURN_BYTES_MAX: usize = 256 * 1024;

/// A turn that is shorter costs more than it is worth, as threads change for it. The next one then
/// has twice as many bytes.
const TURN_MIN: Duration = Duration::from_millis(1);

/// Returns the content without its codings, which are in the order of their application.
pub(super) fn decoded(
    body: Body,
    codings: Vec<ContentCoding>,
    bytes_max: u64,
    memory: HeldMemory,
) -> Body {
    let free_bytes = match body.len() {
        // Content that is decoded while it arrives takes no turns here: its reader has turns of
        // another kind.
        _ if !body.has_arrived() => None,
        Some(LONG_BYTES..) => Some(0),
        _ => Some(TURN_BYTES),
    };
    let content = Decoded::Unread { body, codings, bytes_max };
    Body::from_reader(Counted { content, memory, free_bytes, turn_bytes: TURN_BYTES })
}

/// Returns how much memory decoders may take, whatever the length of the content: a window is as
/// large as the content declares, even if less is decoded.
pub(super) fn memory_of(codings: &[ContentCoding]) -> usize {
    let of = |coding: &ContentCoding| {
        BUFFERS_BYTES
            + match coding {
                ContentCoding::Gzip | ContentCoding::Deflate => 32 * 1024,
                ContentCoding::Brotli => BROTLI_TABLES_BYTES + (16 << 20),
                ContentCoding::Zstd => 1 << ZSTD_WINDOW_LOG_MAX,
            }
    };
    codings.iter().map(of).sum()
}

/// A content with the memory that its decoders take.
struct Counted {
    content: Decoded,
    memory: HeldMemory,
    /// How many bytes are decoded before turns begin. `None` if there are no turns.
    free_bytes: Option<usize>,
    /// How many bytes are decoded in the next turn.
    turn_bytes: usize,
}

impl Counted {
    fn read_in_turn(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (read, took) = self.memory.compute_in_turn(|| {
            let begun = Instant::now();
            (self.content.read(buffer), begun.elapsed())
        });
        self.turn_bytes = next_turn_bytes(self.turn_bytes, took);
        read
    }
}

/// Returns how much the next turn decodes after one that took this long.
fn next_turn_bytes(turn_bytes: usize, took: Duration) -> usize {
    if took < TURN_MIN {
        (turn_bytes * 2).min(TURN_BYTES_MAX)
    } else {
        (turn_bytes / 2).max(TURN_BYTES)
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.turn_bytes);
        match &mut self.free_bytes {
            None => self.content.read(buffer),
            Some(0) => self.read_in_turn(&mut buffer[..length]),
            Some(free_bytes) => {
                let read = self.content.read(&mut buffer[..length])?;
                *free_bytes = free_bytes.saturating_sub(read);
                Ok(read)
            }
        }
    }
}

/// A content that is decoded while it is read.
enum Decoded {
    /// Whether there is a content may not be known before it is read.
    Unread {
        body: Body,
        codings: Vec<ContentCoding>,
        bytes_max: u64,
    },
    Reading(Box<dyn Read + Send>),
    /// An empty content needs no decoding, however it is framed.
    Empty,
    Failed,
}

impl Decoded {
    /// Reads the first byte, and makes the decoders if there is one.
    fn begin(body: &mut Body, codings: &[ContentCoding], bytes_max: u64) -> io::Result<Self> {
        let mut first = Vec::with_capacity(1);
        if body.by_ref().take(1).read_to_end(&mut first)? == 0 {
            return Ok(Self::Empty);
        }
        let mut reader: Box<dyn Read + Send> =
            Box::new(Cursor::new(first).chain(std::mem::take(body)));
        for &coding in codings.iter().rev() {
            reader = Box::new(Layer::new(coding, reader, bytes_max)?);
        }
        Ok(Self::Reading(reader))
    }
}

impl Read for Decoded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let (Self::Unread { body, codings, bytes_max }, false) = (&mut *self, buffer.is_empty())
        {
            let begun = Self::begin(body, codings, *bytes_max);
            *self = begun.inspect_err(|_| *self = Self::Failed)?;
        }
        match self {
            Self::Reading(reader) => reader.read(buffer),
            Self::Unread { .. } | Self::Empty => Ok(0),
            Self::Failed => Err(failed_earlier()),
        }
    }
}

fn failed_earlier() -> io::Error {
    io::Error::other("an earlier read of the content failed")
}

/// The decoder of one coding.
///
/// The output of each layer is counted, not only that of the last one. Otherwise a short content
/// could expand to a long one that the next layer decodes to nothing, such as empty frames.
struct Layer {
    decoder: Decoder,
    bytes_left: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Decoding,
    Complete,
    Failed,
}

enum Decoder {
    Gzip(MultiGzDecoder<BufReader<Source>>),
    Deflate(ZlibDecoder<BufReader<Source>>),
    Brotli(Box<brotli::Decompressor<Source>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<Source>>),
}

/// The coded bytes.
struct Source {
    reader: Box<dyn Read + Send>,
    /// Whether the last read failed, so that an error of the decoder is that of the source.
    failed: bool,
    /// Whether large windows are refused. They are an extension that the coding `br` does not have
    /// (RFC 7932, 9.1). The decoder accepts them, and would take as much memory as the content
    /// declares.
    refuses_large_window: bool,
}

impl Layer {
    fn new(coding: ContentCoding, reader: Box<dyn Read + Send>, bytes: u64) -> io::Result<Self> {
        let source = Source { reader, failed: false, refuses_large_window: false };
        let buffered = |source| BufReader::with_capacity(READ_BYTES, source);
        let decoder = match coding {
            ContentCoding::Gzip => Decoder::Gzip(MultiGzDecoder::new(buffered(source))),
            ContentCoding::Deflate => Decoder::Deflate(ZlibDecoder::new(buffered(source))),
            ContentCoding::Brotli => {
                let source = Source { refuses_large_window: true, ..source };
                Decoder::Brotli(Box::new(brotli::Decompressor::new(source, READ_BYTES)))
            }
            ContentCoding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered(source))?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Decoder::Zstd(decoder)
            }
        };
        Ok(Self { decoder, bytes_left: bytes, state: State::Decoding })
    }

    fn read_counted(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self.decoder.read(buffer) {
            Ok(0) => {
                self.decoder.expect_end()?;
                self.state = State::Complete;
                0
            }
            Ok(read) => read,
            Err(error) => return Err(error),
        };
        let too_long = || io::Error::new(ErrorKind::InvalidData, ParseError::ContentTooLong);
        self.bytes_left = self.bytes_left.checked_sub(read as u64).ok_or_else(too_long)?;
        Ok(read)
    }
}

impl Read for Layer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.state {
            State::Complete => return Ok(0),
            State::Failed => return Err(failed_earlier()),
            State::Decoding if buffer.is_empty() => return Ok(0),
            State::Decoding => {}
        }
        let result = self.read_counted(buffer);
        if result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted) {
            self.state = State::Failed;
        }
        result
    }
}

impl Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Deflate(decoder) => decoder.read(buffer),
            Self::Brotli(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        };
        result.map_err(|error| self.error_of(error))
    }

    /// Fails if bytes follow the coded content. The decoders for gzip and zstd have checked it:
    /// what follows there is another member or frame, or an error.
    fn expect_end(&mut self) -> io::Result<()> {
        let is_end = match self {
            Self::Gzip(_) | Self::Zstd(_) => return Ok(()),
            Self::Deflate(decoder) => decoder.get_mut().fill_buf().map(<[u8]>::is_empty),
            // The second read after the end reports what the decoder itself has buffered.
            Self::Brotli(decoder) => match decoder.read(&mut [0]) {
                Ok(0) => decoder.get_mut().read(&mut [0]).map(|read| read == 0),
                Ok(_) => Ok(false),
                Err(error) => Err(error),
            },
        };
        match is_end {
            Ok(true) => Ok(()),
            Ok(false) => Err(CodedContentError.into()),
            Err(error) => Err(self.error_of(error)),
        }
    }

    /// Errors of the source are passed on. All others are due to a malformed content.
    fn error_of(&self, error: io::Error) -> io::Error {
        let source = match self {
            Self::Gzip(decoder) => decoder.get_ref().get_ref(),
            Self::Deflate(decoder) => decoder.get_ref().get_ref(),
            Self::Brotli(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => decoder.get_ref().get_ref(),
        };
        if source.failed { error } else { CodedContentError.into() }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A decoder that finds input without output, such as empty blocks, reads on until it has
        // some. Others get a turn between two reads.
        HeldMemory::pass_turn_on();
        let result = self.reader.read(buffer);
        self.failed = result.is_err();
        if let (true, Ok(1..), [first, ..]) = (self.refuses_large_window, &result, &buffer) {
            self.refuses_large_window = false;
            if first & 0x7f == LARGE_WINDOW {
                return Err(CodedContentError.into());
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what has not been returned by earlier reads, one piece by each read.
    struct Piecewise(Vec<&'static [u8]>);

    impl Read for Piecewise {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(ErrorKind::ConnectionReset.into());
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn layer(coding: ContentCoding, pieces: &[&'static [u8]]) -> Layer {
        Layer::new(coding, Box::new(Piecewise(pieces.to_vec())), 1000).unwrap()
    }

    /// `a`, compressed by the formats of RFC 1952 and RFC 1950.
    const GZIP: &[u8] =
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 0x4b, 4, 0, 0x43, 0xbe, 0xb7, 0xe8, 1, 0, 0, 0];
    const ZLIB: &[u8] = &[0x78, 0x9c, 0x4b, 4, 0, 0, 0x62, 0, 0x62];

    #[test]
    fn only_the_first_byte_of_brotli_tells_of_a_large_window() {
        let source = |pieces: &[&'static [u8]]| {
            let reader = Box::new(Piecewise(pieces.to_vec()));
            Source { reader, failed: false, refuses_large_window: true }
        };
        let mut buffer = [0; 8];
        for first in [0x11, 0x91] {
            let first: &'static [u8] = if first == 0x11 { &[0x11] } else { &[0x91] };
            assert!(source(&[first]).read(&mut buffer).is_err(), "{first:?}");
        }
        let mut later = source(&[&[], &[0x1b], &[0x11]]);
        for length in [0, 1, 1] {
            assert_eq!(later.read(&mut buffer).unwrap(), length);
        }
    }

    #[test]
    fn a_turn_becomes_longer_while_it_is_short_and_stays_within_bounds() {
        let before = TURN_MIN - Duration::from_nanos(1);
        assert_eq!(next_turn_bytes(TURN_BYTES, before), 2 * TURN_BYTES);
        assert_eq!(next_turn_bytes(TURN_BYTES_MAX, before), TURN_BYTES_MAX);
        assert_eq!(next_turn_bytes(TURN_BYTES_MAX, TURN_MIN), TURN_BYTES_MAX / 2);
        assert_eq!(next_turn_bytes(TURN_BYTES, TURN_MIN), TURN_BYTES);
    }

    #[test]
    fn a_read_of_nothing_is_not_the_end() {
        let mut buffer = [0; 8];
        for (coding, content) in [(ContentCoding::Gzip, GZIP), (ContentCoding::Deflate, ZLIB)] {
            let mut layer = layer(coding, &[content, &[], &[], &[]]);
            assert_eq!(layer.read(&mut []).unwrap(), 0, "{coding:?}");
            assert_eq!(layer.read(&mut buffer).unwrap(), 1, "{coding:?}");
        }
    }

    #[test]
    fn after_its_end_a_content_is_over_and_after_an_error_it_has_failed() {
        let mut buffer = [0; 8];
        for (coding, content) in [(ContentCoding::Gzip, GZIP), (ContentCoding::Deflate, ZLIB)] {
            let mut whole = layer(coding, &[content, &[], &[], &[]]);
            assert_eq!(whole.read(&mut buffer).unwrap(), 1, "{coding:?}");
            // The source is not read again and again: it would fail.
            for _ in 0..10 {
                assert_eq!(whole.read(&mut buffer).unwrap(), 0, "{coding:?}");
            }
        }
        // The source could go on, but the decoder is in no state to do so.
        let mut broken = layer(ContentCoding::Gzip, &[b"?", b"?", &GZIP[..1], &GZIP[1..], &[]]);
        let mut errors = (0..4).map(|_| broken.read(&mut buffer).unwrap_err().to_string());
        assert_ne!(errors.next(), Some(failed_earlier().to_string()));
        assert!(errors.all(|error| error == failed_earlier().to_string()));
    }

    #[test]
    fn codings_in_a_row_take_the_memory_of_each() {
        let of = |codings: &[ContentCoding]| memory_of(codings);
        let both = [ContentCoding::Gzip, ContentCoding::Zstd];
        assert_eq!(memory_of(&both), of(&both[..1]) + of(&both[1..]));
        // Its window is 8 MiB (RFC 8878, 3.1.1.1.2), that of Brotli 16 (RFC 7932, 9.1).
        assert!(of(&[ContentCoding::Zstd]) > 8 << 20);
        assert!(of(&[ContentCoding::Brotli]) > 16 << 20);
    }
}
