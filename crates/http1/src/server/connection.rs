//! The order of messages on one connection of a server: which bytes may come next, whether the
//! connection is kept alive, and the reason if it closes.
//!
//! There is no buffer here. The type is small, because ten thousand idle connections hold one each.

use http::{Method, StatusCode};

use crate::content::{BodyEncoding, ContentLength};
use crate::date::Date;
use crate::error::ParseError;
use crate::fields::{HeadParts, Headers};
use crate::framing::Framing;
use crate::limits::Limits;
use crate::request::{RequestHead, parse_if_not_plain, parse_if_plain, parse_request_head};
use crate::response::{
    ConnectionField, LengthField, write_ok_head, write_refusal, write_refusal_head,
    write_response_head,
};
use crate::server::exchange::{CloseReason, Next};
use crate::server::framing::{MethodKind, RequestFacts};
use crate::server::partial::PartialHead;
use crate::syntax::list_members;
use crate::version::Version;

/// The order of messages on one connection of a server.
///
/// A connection has two halves: the request that is read and the response that is written. When
/// both are complete, [`next`](Self::next) decides whether another request may follow.
///
/// ```
/// use filoplume_http1::{
///     BodyEncoding, ContentLength, Date, Headers, Limits, Next, ServerConnection,
/// };
/// use http::StatusCode;
///
/// let mut connection = ServerConnection::new();
/// let input = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
/// let (head, used) =
///     connection.read_head(input, &Limits::default())?.expect("the head is whole");
/// assert_eq!((head.path(), used), ("/", input.len()));
///
/// let mut out = Vec::new();
/// let date = Date::new(std::time::UNIX_EPOCH);
/// let encoding = connection.write_head(
///     StatusCode::OK,
///     &Headers::new(),
///     ContentLength::Known(5),
///     &date,
///     &mut out,
/// );
/// assert_eq!(encoding, BodyEncoding::Length(5));
/// out.extend_from_slice(b"Hello");
/// connection.write_done();
/// assert_eq!(connection.next(), Some(Next::KeepAlive));
/// # Ok::<(), filoplume_http1::ParseError>(())
/// ```
#[derive(Debug)]
pub struct ServerConnection {
    reading: Reading,
    writing: Writing,
    request: RequestFacts,
    close_reason: Option<CloseReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Head,
    /// As `Head`, and some of its bytes have arrived.
    PartialHead(PartialHead),
    Content,
    /// The request was read to its end, or abandoned. If it was abandoned, there is a reason to
    /// close.
    Complete,
    Refused(ParseError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Head,
    Content,
    Complete,
}

impl Default for ServerConnection {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerConnection {
    /// Returns a connection that is ready for its first request.
    #[inline]
    pub const fn new() -> Self {
        Self {
            reading: Reading::Head,
            writing: Writing::Head,
            request: RequestFacts {
                version: Version::Http11,
                method: MethodKind::Other,
                expects_continue: false,
            },
            close_reason: None,
        }
    }

    /// Returns the next head and its length, or `None` if more bytes are needed. It also returns
    /// `None` while a request is in progress, and always after a close was decided.
    ///
    /// If the last call needed more bytes, `input` begins with the bytes of that call. A head that
    /// arrives in many pieces is not parsed after each piece, so that its cost stays within a small
    /// multiple of its length. A malformed head may therefore be refused a few bytes later than
    /// possible.
    ///
    /// For a request without content, this completes the reading half.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`parse_request_head`](crate::parse_request_head). After an error the
    /// connection will close, and every later call returns the same error.
    #[inline(always)]
    pub fn read_head(
        &mut self,
        input: &[u8],
        limits: &Limits,
    ) -> Result<Option<(RequestHead, usize)>, ParseError> {
        match self.read_head_if_plain(input, limits) {
            Some(plain) => Ok(Some(plain)),
            None => self.read_head_cold(input, limits),
        }
    }

    /// Returns the head if it is plain and complete. Otherwise the general parser decides.
    #[inline(always)]
    fn read_head_if_plain(
        &mut self,
        input: &[u8],
        limits: &Limits,
    ) -> Option<(RequestHead, usize)> {
        if self.reading != Reading::Head || self.close_reason.is_some() {
            return None;
        }
        let (head, used) = parse_if_plain(input, limits)?;
        self.begin(&head);
        Some((head, used))
    }

    /// Reads any other head. It is a separate function so that the values of the common path stay
    /// in registers.
    #[inline(never)]
    fn read_head_cold(
        &mut self,
        input: &[u8],
        limits: &Limits,
    ) -> Result<Option<(RequestHead, usize)>, ParseError> {
        let parsed = match &mut self.reading {
            Reading::Refused(error) => return Err(*error),
            _ if self.close_reason.is_some() => return Ok(None),
            Reading::Head => parse_if_not_plain(input, limits),
            Reading::PartialHead(partial) => {
                if !partial.is_due(input, limits) {
                    return Ok(None);
                }
                parse_request_head(input, limits)
            }
            _ => return Ok(None),
        };
        match &parsed {
            Ok(Some((head, _))) => self.begin(head),
            Ok(None) => self.note_partial(input),
            Err(error) => {
                self.note_method(input);
                self.refuse(*error);
            }
        }
        parsed
    }

    /// Records that the content was read to its end.
    #[inline]
    pub fn content_done(&mut self) {
        if self.reading == Reading::Content {
            self.reading = Reading::Complete;
        }
    }

    /// Records that the content will not be read to its end. The connection will close, because the
    /// start of the next request is then unknown.
    pub fn content_abandoned(&mut self) {
        if self.reading == Reading::Content {
            self.reading = Reading::Complete;
            self.close(CloseReason::ContentUnread);
        }
    }

    /// Records that the content is malformed. The connection will close.
    pub fn content_refused(&mut self, error: ParseError) {
        if self.reading == Reading::Content {
            self.refuse(error);
        }
    }

    /// Appends `100 Continue` if the peer waits for it, and returns whether it was appended (RFC
    /// 9110 section 10.1.1). It is sent at most once per request, and not after the final head.
    pub fn write_continue(&mut self, out: &mut Vec<u8>) -> bool {
        let is_due = self.request.expects_continue
            && self.reading == Reading::Content
            && self.writing == Writing::Head;
        if is_due {
            self.request.expects_continue = false;
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        is_due
    }

    /// Appends the head of a response and returns how the caller must write the content.
    ///
    /// The framing is decided here: `Content-Length`, `Transfer-Encoding`, `Connection` and
    /// `Keep-Alive` in `headers` are not copied. If `headers` has `Connection: close`, the
    /// connection closes after the response. If it has `Upgrade`, `Connection` lists it, as RFC
    /// 9110 section 7.8 demands. `Date` is added if there is none.
    ///
    /// A status of 1xx other than 101 is an interim response, and the final response must still
    /// follow. Interim responses are not written for HTTP/1.0 requests. Nothing is written if a
    /// final head was already written.
    #[inline]
    pub fn write_head(
        &mut self,
        status: StatusCode,
        headers: &Headers,
        content: ContentLength,
        date: &Date,
        out: &mut Vec<u8>,
    ) -> BodyEncoding {
        // The most common response: none of its fields affects the framing or the connection.
        if let (
            Writing::Head,
            StatusCode::OK,
            MethodKind::Other,
            ContentLength::Known(length @ 1..),
            Some(lines),
        ) = (self.writing, status, self.request.method, content, headers.wire_lines())
        {
            self.writing = Writing::Content;
            write_ok_head(
                lines,
                length,
                self.request.connection_field(self.close_reason, false),
                date,
                out,
            );
            return BodyEncoding::Length(length);
        }
        self.write_head_cold(status, headers, content, date, out)
    }

    #[inline(never)]
    fn write_head_cold(
        &mut self,
        status: StatusCode,
        headers: &Headers,
        content: ContentLength,
        date: &Date,
        out: &mut Vec<u8>,
    ) -> BodyEncoding {
        if self.writing != Writing::Head {
            return BodyEncoding::None;
        }
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            self.write_interim_head(status, headers, out);
            return BodyEncoding::None;
        }
        self.writing = Writing::Content;
        let (length, encoding) = self.request.response_framing(status, content);
        if encoding == BodyEncoding::UntilClose {
            self.close(CloseReason::UntilClose);
        }
        let plain = headers.wire_lines();
        if plain.is_none() && asks_to_close(headers) {
            self.close(CloseReason::HandlerAsked);
        }
        if self.request.is_handed_over(status) {
            // Another protocol begins here, so an earlier reason to close no longer applies.
            self.close_reason = Some(CloseReason::Upgraded);
        }
        let has_upgrade = status == StatusCode::SWITCHING_PROTOCOLS
            || (plain.is_none() && headers.contains("upgrade"));
        let connection = self.request.connection_field(self.close_reason, has_upgrade);
        write_response_head(status, headers, length, connection, Some(date), out);
        encoding
    }

    /// Appends the response to a refused request, as [`write_refusal`] does, but without content if
    /// the method is `HEAD` (RFC 9110 section 9.3.2).
    ///
    /// ```
    /// use filoplume_http1::{Date, Limits, ServerConnection};
    ///
    /// let mut connection = ServerConnection::new();
    /// let error = connection
    ///     .read_head(b"HEAD / HTTP/1.1\r\n\r\n", &Limits::default())
    ///     .expect_err("there is no Host");
    /// let mut out = Vec::new();
    /// connection.write_refusal(
    ///     error.status_code(),
    ///     &Date::new(std::time::UNIX_EPOCH),
    ///     None,
    ///     &mut out,
    /// );
    /// assert!(out.starts_with(b"HTTP/1.1 400 Bad Request\r\n") && out.ends_with(b"\r\n\r\n"));
    /// ```
    pub fn write_refusal(
        &self,
        status: StatusCode,
        date: &Date,
        extra: Option<(&str, &str)>,
        out: &mut Vec<u8>,
    ) {
        if self.is_head_request() {
            write_refusal_head(status, date, extra, out);
        } else {
            write_refusal(status, date, extra, out);
        }
    }

    /// Records that the last byte of the response was written.
    #[inline]
    pub fn write_done(&mut self) {
        if self.writing == Writing::Content {
            self.writing = Writing::Complete;
        }
    }

    /// Closes the connection after the response in progress. If this is called more than once, the
    /// first reason is kept.
    #[inline]
    pub fn close(&mut self, reason: CloseReason) {
        self.close_reason.get_or_insert(reason);
    }

    /// Returns whether the connection is kept alive or closed, or `None` until both halves are
    /// complete. No other function decides this.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "it is not an iterator: `None` means not yet"
    )]
    pub fn next(&mut self) -> Option<Next> {
        if !(self.reading_is_complete() && self.writing == Writing::Complete) {
            return None;
        }
        match self.close_reason {
            Some(reason) => Some(Next::Close(reason)),
            None => {
                *self = Self::new();
                Some(Next::KeepAlive)
            }
        }
    }

    /// Returns the reason if the connection will close after the response in progress.
    #[inline]
    pub fn will_close(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// Returns whether no request is in progress. If so, the connection may be closed without
    /// losing a message.
    #[inline]
    pub fn is_between_messages(&self) -> bool {
        matches!(self.reading, Reading::Head | Reading::PartialHead(_))
            && self.writing == Writing::Head
    }

    /// Returns whether the request in progress was read completely, or reading has ended for
    /// another reason.
    #[inline]
    pub fn reading_is_complete(&self) -> bool {
        matches!(self.reading, Reading::Complete | Reading::Refused(_))
    }

    /// Returns whether a final head was written for the request in progress.
    #[inline]
    pub fn has_written_head(&self) -> bool {
        self.writing != Writing::Head
    }

    /// Returns whether the method of the request in progress is `HEAD`.
    #[inline]
    pub fn is_head_request(&self) -> bool {
        self.request.method == MethodKind::Head
    }

    /// Returns the version of the request in progress, or HTTP/1.1 if there is none.
    #[inline]
    pub fn version(&self) -> Version {
        self.request.version
    }

    #[inline]
    fn begin(&mut self, head: &RequestHead) {
        let HeadParts { method, version, facts, .. } = head.parts();
        let method = match *method {
            Method::HEAD => MethodKind::Head,
            Method::CONNECT => MethodKind::Connect,
            _ => MethodKind::Other,
        };
        self.request =
            RequestFacts { version: *version, method, expects_continue: facts.expects_continue };
        self.reading = match facts.framing {
            Framing::Empty | Framing::Length(0) => Reading::Complete,
            Framing::Length(_) | Framing::Chunked => Reading::Content,
        };
        if !facts.is_persistent {
            self.close(match version {
                Version::Http10 => CloseReason::Http10,
                Version::Http11 => CloseReason::PeerAsked,
            });
        }
    }

    #[cold]
    fn note_partial(&mut self, input: &[u8]) {
        if self.reading == Reading::Head && !input.is_empty() {
            self.reading = Reading::PartialHead(PartialHead::new(input));
        }
        self.note_method(input);
    }

    /// Records the method of an incomplete or malformed head, because a response to `HEAD` has no
    /// content.
    #[cold]
    fn note_method(&mut self, input: &[u8]) {
        if input.strip_prefix(b"\r\n").unwrap_or(input).starts_with(b"HEAD ") {
            self.request.method = MethodKind::Head;
        }
    }

    #[cold]
    fn refuse(&mut self, error: ParseError) {
        self.reading = Reading::Refused(error);
        self.close(CloseReason::Refused(error));
    }

    #[cold]
    fn write_interim_head(&mut self, status: StatusCode, headers: &Headers, out: &mut Vec<u8>) {
        if self.request.version == Version::Http10 {
            return;
        }
        if status == StatusCode::CONTINUE {
            self.request.expects_continue = false;
        }
        write_response_head(
            status,
            headers,
            LengthField::Absent,
            ConnectionField::Absent,
            None,
            out,
        );
    }
}

fn asks_to_close(headers: &Headers) -> bool {
    headers
        .get_all("connection")
        .flat_map(list_members)
        .any(|option| option.eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
