//! The order of responses on one connection of a client: which bytes may come next, and whether
//! another response may follow.
//!
//! There is no input buffer here: the caller holds the bytes, drops the consumed ones and calls
//! again. In the steady state nothing is allocated for a response, except for trailer fields.

use std::fmt;

use http::Method;

use crate::content::ContentDecoder;
use crate::error::ParseError;
use crate::framing::Framing;
use crate::limits::Limits;
use crate::response::{ResponseFraming, ResponseHead, parse_response_head};

/// Reads the responses of one connection in order.
///
/// ```
/// use filoplume_http1::{Limits, ResponseEvent, ResponseReader};
/// use http::Method;
///
/// let mut unread =
///     b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmeowHTTP/1.1 204 No Content\r\n\r\n"
///         .as_slice();
/// let (mut reader, limits) = (ResponseReader::new(), Limits::default());
/// let mut seen = Vec::new();
/// loop {
///     let (used, event) = reader.receive(unread, &Method::GET, &limits)?;
///     unread = &unread[used..];
///     match event {
///         Some(ResponseEvent::Interim(head) | ResponseEvent::Head(head)) => {
///             seen.push(head.status().to_string())
///         }
///         Some(ResponseEvent::Content(content)) => {
///             seen.push(String::from_utf8_lossy(content).into_owned())
///         }
///         Some(ResponseEvent::End) => seen.push("end".to_owned()),
///         None => break,
///     }
/// }
/// assert_eq!(seen, ["200 OK", "meow", "end", "204 No Content", "end"]);
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Debug)]
pub struct ResponseReader {
    reading: Reading,
    cache: HeadCache,
    /// Whether another response may follow.
    is_persistent: bool,
}

/// A cache of the last head and of the result of parsing it.
///
/// A server often sends the same head many times; only the date changes, once per second. The same
/// bytes have the same meaning if the method and the limits are the same, and comparing them costs
/// a fraction of parsing them. When every head is different, comparing and storing heads is wasted
/// work, so the cache is then used only from time to time.
struct HeadCache {
    bytes: Vec<u8>,
    method: Method,
    limits: Limits,
    /// The result of parsing `bytes`. `None` as long as the cache is empty.
    meaning: Option<ResponseHead<'static>>,
    /// The number of consecutive heads that differed from the one before.
    misses: u8,
    /// How many more heads are parsed without using the cache.
    paused_heads: u8,
}

impl fmt::Debug for HeadCache {
    // The bytes are not shown: they may contain a `Set-Cookie`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadCache")
            .field("bytes", &self.bytes.len())
            .field("meaning", &self.meaning)
            .field("misses", &self.misses)
            .finish_non_exhaustive()
    }
}

/// Consecutive misses after which the cache is paused.
const MISSES_MAX: u8 = 4;

/// Heads that are parsed without the cache during a pause.
const PAUSE_HEADS: u8 = 128;

/// Longest head that is cached. Longer heads are rare, and parsing is a small part of the time that
/// they take.
const CACHED_BYTES_MAX: usize = 1024;

/// What the next byte belongs to.
#[derive(Debug)]
enum Reading {
    Head,
    /// The last byte of the content was read, or there is no content.
    Complete,
    Length(u64),
    Chunked(ContentDecoder),
    UntilClose,
    /// Nothing more is read: the connection is finished, or belongs to another protocol.
    Over,
    Refused(ParseError),
}

/// The next part of a response, found at the start of the input.
///
/// ```
/// use filoplume_http1::{Limits, ResponseEvent, ResponseReader};
///
/// let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
/// let (_, event) = ResponseReader::new().receive(input, &http::Method::PUT, &Limits::default())?;
/// assert!(matches!(event, Some(ResponseEvent::Interim(head)) if head.status() == 100));
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum ResponseEvent<'a> {
    /// The head of an interim response (1xx). The final response follows.
    Interim(ResponseHead<'a>),
    /// The head of the final response.
    Head(ResponseHead<'a>),
    /// A part of the content, never empty.
    Content(&'a [u8]),
    /// The response is complete.
    End,
}

/// What the end of the connection means for the response in progress.
///
/// ```
/// use filoplume_http1::{Limits, PeerClosed, ResponseReader};
///
/// let input = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
/// let mut reader = ResponseReader::new();
/// reader.receive(input, &http::Method::GET, &Limits::default())?;
/// assert_eq!(reader.peer_closed(b""), PeerClosed::Truncated);
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerClosed {
    /// No response had begun.
    BetweenResponses,
    /// The end of the connection is the end of the response, which is complete.
    Ended,
    /// A response had begun and is incomplete.
    Truncated,
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponseReader {
    /// Returns a reader for a new connection.
    #[inline]
    pub fn new() -> Self {
        Self { reading: Reading::Head, cache: HeadCache::default(), is_persistent: true }
    }

    /// Starts over for a new connection and keeps the buffers of this one.
    #[inline]
    pub fn restart(&mut self) {
        self.reading = Reading::Head;
        self.is_persistent = true;
    }

    /// Returns how many bytes of `input` were consumed, and the next event. The event is `None` if
    /// more bytes are needed or [no response may follow](Self::is_persistent). `method` is the
    /// method of the request that the response answers.
    ///
    /// # Errors
    ///
    /// Returns an error if the response is malformed or its end is ambiguous. Every later call
    /// returns the same error.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        input: &'a [u8],
        method: &Method,
        limits: &Limits,
    ) -> Result<(usize, Option<ResponseEvent<'a>>), ParseError> {
        match &mut self.reading {
            Reading::Head => {
                if let Some((head, used)) = self.cache.find(input, method, limits) {
                    return Ok((used, Some(self.begin(head, limits)?)));
                }
                match parse_response_head(input, method, limits) {
                    Ok(None) => Ok((0, None)),
                    Ok(Some((head, used))) => {
                        self.cache.note_parsed(&head, method, limits);
                        Ok((used, Some(self.begin(head, limits)?)))
                    }
                    Err(error) => Err(self.refuse(error)),
                }
            }
            Reading::Complete => {
                self.reading = if self.is_persistent { Reading::Head } else { Reading::Over };
                Ok((0, Some(ResponseEvent::End)))
            }
            Reading::Length(left) => {
                let run = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left = left.saturating_sub(run as u64);
                if *left == 0 {
                    self.reading = Reading::Complete;
                }
                Ok((run, content(input.get(..run).unwrap_or_default())))
            }
            Reading::Chunked(decoder) => match decoder.decode(input) {
                Ok(decoded) => {
                    if decoder.is_complete() {
                        self.reading = Reading::Complete;
                    }
                    let found = content(input.get(decoded.data).unwrap_or_default());
                    if found.is_none() && matches!(self.reading, Reading::Complete) {
                        let (_, end) = self.receive(&[], method, limits)?;
                        return Ok((decoded.consumed, end));
                    }
                    Ok((decoded.consumed, found))
                }
                Err(error) => Err(self.refuse(error)),
            },
            Reading::UntilClose => Ok((input.len(), content(input))),
            Reading::Over => Ok((0, None)),
            Reading::Refused(error) => Err(*error),
        }
    }

    /// Records that the peer has closed the connection, and returns what this means. `unread` is
    /// the input that was not consumed.
    #[inline]
    pub fn peer_closed(&mut self, unread: &[u8]) -> PeerClosed {
        match std::mem::replace(&mut self.reading, Reading::Over) {
            Reading::UntilClose => PeerClosed::Ended,
            Reading::Head | Reading::Over if unread.is_empty() => PeerClosed::BetweenResponses,
            _ => PeerClosed::Truncated,
        }
    }

    /// Returns whether another response may follow the one in progress, or the last one if none is
    /// in progress.
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Returns whether a final head was read and its response is incomplete.
    #[inline]
    pub fn is_within_response(&self) -> bool {
        !matches!(self.reading, Reading::Head | Reading::Over)
    }

    #[inline]
    fn begin<'a>(
        &mut self,
        head: ResponseHead<'a>,
        limits: &Limits,
    ) -> Result<ResponseEvent<'a>, ParseError> {
        if head.is_interim() {
            return Ok(ResponseEvent::Interim(head));
        }
        self.is_persistent = head.is_persistent();
        self.reading = match head.framing() {
            ResponseFraming::Empty | ResponseFraming::Length(0) | ResponseFraming::HandedOver => {
                Reading::Complete
            }
            ResponseFraming::Length(length) => Reading::Length(length),
            // A client sets no bound: it can drop long content piece by piece.
            ResponseFraming::Chunked => {
                Reading::Chunked(ContentDecoder::new(Framing::Chunked, u64::MAX, limits)?)
            }
            ResponseFraming::UntilClose => Reading::UntilClose,
        };
        Ok(ResponseEvent::Head(head))
    }

    #[cold]
    fn refuse(&mut self, error: ParseError) -> ParseError {
        self.reading = Reading::Refused(error);
        self.is_persistent = false;
        error
    }
}

impl Default for HeadCache {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            method: Method::GET,
            limits: Limits::default(),
            meaning: None,
            misses: 0,
            paused_heads: 0,
        }
    }
}

impl HeadCache {
    /// Returns the head at the start of the input and its length, if it is the cached one.
    #[inline]
    fn find<'a>(
        &mut self,
        input: &'a [u8],
        method: &Method,
        limits: &Limits,
    ) -> Option<(ResponseHead<'a>, usize)> {
        if self.paused_heads > 0 {
            return None;
        }
        let meaning = self.meaning.as_ref()?;
        let (bytes, _) = input.split_at_checked(self.bytes.len())?;
        if bytes != self.bytes || *method != self.method || *limits != self.limits {
            return None;
        }
        self.misses = 0;
        Some((meaning.with_bytes(bytes), bytes.len()))
    }

    /// Records a head that was parsed.
    #[inline]
    fn note_parsed(&mut self, head: &ResponseHead<'_>, method: &Method, limits: &Limits) {
        match self.paused_heads.checked_sub(1) {
            Some(left) => self.paused_heads = left,
            None => self.store(head, method, limits),
        }
    }

    #[inline(never)]
    fn store(&mut self, head: &ResponseHead<'_>, method: &Method, limits: &Limits) {
        self.misses = self.misses.saturating_add(1);
        if self.misses > MISSES_MAX {
            (self.misses, self.paused_heads) = (0, PAUSE_HEADS);
            return;
        }
        let bytes = head.bytes();
        if bytes.len() > CACHED_BYTES_MAX {
            return;
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        if self.method != *method {
            self.method = method.clone();
        }
        self.limits = *limits;
        self.meaning = Some(head.with_bytes(&[]));
    }
}

fn content(run: &[u8]) -> Option<ResponseEvent<'_>> {
    (!run.is_empty()).then_some(ResponseEvent::Content(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_how_long_the_remembered_head_is_and_not_its_bytes() {
        let cache = HeadCache { bytes: b"set-cookie: a=b".to_vec(), ..HeadCache::default() };
        let shown = format!("{cache:?}");
        assert!(shown.contains("HeadCache { bytes: 15,"), "{shown}");
        assert!(!shown.contains("set-cookie"), "{shown}");
    }

    /// Tests the cache itself: without it the results would be the same, only slower.
    #[test]
    fn a_repeated_head_is_found_in_the_cache_unless_it_is_long() {
        let limits = Limits::default();
        let (get, head) = (Method::GET, Method::HEAD);
        let bytes = |len: usize| {
            let padding = "x".repeat(len - "HTTP/1.1 204 \r\nA: \r\n\r\n".len());
            format!("HTTP/1.1 204 \r\nA: {padding}\r\n\r\n").into_bytes()
        };
        for (len, is_cached) in
            [(30, true), (CACHED_BYTES_MAX, true), (CACHED_BYTES_MAX + 1, false), (2000, false)]
        {
            let (mut reader, bytes) = (ResponseReader::new(), bytes(len));
            assert!(reader.cache.find(&bytes, &get, &limits).is_none(), "the cache is empty");
            reader.receive(&bytes, &get, &limits).unwrap();
            let again = reader.cache.find(&bytes, &get, &limits);
            assert_eq!(again.map(|(_, used)| used), is_cached.then_some(len));
            assert!(reader.cache.find(&bytes, &head, &limits).is_none(), "the method is different");
            let strict = Limits { fields_max: 1, ..limits };
            assert!(reader.cache.find(&bytes, &get, &strict).is_none(), "the limits are different");
            assert!(
                reader.cache.find(&bytes[..len - 1], &get, &limits).is_none(),
                "the head is incomplete"
            );
        }
    }
}
