//! The order of responses on one connection of a client: which bytes may come next, and whether
//! another may follow.
//!
//! No buffer lives here: the caller holds the bytes, drops those that are done with, and calls
//! again. In the steady state nothing is allocated for a response, but for trailer fields.

use std::fmt;

use http::Method;

use crate::content::ContentDecoder;
use crate::error::ParseError;
use crate::framing::Framing;
use crate::limits::Limits;
use crate::response::{ResponseFraming, ResponseHead, parse_response_head};

/// Reads the responses of one connection, one after the other.
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
    last: LastHead,
    /// No response so far has ended the connection.
    is_persistent: bool,
}

/// The last head and what it meant.
///
/// Servers say the same again and again, but for the date, which changes once a second. The same
/// bytes, to the same method and under the same limits, mean the same: to compare them costs a
/// fraction of parsing them. Where no head comes twice, looking and remembering are in vain, so
/// that it is tried only now and then.
struct LastHead {
    bytes: Vec<u8>,
    method: Method,
    limits: Limits,
    /// Its bytes are those above. `None` as long as nothing is remembered.
    meaning: Option<ResponseHead<'static>>,
    /// Heads in a row that were other ones than those before them.
    misses: u8,
    /// How many heads are still to be parsed without looking.
    pause: u8,
}

impl fmt::Debug for LastHead {
    // Not the bytes: there may be a `Set-Cookie` among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastHead")
            .field("bytes", &self.bytes.len())
            .field("meaning", &self.meaning)
            .field("misses", &self.misses)
            .finish_non_exhaustive()
    }
}

/// Misses in a row after which it looks as if no head came twice.
const MISSES_MAX: u8 = 4;

/// Heads that are then parsed before the next attempt.
const PAUSE_HEADS: u8 = 128;

/// Longest head that is remembered. A longer one is rare, and its comparison is not what takes the
/// time.
const REMEMBERED_BYTES_MAX: usize = 1024;

/// What the next byte belongs to.
#[derive(Debug)]
enum Reading {
    Head,
    /// The last byte of the content was read, or there is none.
    Complete,
    Length(u64),
    Chunked(ContentDecoder),
    UntilClose,
    /// Nothing more is read here: the connection is finished, or belongs to another protocol.
    Over,
    Refused(ParseError),
}

/// What was found at the start of the input.
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
    /// An interim response (1xx). The final one is still to come.
    Interim(ResponseHead<'a>),
    /// The final response begins.
    Head(ResponseHead<'a>),
    /// A run of its content, never empty.
    Content(&'a [u8]),
    /// The response is complete.
    End,
}

/// What it means that the peer has closed the connection.
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
    /// That is how the response ends: it is complete.
    Ended,
    /// A response had begun and will never be complete.
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
        Self { reading: Reading::Head, last: LastHead::default(), is_persistent: true }
    }

    /// Starts over for a new connection, with the memory of this one.
    #[inline]
    pub fn restart(&mut self) {
        self.reading = Reading::Head;
        self.is_persistent = true;
    }

    /// Returns how many bytes of `input` are done with, and the next thing the peer said, or `None`
    /// if more bytes are needed or [nothing may follow](Self::is_persistent). `method` is that of
    /// the request that is answered next.
    ///
    /// # Errors
    ///
    /// The response is malformed, or its end is in doubt. Every later call gives the same error.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        input: &'a [u8],
        method: &Method,
        limits: &Limits,
    ) -> Result<(usize, Option<ResponseEvent<'a>>), ParseError> {
        match &mut self.reading {
            Reading::Head => {
                if let Some((head, used)) = self.last.again(input, method, limits) {
                    return Ok((used, Some(self.begin(head, limits)?)));
                }
                match parse_response_head(input, method, limits) {
                    Ok(None) => Ok((0, None)),
                    Ok(Some((head, used))) => {
                        self.last.parsed(&head, method, limits);
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

    /// Takes note that the peer sends nothing more. `unread` is what it sent that was not consumed.
    #[inline]
    pub fn peer_closed(&mut self, unread: &[u8]) -> PeerClosed {
        match std::mem::replace(&mut self.reading, Reading::Over) {
            Reading::UntilClose => PeerClosed::Ended,
            Reading::Head | Reading::Over if unread.is_empty() => PeerClosed::BetweenResponses,
            _ => PeerClosed::Truncated,
        }
    }

    /// Returns whether another response may follow the one in progress, or the last one.
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Returns whether a final head was read whose response is not complete.
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
            // A client has no bound: what is long may be dropped piece by piece.
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

impl Default for LastHead {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            method: Method::GET,
            limits: Limits::default(),
            meaning: None,
            misses: 0,
            pause: 0,
        }
    }
}

impl LastHead {
    /// Returns the head at the start of the input and its length, if it is the last one once more.
    #[inline]
    fn again<'a>(
        &mut self,
        input: &'a [u8],
        method: &Method,
        limits: &Limits,
    ) -> Option<(ResponseHead<'a>, usize)> {
        if self.pause > 0 {
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

    /// Takes note of a head that was parsed.
    #[inline]
    fn parsed(&mut self, head: &ResponseHead<'_>, method: &Method, limits: &Limits) {
        match self.pause.checked_sub(1) {
            Some(left) => self.pause = left,
            None => self.remember(head, method, limits),
        }
    }

    #[inline(never)]
    fn remember(&mut self, head: &ResponseHead<'_>, method: &Method, limits: &Limits) {
        self.misses = self.misses.saturating_add(1);
        if self.misses > MISSES_MAX {
            (self.misses, self.pause) = (0, PAUSE_HEADS);
            return;
        }
        let bytes = head.bytes();
        if bytes.len() > REMEMBERED_BYTES_MAX {
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

    /// What would mean the same if it were forgotten, but cost more.
    #[test]
    fn a_head_that_comes_again_is_known_if_it_is_not_long() {
        let limits = Limits::default();
        let (get, head) = (Method::GET, Method::HEAD);
        let bytes = |len: usize| {
            let padding = "x".repeat(len - "HTTP/1.1 204 \r\nA: \r\n\r\n".len());
            format!("HTTP/1.1 204 \r\nA: {padding}\r\n\r\n").into_bytes()
        };
        for (len, is_known) in [
            (30, true),
            (REMEMBERED_BYTES_MAX, true),
            (REMEMBERED_BYTES_MAX + 1, false),
            (2000, false),
        ] {
            let (mut reader, bytes) = (ResponseReader::new(), bytes(len));
            assert!(reader.last.again(&bytes, &get, &limits).is_none(), "nothing came before");
            reader.receive(&bytes, &get, &limits).unwrap();
            let again = reader.last.again(&bytes, &get, &limits);
            assert_eq!(again.map(|(_, used)| used), is_known.then_some(len));
            assert!(
                reader.last.again(&bytes, &head, &limits).is_none(),
                "something else was asked"
            );
            let strict = Limits { fields_max: 1, ..limits };
            assert!(
                reader.last.again(&bytes, &get, &strict).is_none(),
                "something else is allowed"
            );
            assert!(
                reader.last.again(&bytes[..len - 1], &get, &limits).is_none(),
                "it is not whole"
            );
        }
    }
}
