//! The response of a handler.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::mem;

use bytes::Bytes;
use filoplume_http1::{AsHeaderValue, Headers, InvalidHeader, StaticField};
use http::{Extensions, StatusCode};

use crate::service::blocking_stream::{BlockingStream, OnThread, ReservedThread, on_thread};
use crate::service::file_body::{FileBody, OpenFile};
use crate::service::no_extensions;
use crate::service::pushed::Pushed;
use crate::service::status::IntoStatus;
use crate::service::tcp::Protocol;
use crate::service::upgrade::Upgrade;

static TEXT: StaticField = StaticField::new("content-type: text/plain; charset=utf-8\r\n");
static HTML: StaticField = StaticField::new("content-type: text/html; charset=utf-8\r\n");
static JSON: StaticField = StaticField::new("content-type: application/json\r\n");
static OCTETS: StaticField = StaticField::new("content-type: application/octet-stream\r\n");

/// A response: a status, headers and a body.
///
/// ```
/// use filoplume_runtime::Response;
///
/// let mut response = Response::default();
/// response.set_status(201).set_json(r#"{"id":17}"#);
/// response.add_header("location", "/users/17")?;
/// # Ok::<(), filoplume_runtime::InvalidHeader>(())
/// ```
#[derive(Default)]
#[must_use = "a response does nothing until it is returned"]
pub struct Response {
    status: StatusCode,
    headers: Headers,
    body: ResponseBody,
    /// Boxed, because few responses have one and all are moved.
    upgrade: Option<Box<Upgrade>>,
    /// `None` until something is inserted.
    extensions: Option<Box<Extensions>>,
}

/// See [`Response::add_reader_memory`]. It is an extension, because few responses have it and all
/// are moved. It stays with the response when middleware wraps the reader.
#[derive(Clone, Copy)]
struct ReaderMemory(usize);

/// The body of a response: bytes, or a reader that the engine reads while it sends.
///
/// ```
/// use filoplume_runtime::{Response, ResponseBody};
///
/// let response = Response::from("Hello!");
/// match response.body() {
///     ResponseBody::Bytes(bytes) => assert_eq!(&bytes[..], b"Hello!"),
///     _ => panic!("text is in memory"),
/// }
/// ```
#[derive(Default)]
pub enum ResponseBody {
    /// No content.
    #[default]
    Empty,
    /// Content in memory.
    Bytes(Bytes),
    /// Content of a known length. The connection closes if the reader ends early.
    Sized {
        /// Where the content comes from. It may block.
        reader: Box<dyn Read + Send>,
        /// How many bytes are taken from the reader.
        length: u64,
    },
    /// As [`Sized`](Self::Sized), from a file. On Linux, the system sends it on a plain connection
    /// without copying it through the program.
    File {
        /// Where the content comes from. It may block.
        content: Box<dyn FileBody>,
        /// How many bytes are sent.
        length: u64,
    },
    /// Content of unknown length, sent in chunks. If the reader fails, the connection closes
    /// without the last chunk, so that the peer notices.
    Unsized(Box<dyn Read + Send>),
    /// Content that other threads push, sent in chunks. See [`pushed`](crate::pushed).
    Pushed(Box<Pushed>),
}

impl ResponseBody {
    /// Returns whether all of the body is in memory.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        matches!(self, Self::Empty | Self::Bytes(_))
    }
}

impl Response {
    /// Returns an empty response with a status code. An invalid status code becomes `500`.
    pub fn new(status: impl IntoStatus) -> Self {
        Self { status: status.into_status(), ..Self::default() }
    }

    /// Sets the status. An invalid status code becomes `500`.
    pub fn set_status(&mut self, status: impl IntoStatus) -> &mut Self {
        self.status = status.into_status();
        self
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Adds a header, and keeps others of the same name. This is for `Set-Cookie`, `Link` and the
    /// like. A header that a response has only once, such as `Content-Type`, is set by
    /// [`set_header`](Self::set_header): otherwise both are sent, and clients choose.
    ///
    /// The engine decides on the framing. `Content-Length`, `Transfer-Encoding` and `Connection`
    /// are not sent as given, except that `Connection: close` closes the connection.
    ///
    /// # Errors
    ///
    /// If the name is not a token or the value has a control character, such as a line end.
    pub fn add_header(
        &mut self,
        name: &str,
        value: impl AsHeaderValue,
    ) -> Result<&mut Self, InvalidHeader> {
        self.headers.append(name, value)?;
        Ok(self)
    }

    /// Sets a header, and removes all others of the same name. A second `Set-Cookie` would remove
    /// the first: use [`add_header`](Self::add_header).
    ///
    /// # Errors
    ///
    /// As [`add_header`](Self::add_header).
    pub fn set_header(
        &mut self,
        name: &str,
        value: impl AsHeaderValue,
    ) -> Result<&mut Self, InvalidHeader> {
        self.headers.insert(name, value)?;
        Ok(self)
    }

    /// Returns the headers.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Returns the headers for changes.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.headers
    }

    /// Sets the body to plain text in UTF-8.
    pub fn set_text(&mut self, text: impl Into<Bytes>) -> &mut Self {
        self.send(&TEXT, text)
    }

    /// Sets the body to HTML in UTF-8.
    pub fn set_html(&mut self, html: impl Into<Bytes>) -> &mut Self {
        self.send(&HTML, html)
    }

    /// Sets the body to JSON text.
    pub fn set_json(&mut self, json: impl Into<Bytes>) -> &mut Self {
        self.send(&JSON, json)
    }

    /// Sets the body to bytes. Their type is `application/octet-stream` unless a header says
    /// otherwise.
    pub fn set_bytes(&mut self, bytes: impl Into<Bytes>) -> &mut Self {
        if !self.headers.contains("content-type") {
            self.headers.insert_static(&OCTETS);
        }
        self.replace_body(ResponseBody::Bytes(bytes.into()));
        self
    }

    /// Sets the body to `length` bytes of a reader.
    pub fn set_reader(&mut self, reader: impl Read + Send + 'static, length: u64) -> &mut Self {
        self.body = ResponseBody::Sized { reader: Box::new(reader), length };
        self
    }

    /// Sets the body to `length` bytes of a file, from `offset` on.
    ///
    /// ```no_run
    /// use filoplume_runtime::Response;
    /// use std::fs::File;
    ///
    /// let file = File::open("report.pdf")?;
    /// let length = file.metadata()?.len();
    /// let mut response = Response::default();
    /// response.set_file(file, 0, length);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_file(&mut self, file: File, offset: u64, length: u64) -> &mut Self {
        let content = Box::new(OpenFile::new(file, offset));
        self.body = ResponseBody::File { content, length };
        self
    }

    /// Sets the body to everything that a reader returns, sent in chunks.
    pub fn set_stream(&mut self, reader: impl Read + Send + 'static) -> &mut Self {
        self.body = ResponseBody::Unsized(Box::new(reader));
        self
    }

    /// Says that the body's reader keeps this much memory until the body is sent, in addition to
    /// earlier calls: a document that it reads from, its buffers, an encoder. While the client does
    /// not take the response, these bytes count in [`memory_max`](crate::ServerConfig::memory_max).
    /// Without this call, only the bytes count that were read and not sent. Other bodies are
    /// counted without it.
    ///
    /// ```
    /// use filoplume_runtime::Response;
    /// use std::io::Cursor;
    ///
    /// let report = "a long report\n".repeat(100_000);
    /// let mut response = Response::default();
    /// response.add_reader_memory(report.len()).set_stream(Cursor::new(report));
    /// ```
    pub fn add_reader_memory(&mut self, bytes: usize) -> &mut Self {
        let bytes = self.reader_memory().saturating_add(bytes);
        self.extensions_mut().insert(ReaderMemory(bytes));
        self
    }

    /// Sets the body to what other threads push. See [`pushed`](crate::pushed).
    ///
    /// ```
    /// use filoplume_runtime::{Response, pushed};
    ///
    /// let (sender, body) = pushed::channel();
    /// let mut response = Response::default();
    /// response.set_pushed(body);
    /// # drop(sender);
    /// ```
    pub fn set_pushed(&mut self, body: Pushed) -> &mut Self {
        self.body = ResponseBody::Pushed(Box::new(body));
        self
    }

    /// Sets the body to the pieces of an iterator, sent in chunks. The iterator may block, like a
    /// [reader](Self::set_stream); it is asked for the next piece when the client has taken the
    /// one before. If a piece is an error, the client sees a response that is cut short.
    ///
    /// ```
    /// use filoplume_runtime::Response;
    /// use std::io;
    ///
    /// let mut response = Response::default();
    /// response.set_iterator((1..=3).map(|number| Ok(format!("{number}\n"))));
    /// ```
    pub fn set_iterator<B: Into<Bytes>>(
        &mut self,
        pieces: impl IntoIterator<Item = io::Result<B>, IntoIter: Send + 'static>,
    ) -> &mut Self {
        self.set_stream(Pieces { pieces: pieces.into_iter(), piece: Bytes::new() })
    }

    /// Returns a `101` after which `handler` owns the connection, on a thread of the pool. The
    /// caller sets the headers of the protocol, such as `Upgrade`. These connections have at most
    /// half of [`threads_max`](crate::ServerConfig::threads_max): if there is no thread, the client
    /// gets a `503` instead. [`upgrade_to`](Self::upgrade_to) needs no thread per connection.
    ///
    /// ```
    /// use filoplume_runtime::Response;
    /// use std::io::{Read, Write};
    ///
    /// let mut response = Response::upgrade(|mut socket| {
    ///     let _ = socket.write_all(b"hello in another protocol");
    /// });
    /// response.add_header("upgrade", "greeting")?;
    /// # Ok::<(), filoplume_runtime::InvalidHeader>(())
    /// ```
    pub fn upgrade(handler: impl FnOnce(BlockingStream) + Send + 'static) -> Self {
        Self::upgraded_by(Upgrade::Thread(on_thread(handler)))
    }

    /// Returns a `101` after which the connection speaks `protocol` on the event loop. A silent
    /// connection needs no thread. The protocol receives the events of [`tcp::Protocol`](Protocol),
    /// beginning with [`open`](Protocol::open). The caller sets the headers of the protocol, such
    /// as `Upgrade`.
    ///
    /// ```
    /// use filoplume_runtime::Response;
    /// use filoplume_runtime::tcp::{Io, Protocol};
    ///
    /// /// Sends every byte back.
    /// struct Echo;
    ///
    /// impl Protocol for Echo {
    ///     fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
    ///         io.send(bytes);
    ///         bytes.len()
    ///     }
    /// }
    ///
    /// let mut response = Response::upgrade_to(Echo);
    /// response.add_header("upgrade", "echo")?;
    /// assert_eq!(response.status(), 101);
    /// # Ok::<(), filoplume_runtime::InvalidHeader>(())
    /// ```
    pub fn upgrade_to(protocol: impl Protocol) -> Self {
        Self::upgraded_by(Upgrade::Protocol(Box::new(protocol)))
    }

    fn upgraded_by(upgrade: Upgrade) -> Self {
        Self {
            status: StatusCode::SWITCHING_PROTOCOLS,
            upgrade: Some(Box::new(upgrade)),
            ..Self::default()
        }
    }

    /// Returns the body.
    pub fn body(&self) -> &ResponseBody {
        &self.body
    }

    /// Returns the body for changes.
    pub fn body_mut(&mut self) -> &mut ResponseBody {
        &mut self.body
    }

    /// Returns values that are attached to the response, by type. They are not sent: they are for
    /// code of this process that passes the response on, such as middleware.
    pub fn extensions(&self) -> &Extensions {
        match &self.extensions {
            Some(extensions) => extensions,
            None => no_extensions(),
        }
    }

    /// Returns the attached values for changes.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        self.extensions.get_or_insert_default()
    }

    #[inline]
    fn send(&mut self, content_type: &'static StaticField, content: impl Into<Bytes>) -> &mut Self {
        self.headers.insert_static(content_type);
        self.replace_body(ResponseBody::Bytes(content.into()));
        self
    }

    /// Sets the body. The earlier one is usually empty, and dropping it would cost a call that only
    /// finds that out.
    #[inline(always)]
    #[allow(clippy::mem_forget, reason = "an empty body has nothing to drop")]
    fn replace_body(&mut self, body: ResponseBody) {
        if matches!(self.body, ResponseBody::Empty) {
            mem::forget(mem::replace(&mut self.body, body));
        } else {
            self.body = body;
        }
    }

    /// Returns the parts of a response that is complete and short: nothing to stream and no
    /// upgrade.
    #[inline]
    pub(crate) fn as_plain(&self, bytes_max: usize) -> Option<(StatusCode, &Headers, &[u8])> {
        let content: &[u8] = match &self.body {
            ResponseBody::Bytes(bytes) if bytes.len() <= bytes_max => bytes,
            ResponseBody::Empty => &[],
            _ => return None,
        };
        (!self.status.is_informational()).then_some((self.status, &self.headers, content))
    }

    /// Returns how much memory the body's reader keeps, as far as it was said.
    pub(crate) fn reader_memory(&self) -> usize {
        self.extensions().get().map_or(0, |&ReaderMemory(bytes)| bytes)
    }

    pub(crate) fn is_upgrade(&self) -> bool {
        self.upgrade.is_some()
    }

    /// Returns whether a thread must be reserved before the response is sent.
    pub(crate) fn needs_thread(&self) -> bool {
        self.status == StatusCode::SWITCHING_PROTOCOLS
            && self.upgrade.as_deref().is_some_and(|upgrade| matches!(upgrade, Upgrade::Thread(_)))
    }

    /// Replaces the code that needs a thread. If `reserve` returns `None`, the code is removed.
    pub(crate) fn reserve_thread(
        &mut self,
        reserve: impl FnOnce(OnThread) -> Option<ReservedThread>,
    ) {
        self.upgrade = match self.upgrade.take().map(|upgrade| *upgrade) {
            Some(Upgrade::Thread(handler)) => reserve(handler).map(Upgrade::Reserved),
            upgrade => upgrade,
        }
        .map(Box::new);
    }

    pub(crate) fn into_parts(self) -> (StatusCode, Headers, ResponseBody, Option<Box<Upgrade>>) {
        (self.status, self.headers, self.body, self.upgrade)
    }
}

impl<B: Into<Bytes>> From<http::Response<B>> for Response {
    fn from(response: http::Response<B>) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status,
            headers: Headers::from(&parts.headers),
            body: ResponseBody::Bytes(body.into()),
            upgrade: None,
            extensions: Some(Box::new(parts.extensions)),
        }
    }
}

impl From<Response> for http::Response<ResponseBody> {
    fn from(response: Response) -> Self {
        let mut converted = Self::new(response.body);
        *converted.status_mut() = response.status;
        *converted.headers_mut() = http::HeaderMap::from(&response.headers);
        *converted.extensions_mut() =
            response.extensions.map(|extensions| *extensions).unwrap_or_default();
        converted
    }
}

impl From<&'static str> for Response {
    fn from(text: &'static str) -> Self {
        let mut response = Self::default();
        response.set_text(text);
        response
    }
}

impl From<String> for Response {
    fn from(text: String) -> Self {
        let mut response = Self::default();
        response.set_text(text);
        response
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

/// A reader of the pieces of an iterator.
struct Pieces<I> {
    pieces: I,
    /// What is left of the current piece.
    piece: Bytes,
}

impl<B: Into<Bytes>, I: Iterator<Item = io::Result<B>>> Read for Pieces<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let Some(piece) = self.pieces.next() else { return Ok(0) };
            self.piece = piece?.into();
        }
        let read = self.piece.len().min(buffer.len());
        buffer[..read].copy_from_slice(&self.piece.split_to(read));
        Ok(read)
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Sized { length, .. } => write!(f, "reader of {length} bytes"),
            Self::File { length, .. } => write!(f, "file of {length} bytes"),
            Self::Unsized(_) => f.write_str("reader"),
            Self::Pushed(_) => f.write_str("pushed"),
        }
    }
}
