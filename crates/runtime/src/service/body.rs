//! The content of a request: in memory, or read from the connection as it arrives.

use std::fmt;
use std::io::{self, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use filoplume_http1::{ContentDecoder, ParseError};
use parking_lot::Mutex;

use crate::budget::memory::Charge;
use crate::budget::streams::OpenStream;
use crate::buffers::Content;
use crate::clock::Pace;
use crate::transport::{Transport, is_gone, is_would_block};

/// What a peer is told when a handler begins to read a content that it held back (RFC 9110,
/// 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How often a thread that waits for content looks at the deadline.
pub(crate) const STREAM_TICK: Duration = Duration::from_millis(250);

/// Bytes read ahead of a handler that reads in small pieces.
const READ_AHEAD_BYTES: usize = 16 * 1024;

/// The content of a request.
///
/// Reading it may wait for the peer, up to the content's deadline. Errors of a read: `TimedOut` if
/// the peer was too slow, `UnexpectedEof` if it went away, `InvalidData` if it sent what is no
/// content; after one of them the connection closes with the response.
///
/// ```
/// use filoplume_runtime::{Request, Response};
/// use std::io::Read;
///
/// fn count_lines(mut request: Request) -> Response {
///     let mut text = String::new();
///     match request.body_mut().read_to_string(&mut text) {
///         Ok(_) => Response::from(format!("{} lines", text.lines().count())),
///         Err(_) => Response::new(400),
///     }
/// }
/// # let _service: Box<dyn filoplume_runtime::Service> = Box::new(count_lines);
/// ```
#[derive(Default)]
pub struct Body {
    /// `None` if there is no content, as in most requests.
    kind: Option<Box<Kind>>,
}

#[expect(clippy::large_enum_variant, reason = "it lies in one allocation, and is not moved")]
enum Kind {
    Memory(Held),
    Stream(ContentStream),
}

/// A content in memory, and its part of the budget.
struct Held {
    content: Content,
    /// Given back when the handler drops the content, or takes it as its own.
    _charge: Charge,
}

impl Body {
    pub(crate) fn from_content(content: Content) -> Self {
        Self::from_charged(content, Charge::default())
    }

    pub(crate) fn from_charged(content: Content, charge: Charge) -> Self {
        Self { kind: Some(Box::new(Kind::Memory(Held { content, _charge: charge }))) }
    }

    pub(crate) fn from_stream(stream: ContentStream) -> Self {
        Self { kind: Some(Box::new(Kind::Stream(stream))) }
    }

    /// Returns the content if all of it is in memory.
    pub fn as_slice(&self) -> Option<&[u8]> {
        match self.kind.as_deref() {
            None => Some(&[]),
            Some(Kind::Memory(held)) => Some(held.content.as_slice()),
            Some(Kind::Stream(_)) => None,
        }
    }

    /// Returns how many bytes are left to read, if that is known.
    pub fn len(&self) -> Option<u64> {
        match self.kind.as_deref() {
            None => Some(0),
            Some(Kind::Memory(held)) => Some(held.content.len() as u64),
            Some(Kind::Stream(stream)) => stream.remaining(),
        }
    }

    /// Returns whether it is known that nothing is left to read.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Puts bytes that were read back before what is left, for those who only look at the start.
    ///
    /// ```
    /// use filoplume_runtime::Body;
    /// use std::io::Read;
    ///
    /// let mut body = Body::from(b"GIF89a..".to_vec());
    /// let mut magic = [0; 6];
    /// body.read_exact(&mut magic)?;
    /// body.unread(&magic);
    /// assert_eq!(body.as_slice(), Some(&b"GIF89a.."[..]));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unread(&mut self, bytes: &[u8]) {
        let mut content = Content::default();
        content.extend(bytes);
        match self.kind.as_deref_mut() {
            None => *self = Self::from_content(content),
            Some(Kind::Memory(left)) => {
                content.extend(left.content.as_slice());
                left.content = content;
            }
            Some(Kind::Stream(stream)) => {
                content.extend(stream.prefix.as_slice());
                stream.prefix = content;
                // They are read again.
                stream.bytes_left = stream.bytes_left.saturating_add(bytes.len() as u64);
            }
        }
    }

    /// Bounds what is still arriving, for those who find out later than the plan how much is
    /// accepted: a read that goes beyond `bytes_max` is an error, `InvalidData`, as one beyond the
    /// bound of the plan. What is in memory stays.
    pub fn bound(&mut self, bytes_max: u64) {
        if let Some(Kind::Stream(stream)) = self.kind.as_deref_mut() {
            stream.bytes_left = stream.bytes_left.min(bytes_max);
        }
    }

    /// Returns the rest of the content as bytes; reads it first if it is still arriving.
    ///
    /// # Errors
    ///
    /// Those of a read, and `FileTooLarge` if the content is longer than `bytes_max`.
    pub fn into_bytes(self, bytes_max: u64) -> io::Result<Bytes> {
        let too_long =
            || Err(io::Error::new(io::ErrorKind::FileTooLarge, "the content is too long"));
        if self.len().is_some_and(|length| length > bytes_max) {
            return too_long();
        }
        match self.kind.map(|kind| *kind) {
            None => Ok(Bytes::new()),
            Some(Kind::Memory(held)) => Ok(held.content.into_bytes()),
            Some(Kind::Stream(stream)) => {
                let mut bytes = Vec::new();
                stream.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
                if bytes.len() as u64 > bytes_max {
                    return too_long();
                }
                Ok(bytes.into())
            }
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        let mut input = Content::default();
        input.extend(&bytes);
        Self::from_content(input)
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.kind.as_deref_mut() {
            None => Ok(0),
            Some(Kind::Memory(held)) => {
                let read = held.content.as_slice().read(buffer)?;
                held.content.advance(read);
                Ok(read)
            }
            Some(Kind::Stream(stream)) => stream.read(buffer),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.as_deref() {
            None => f.write_str("empty"),
            // Not the content: forms bring passwords.
            Some(Kind::Memory(held)) => write!(f, "{} bytes", held.content.len()),
            Some(Kind::Stream(stream)) => stream.fmt(f),
        }
    }
}

/// Why the peer's content could not be read to its end, within the [`io::Error`] of a read: so that
/// it can be told from an error of the program's own files and sockets. What is no content at all
/// is a `ParseError` there.
///
/// ```
/// use filoplume_runtime::ContentError;
/// use std::io;
///
/// /// Whether it is the peer's fault.
/// fn is_peers(error: &io::Error) -> bool {
///     error.get_ref().is_some_and(|within| within.is::<ContentError>())
/// }
///
/// assert!(is_peers(&io::Error::from(ContentError::Ended)));
/// assert!(!is_peers(&io::Error::from(io::ErrorKind::UnexpectedEof)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentError {
    /// The peer went away before all of it was there.
    Ended,
    /// The peer was too slow.
    TooSlow,
}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the peer went away before all of the content was there",
            Self::TooSlow => "the content did not arrive in time",
        })
    }
}

impl std::error::Error for ContentError {}

impl From<ContentError> for io::Error {
    fn from(error: ContentError) -> Self {
        let kind = match error {
            ContentError::Ended => io::ErrorKind::UnexpectedEof,
            ContentError::TooSlow => io::ErrorKind::TimedOut,
        };
        Self::new(kind, error)
    }
}

/// The reading half of a connection, in the hands of a handler. When it is dropped it leaves what
/// it knows in `returns`, for the one who goes on with the connection.
pub(crate) struct ContentStream {
    transport: Transport,
    /// Content that was decoded before the stream began.
    prefix: Content,
    /// What that takes of the budget.
    prefix_charge: Charge,
    open: OpenStream,
    /// Bytes that were read and not decoded.
    unread: Vec<u8>,
    decoder: Option<ContentDecoder>,
    /// How much of it may still be read, beside what the decoder was told.
    bytes_left: u64,
    pace: Pace,
    /// When the peer was last waited for. What passes from then to the next read is the handler's
    /// time.
    waited_until: Instant,
    /// The peer waits for a word before it sends.
    owes_continue: bool,
    failed: bool,
    returns: Arc<StreamReturn>,
}

/// Where a stream leaves its state.
#[derive(Debug, Default)]
pub(crate) struct StreamReturn {
    left: Mutex<Option<StreamLeft>>,
    /// Once the response has begun an interim response would be taken for its content.
    response_begun: AtomicBool,
}

/// What a stream leaves behind.
#[derive(Debug)]
pub(crate) struct StreamLeft {
    pub(crate) decoder: ContentDecoder,
    pub(crate) unread: Vec<u8>,
    /// The peer still waits for a word, or the stream failed: there is no way to go on.
    pub(crate) is_stuck: bool,
}

impl StreamReturn {
    /// What the stream left, if the handler is done with it.
    pub(crate) fn take(&self) -> Option<StreamLeft> {
        self.left.lock().take()
    }

    /// Whether the handler is done with it.
    pub(crate) fn is_left(&self) -> bool {
        self.left.lock().is_some()
    }

    pub(crate) fn leave(&self, left: StreamLeft) {
        *self.left.lock() = Some(left);
    }

    pub(crate) fn response_begins(&self) {
        self.response_begun.store(true, Ordering::Relaxed);
    }
}

/// A content as far as the engine has read it.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub(crate) decoder: ContentDecoder,
    /// What was decoded already.
    pub(crate) prefix: Content,
    pub(crate) prefix_charge: Charge,
    /// The peer waits for a word before it sends.
    pub(crate) owes_continue: bool,
}

impl ContentStream {
    pub(crate) fn new(
        transport: Transport,
        open: OpenStream,
        streaming: Streamed,
        unread: Vec<u8>,
        pace: Pace,
    ) -> (Self, Arc<StreamReturn>) {
        let returns = Arc::new(StreamReturn::default());
        let Streamed { decoder, prefix, prefix_charge, owes_continue } = streaming;
        let stream = Self {
            transport,
            prefix,
            prefix_charge,
            open,
            unread,
            decoder: Some(decoder),
            bytes_left: u64::MAX,
            pace,
            waited_until: Instant::now(),
            owes_continue,
            failed: false,
            returns: Arc::clone(&returns),
        };
        (stream, returns)
    }

    fn remaining(&self) -> Option<u64> {
        let remaining = self.decoder.as_ref()?.remaining_length()?;
        Some(remaining + self.prefix.len() as u64)
    }

    fn read_decoded(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(0) };
            if decoder.is_complete() {
                return Ok(0);
            }
            // No more is decoded than the handler has room for: what is decoded is delivered.
            let window = self.unread.get(..buffer.len().max(1)).unwrap_or(&self.unread);
            let decoded = decoder
                .decode(window)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let data = window.get(decoded.data.clone()).unwrap_or_default();
            let length = data.len();
            buffer[..length].copy_from_slice(data);
            self.unread.drain(..decoded.consumed);
            if length > 0 {
                return Ok(length);
            }
            if decoded.consumed == 0 && !decoder.is_complete() {
                self.receive()?;
            }
        }
    }

    fn count(&mut self, read: usize) -> io::Result<usize> {
        let Some(left) = self.bytes_left.checked_sub(read as u64) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, ParseError::ContentTooLong));
        };
        self.bytes_left = left;
        Ok(read)
    }

    /// Waits for more bytes of the peer. Only this time counts against its pace.
    fn receive(&mut self) -> io::Result<()> {
        self.pace.excuse(self.waited_until.elapsed());
        if std::mem::take(&mut self.owes_continue) {
            if self.returns.response_begun.load(Ordering::Relaxed) {
                self.owes_continue = true;
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the response has begun: the peer will not send its content",
                ));
            }
            self.send_continue()?;
        }
        let unread = self.unread.len();
        self.unread.resize(unread + READ_AHEAD_BYTES, 0);
        let result = loop {
            match self.transport.read(&mut self.unread[unread..]) {
                Ok(0) => break Err(ContentError::Ended.into()),
                Ok(read) => break Ok(read),
                Err(error) if is_would_block(&error) => {
                    if Instant::now() >= self.deadline() {
                        break Err(ContentError::TooSlow.into());
                    }
                    // Hardly ever: the engine has gone on with the socket while the content is read
                    // elsewhere.
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) if is_gone(&error) => break Err(ContentError::Ended.into()),
                Err(error) => break Err(error),
            }
        };
        self.unread.truncate(unread + *result.as_ref().unwrap_or(&0));
        let now = Instant::now();
        self.waited_until = now;
        self.pace.advance(*result.as_ref().unwrap_or(&0), now);
        // Checked after a read too: a byte now and then must not hold the thread.
        if now >= self.deadline() {
            return Err(ContentError::TooSlow.into());
        }
        result.map(drop)
    }

    /// When the peer must have sent more: soon, if threads are short.
    fn deadline(&self) -> Instant {
        if self.open.is_pressed() { self.pace.pressed_deadline() } else { self.pace.deadline() }
    }
}

impl ContentStream {
    /// Has the peer go on. What has begun is finished as long as there is time: a response behind
    /// half of this one would be none.
    fn send_continue(&mut self) -> io::Result<()> {
        let mut left = CONTINUE;
        while !left.is_empty() {
            let error = match self.transport.write(left) {
                Ok(written) if written > 0 => {
                    left = left.get(written..).unwrap_or_default();
                    continue;
                }
                Ok(_) => ContentError::Ended.into(),
                Err(error) if is_gone(&error) => ContentError::Ended.into(),
                Err(error) if !is_would_block(&error) => error,
                Err(_) if Instant::now() >= self.pace.deadline() => ContentError::TooSlow.into(),
                Err(_) => {
                    // As for a read.
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            if left.len() < CONTINUE.len() {
                // It is gone, or it is now.
                let _ = self.transport.shutdown(Shutdown::Both);
            }
            return Err(error);
        }
        Ok(())
    }
}

impl Read for ContentStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.failed {
            return Err(io::Error::other("the content ended with an error before"));
        }
        let result = if !self.prefix.is_empty() {
            let read = self.prefix.as_slice().read(buffer)?;
            self.prefix.advance(read);
            if self.prefix.is_empty() {
                self.prefix = Content::default();
                self.prefix_charge = Charge::default();
            }
            Ok(read)
        } else {
            self.read_decoded(buffer)
        };
        let result = result.and_then(|read| self.count(read));
        self.failed = result.is_err();
        result
    }
}

impl Drop for ContentStream {
    fn drop(&mut self) {
        let Some(decoder) = self.decoder.take() else { return };
        let left = StreamLeft {
            decoder,
            unread: std::mem::take(&mut self.unread),
            is_stuck: self.failed || self.owes_continue,
        };
        self.returns.leave(left);
    }
}

impl fmt::Debug for ContentStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentStream")
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
