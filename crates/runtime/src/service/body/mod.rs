//! The content of a request: in memory, or read from the connection as it arrives.

mod handler_time;
mod reader;
mod save;
#[cfg(feature = "spool")]
mod spooled;
mod stream;

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;

use self::reader::ContentReader;
#[cfg(feature = "spool")]
pub(crate) use self::spooled::SpooledContent;
pub(crate) use self::stream::{ContentStream, STREAM_TICK, StreamLeft, StreamReturn, Streamed};
use crate::budget::account::Charge;
use crate::budget::descriptors::HeldDescriptor;
use crate::buffers::Content;
use crate::transport::Transport;

/// The content of a request.
///
/// Reading may wait for the peer, up to the content's deadline. A read returns `TimedOut` if the
/// peer was too slow, `UnexpectedEof` if it closed early, and `InvalidData` if the content is
/// malformed. After each of these errors the connection closes after the response.
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
    /// How many bytes were read and not put back.
    bytes_read: u64,
}

#[expect(clippy::large_enum_variant, reason = "it lies in one allocation, and is not moved")]
enum Kind {
    Memory(Held),
    Stream(ContentStream),
    Reader(ContentReader),
    #[cfg(feature = "spool")]
    Spooled(SpooledContent),
}

/// A content in memory, and its share of the memory budget.
struct Held {
    content: Content,
    /// Released when the handler drops the content or takes ownership of it.
    charge: Charge,
}

impl Body {
    fn of(kind: Kind) -> Self {
        Self { kind: Some(Box::new(kind)), bytes_read: 0 }
    }

    pub(crate) fn from_content(content: Content) -> Self {
        Self::from_charged(content, Charge::default())
    }

    pub(crate) fn from_charged(content: Content, charge: Charge) -> Self {
        Self::of(Kind::Memory(Held { content, charge }))
    }

    pub(crate) fn from_stream(stream: ContentStream) -> Self {
        Self::of(Kind::Stream(stream))
    }

    /// Gives a content that is read as it arrives its own handle of the connection.
    pub(crate) fn open_stream(&mut self, transport: Transport, held: HeldDescriptor) {
        if let Some(Kind::Stream(stream)) = self.kind.as_deref_mut() {
            stream.open(transport, held);
        }
    }

    #[cfg(feature = "spool")]
    pub(crate) fn from_spooled(content: SpooledContent) -> Self {
        Self::of(Kind::Spooled(content))
    }

    /// Returns a content of unknown length that comes from a reader. Use it to replace the content
    /// of a request by one that is made from it, for example by a decoder.
    ///
    /// ```
    /// use filoplume_runtime::{Body, Request};
    /// use std::io::Read;
    ///
    /// /// Lets a handler see the first kilobyte only.
    /// fn shorten(request: &mut Request) {
    ///     let body = std::mem::take(request.body_mut());
    ///     *request.body_mut() = Body::from_reader(body.take(1024));
    /// }
    ///
    /// let mut request = Request::try_from(http::Request::new(vec![b'a'; 5000]))?;
    /// shorten(&mut request);
    /// assert_eq!(request.body().len(), None);
    /// assert_eq!(request.into_body().into_bytes(4096)?.len(), 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_reader(reader: impl Read + Send + 'static) -> Self {
        Self::of(Kind::Reader(ContentReader::new(Box::new(reader))))
    }

    /// Returns whether the content was replaced by a reader.
    pub(crate) fn is_from_reader(&self) -> bool {
        matches!(self.kind.as_deref(), Some(Kind::Reader(_)))
    }

    /// Returns the memory that the content takes and that is not charged to the budget yet. A
    /// content that has arrived together with its head is not: usually its handler runs at once.
    pub(crate) fn uncharged_bytes(&self) -> usize {
        match self.kind.as_deref() {
            Some(Kind::Memory(Held { content, charge })) => {
                content.capacity().saturating_sub(charge.bytes())
            }
            Some(Kind::Stream(stream)) => stream.uncharged_bytes(),
            _ => 0,
        }
    }

    /// Returns the content if all of it is in memory.
    pub fn as_slice(&self) -> Option<&[u8]> {
        match self.kind.as_deref() {
            None => Some(&[]),
            Some(Kind::Memory(held)) => Some(held.content.as_slice()),
            Some(_) => None,
        }
    }

    /// Returns whether the whole content has arrived, in memory or in a file, so that no read waits
    /// for the client. It is not known of a content that comes [from a reader](Self::from_reader).
    ///
    /// ```
    /// let body = filoplume_runtime::Body::from(b"42".to_vec());
    /// assert!(body.has_arrived());
    /// ```
    pub fn has_arrived(&self) -> bool {
        match self.kind.as_deref() {
            None | Some(Kind::Memory(_)) => true,
            Some(Kind::Stream(_) | Kind::Reader(_)) => false,
            #[cfg(feature = "spool")]
            Some(Kind::Spooled(_)) => true,
        }
    }

    /// Returns how many bytes remain to be read, if that is known.
    pub fn len(&self) -> Option<u64> {
        match self.kind.as_deref() {
            None => Some(0),
            Some(Kind::Memory(held)) => Some(held.content.len() as u64),
            Some(Kind::Stream(stream)) => stream.remaining(),
            Some(Kind::Reader(_)) => None,
            #[cfg(feature = "spool")]
            Some(Kind::Spooled(spooled)) => Some(spooled.len()),
        }
    }

    /// Returns whether the body is known to have nothing left to read.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns whether this is a body that was taken, or one without content.
    pub(crate) fn is_default(&self) -> bool {
        self.kind.is_none()
    }

    /// Returns whether bytes were read that were not put back.
    pub(crate) fn was_read(&self) -> bool {
        self.bytes_read > 0
    }

    /// Puts bytes that were read back in front of the rest. Use it after looking at the start of a
    /// content.
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
        self.bytes_read = self.bytes_read.saturating_sub(bytes.len() as u64);
        match self.kind.as_deref_mut() {
            None => *self = Self::from_content(content),
            Some(Kind::Memory(left)) => {
                content.extend(left.content.as_slice());
                left.content = content;
            }
            Some(Kind::Stream(stream)) => {
                content.extend(stream.prefix.as_slice());
                stream.prefix = content;
                // These bytes will be read again.
                stream.bytes_left = stream.bytes_left.saturating_add(bytes.len() as u64);
            }
            Some(Kind::Reader(reader)) => {
                content.extend(reader.prefix.as_slice());
                reader.prefix = content;
                reader.bytes_left = reader.bytes_left.saturating_add(bytes.len() as u64);
            }
            #[cfg(feature = "spool")]
            Some(Kind::Spooled(spooled)) => {
                content.extend(spooled.prefix.as_slice());
                spooled.prefix = content;
            }
        }
    }

    /// Limits the content that has not arrived yet, for code that decides on the limit later than
    /// the plan. A read beyond `bytes_max` fails with `InvalidData`, as does one beyond the bound
    /// of the plan. Bytes that are already in memory or in a file remain readable.
    pub fn bound(&mut self, bytes_max: u64) {
        match self.kind.as_deref_mut() {
            Some(Kind::Stream(stream)) => stream.bytes_left = stream.bytes_left.min(bytes_max),
            Some(Kind::Reader(reader)) => reader.bytes_left = reader.bytes_left.min(bytes_max),
            None | Some(_) => {}
        }
    }

    /// Returns the rest of the content as bytes. Reads it first if it is still arriving.
    ///
    /// # Errors
    ///
    /// Returns the errors of a read, and `FileTooLarge` if the content is longer than `bytes_max`.
    pub fn into_bytes(self, bytes_max: u64) -> io::Result<Bytes> {
        let too_long =
            || Err(io::Error::new(io::ErrorKind::FileTooLarge, "the content is too long"));
        if self.len().is_some_and(|length| length > bytes_max) {
            return too_long();
        }
        match self.kind.map(|kind| *kind) {
            None => Ok(Bytes::new()),
            Some(Kind::Memory(held)) => Ok(held.content.into_bytes()),
            Some(Kind::Stream(stream)) => read_whole(stream, bytes_max)?.map_or_else(too_long, Ok),
            Some(Kind::Reader(reader)) => read_whole(reader, bytes_max)?.map_or_else(too_long, Ok),
            #[cfg(feature = "spool")]
            Some(Kind::Spooled(spooled)) => {
                read_whole(spooled, bytes_max)?.map_or_else(too_long, Ok)
            }
        }
    }
}

/// Returns `None` if the content is longer than `bytes_max`.
fn read_whole(reader: impl Read, bytes_max: u64) -> io::Result<Option<Bytes>> {
    let mut bytes = Vec::new();
    reader.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then(|| bytes.into()))
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
        let read = match self.kind.as_deref_mut() {
            None => 0,
            Some(Kind::Memory(held)) => {
                let read = held.content.as_slice().read(buffer)?;
                held.content.advance(read);
                read
            }
            Some(Kind::Stream(stream)) => stream.read(buffer)?,
            Some(Kind::Reader(reader)) => reader.read(buffer)?,
            #[cfg(feature = "spool")]
            Some(Kind::Spooled(spooled)) => spooled.read(buffer)?,
        };
        self.bytes_read = self.bytes_read.saturating_add(read as u64);
        Ok(read)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.as_deref() {
            None => f.write_str("empty"),
            // The content itself is not printed: forms contain passwords.
            Some(Kind::Memory(held)) => write!(f, "{} bytes", held.content.len()),
            Some(Kind::Stream(stream)) => stream.fmt(f),
            Some(Kind::Reader(_)) => f.write_str("reader"),
            #[cfg(feature = "spool")]
            Some(Kind::Spooled(spooled)) => write!(f, "{} bytes in a file", spooled.len()),
        }
    }
}

/// The reason why the peer's content could not be read to its end. It is the source of the
/// [`io::Error`] of a read, so that this error can be told from errors of the program's own files
/// and sockets. A malformed content has a `ParseError` there instead.
///
/// ```
/// use filoplume_runtime::ContentError;
/// use std::io;
///
/// /// Returns whether the peer caused the error.
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
    /// The peer closed the connection before the content was complete.
    Ended,
    /// The peer was too slow.
    TooSlow,
}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the peer closed the connection before the content was complete",
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
