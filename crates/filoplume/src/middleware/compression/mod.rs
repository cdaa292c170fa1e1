//! Compresses responses.

mod encode;
mod exact_length;
mod negotiate;

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use filoplume_runtime::{Headers, Method, Request, Response, ResponseBody};

use self::encode::{encoder, encoder_bytes};
use self::exact_length::ExactLengthReader;
use self::negotiate::{Choice, choose};
use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::semantics::conditional::is_range_dated;
use crate::semantics::vary::add_vary;

/// Shortest content that is compressed. Content of about one packet gains nothing, and short texts
/// grow.
const BYTES_MIN: u64 = 1024;

/// Content in memory of at least this length is compressed while it is sent. So the first bytes
/// leave sooner, and there is no second copy of the whole content in memory.
const STREAM_FROM_BYTES: usize = 256 * 1024;

/// Compresses responses with zstd, Brotli or gzip, whichever the client accepts.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", || Html("<p>all work and no play</p>".repeat(100)))
///     .with(middleware::Compression::new());
/// let response = app.test().get("/").header("accept-encoding", "gzip, br;q=0.8").send();
/// response
///     .assert_header("content-encoding", "gzip")
///     .assert_header("vary", "Accept-Encoding");
/// assert!(response.body().len() < 200);
/// ```
///
/// The coding with the highest weight in `Accept-Encoding` is used (RFC 9110, 12.5.3). Among equal
/// weights the order is zstd, Brotli, gzip. A client that refuses all of them, and uncompressed
/// content as well, gets uncompressed content. Short content is compressed in memory; long content
/// and readers are compressed while they are sent. That takes 1.6 MiB per response for zstd, 2.2
/// for Brotli and 0.4 for gzip, and at higher levels more: up to 4 MiB for zstd, and 35 for level 9
/// of Brotli. If the client does not read, this memory and the content count towards
/// [`memory_max`](filoplume_runtime::ServerConfig::memory_max).
///
/// These responses are not compressed:
/// - content of a type that is compressed already, or unknown. Only [types](Self::types) such as
///   text, JSON, XML and SVG are compressed, without a `Content-Encoding`;
/// - content shorter than [`bytes_min`](Self::bytes_min), unless the client refuses it uncompressed
///   (`identity;q=0`);
/// - partial responses (`206`, `Content-Range`), responses without content, and errors that get
///   their content from outer middleware;
/// - responses with a digest, or with `Cache-Control: no-transform`, by which a handler opts out;
/// - `text/event-stream`. A stream of another type reaches the client in larger pieces than it was
///   written. If it is watched live, use `no-transform` as well.
///
/// Responses that depend on `Accept-Encoding` say so in `Vary`. A strong `ETag` becomes a weak one
/// (RFC 9110, 8.8.3), because the bytes have changed, and `Accept-Ranges` is removed. `If-Match`
/// never matches a weak tag (RFC 9110, 13.1.1): do not compress resources that clients update
/// conditionally.
///
/// A request for a range that holds only for a certain date (`If-Range` with a date instead of a
/// tag) gets the whole content: all codings have the same date, so the range could be one of
/// another coding.
///
/// A page that contains both a secret and input of the client should not be compressed over TLS:
/// its length reveals the secret (BREACH). CSRF tokens of this crate are masked against that.
pub struct Compression {
    codings: Vec<Coding>,
    levels: Levels,
    bytes_min: u64,
    types: Option<Compresses>,
}

/// Returns whether content of a type is compressed.
type Compresses = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// A content coding.
///
/// ```
/// use filoplume::middleware::{Coding, Compression};
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", || "all work and no play ".repeat(100))
///     .with(Compression::new().codings([Coding::Brotli, Coding::Gzip]));
/// let response = app.test().get("/").header("accept-encoding", "gzip, br, zstd").send();
/// response.assert_header("content-encoding", "br");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Coding {
    /// Zstandard (RFC 8878): fast and good.
    Zstd,
    /// Brotli (RFC 7932): good for text.
    Brotli,
    /// gzip (RFC 1952): supported by all clients.
    Gzip,
}

/// How much CPU time is spent on smaller output.
#[derive(Clone, Copy, Debug)]
struct Levels {
    zstd: i32,
    brotli: u32,
    gzip: u32,
}

impl Compression {
    /// Returns compression with all codings, at levels that are fast enough for dynamic responses.
    pub fn new() -> Self {
        Self {
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            levels: Levels { zstd: 3, brotli: 4, gzip: 6 },
            bytes_min: BYTES_MIN,
            types: None,
        }
    }

    /// Sets which codings are offered, in order of preference. Default: zstd, Brotli, gzip.
    #[must_use]
    pub fn codings(mut self, codings: impl IntoIterator<Item = Coding>) -> Self {
        self.codings = codings.into_iter().collect();
        self
    }

    /// Sets the level of zstd, 1 to 19. Browsers need not support higher levels. Default: 3.
    #[must_use]
    pub fn zstd_level(mut self, level: u8) -> Self {
        self.levels.zstd = i32::from(level.clamp(1, 19));
        self
    }

    /// Sets the level of Brotli, 0 to 11. Levels from 10 on suit content that is compressed once
    /// and sent often. Default: 4.
    ///
    /// ```
    /// use filoplume::middleware::{Coding, Compression};
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", || "all work and no play ".repeat(100))
    ///     .with(Compression::new().codings([Coding::Brotli]).brotli_level(9));
    /// assert!(app.test().get("/").header("accept-encoding", "br").send().body().len() < 100);
    /// ```
    #[must_use]
    pub fn brotli_level(mut self, level: u8) -> Self {
        self.levels.brotli = u32::from(level.min(11));
        self
    }

    /// Sets the level of gzip, 1 to 9. Default: 6.
    #[must_use]
    pub fn gzip_level(mut self, level: u8) -> Self {
        self.levels.gzip = u32::from(level.clamp(1, 9));
        self
    }

    /// Sets the shortest content that is compressed, in bytes. Default: 1 KiB.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", || "too short")
    ///     .with(middleware::Compression::new().bytes_min(100));
    /// app.test()
    ///     .get("/")
    ///     .header("accept-encoding", "gzip")
    ///     .send()
    ///     .assert_no_header("content-encoding");
    /// ```
    #[must_use]
    pub fn bytes_min(mut self, bytes: u64) -> Self {
        self.bytes_min = bytes;
        self
    }

    /// Sets which types of content are compressed. The closure gets the type in lower case and
    /// without parameters, such as `text/html`. `text/event-stream` is never compressed.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "all work and no play ".repeat(100)).with(
    ///     middleware::Compression::new().types(|essence| essence == "application/json"),
    /// );
    /// app.test()
    ///     .get("/")
    ///     .header("accept-encoding", "gzip")
    ///     .send()
    ///     .assert_no_header("content-encoding");
    /// ```
    #[must_use]
    pub fn types(mut self, compresses: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.types = Some(Box::new(compresses));
        self
    }

    /// Returns whether a response may be compressed, regardless of its length and the client.
    fn is_eligible(&self, response: &Response) -> bool {
        let headers = response.headers();
        let status = response.status();
        // An error is empty until it is rendered further out.
        let is_whole = !status.is_informational() && !matches!(status.as_u16(), 204..=206);
        // What other threads push must not wait in an encoder until more is pushed.
        let has_content =
            is_whole && !matches!(response.body(), ResponseBody::Empty | ResponseBody::Pushed(_));
        // A digest covers the content as it is sent, or the representation as it is coded (RFC
        // 9530, 2 and 3).
        let is_bound =
            ["content-encoding", "content-range", "content-digest", "repr-digest", "digest"];
        has_content
            && !is_bound.iter().any(|name| headers.contains(name))
            && !has_no_transform(headers)
            && self.compresses_type(headers.get_str("content-type").unwrap_or_default())
    }

    /// Returns whether this is a part of a response that would be compressed as a whole. Such a
    /// response needs the same `Vary` (RFC 9110, 15.3.7).
    fn is_eligible_part(&self, response: &Response) -> bool {
        let headers = response.headers();
        response.status() == 206
            && !headers.contains("content-encoding")
            && !has_no_transform(headers)
            && self.compresses_type(headers.get_str("content-type").unwrap_or_default())
    }

    fn compresses_type(&self, content_type: &str) -> bool {
        let essence =
            content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match &self.types {
            _ if essence == "text/event-stream" => false,
            Some(compresses) => compresses(&essence),
            None => is_compressible(&essence),
        }
    }

    fn is_long_enough(&self, body: &ResponseBody) -> bool {
        match body {
            ResponseBody::Empty | ResponseBody::Pushed(_) => false,
            ResponseBody::Bytes(bytes) => bytes.len() as u64 >= self.bytes_min,
            ResponseBody::Sized { length, .. } | ResponseBody::File { length, .. } => {
                *length >= self.bytes_min
            }
            ResponseBody::Unsized(_) => true,
        }
    }

    fn compress(&self, response: &mut Response, coding: Coding, method: &Method) -> Result<()> {
        let body = std::mem::take(response.body_mut());
        // The engine sends the head only. It should equal that of a `GET`, so it must not have the
        // length of the uncompressed content.
        let compressed = if *method == Method::HEAD {
            ResponseBody::Unsized(Box::new(io::empty()))
        } else {
            let held = self.held_bytes(&body, coding);
            let compressed = self.compress_body(body, coding)?;
            if let ResponseBody::Unsized(_) = compressed {
                response.add_reader_memory(held);
            }
            compressed
        };
        *response.body_mut() = compressed;
        let headers = response.headers_mut();
        headers.insert("content-encoding", coding.name())?;
        for gone in ["content-length", "accept-ranges"] {
            headers.remove(gone);
        }
        weaken_etag(headers)?;
        Ok(())
    }

    /// Returns how much memory is kept while a body is compressed piece by piece. Bytes that others
    /// hold too, such as a file in memory, are not counted.
    fn held_bytes(&self, body: &ResponseBody, coding: Coding) -> usize {
        let content = match body {
            ResponseBody::Bytes(bytes) if bytes.is_unique() => bytes.len(),
            _ => 0,
        };
        content + encoder_bytes(coding, self.levels)
    }

    fn compress_body(&self, body: ResponseBody, coding: Coding) -> Result<ResponseBody> {
        let whole = |bytes: Bytes| -> Box<dyn Read + Send> { Box::new(io::Cursor::new(bytes)) };
        let reader: Box<dyn Read + Send> = match body {
            whole @ (ResponseBody::Empty | ResponseBody::Pushed(_)) => return Ok(whole),
            ResponseBody::Bytes(bytes) if bytes.len() < STREAM_FROM_BYTES => {
                let mut compressed = Vec::with_capacity(bytes.len() / 2);
                encoder(coding, self.levels, whole(bytes))?.read_to_end(&mut compressed)?;
                return Ok(ResponseBody::Bytes(compressed.into()));
            }
            ResponseBody::Bytes(bytes) => whole(bytes),
            ResponseBody::Sized { reader, length } => {
                Box::new(ExactLengthReader { reader, left: length })
            }
            ResponseBody::File { content, length } => {
                Box::new(ExactLengthReader { reader: Box::new(content), left: length })
            }
            ResponseBody::Unsized(reader) => reader,
        };
        Ok(ResponseBody::Unsized(encoder(coding, self.levels, reader)?))
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for Compression {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let method = request.method().clone();
        let choice = choose(request.headers().get_all("accept-encoding"), &self.codings);
        let known = request.headers().get_str("if-none-match").map(str::to_owned);
        if is_range_dated(request.headers()) {
            // The content has the same date with every coding (RFC 9110, 8.8.2.2), and the client
            // may have a part with another one than it gets now: some ask for ranges without a
            // coding, and for the whole with one. A tag would tell. The whole content is right in
            // any case (13.1.5).
            request.headers_mut().remove("range");
        }
        let mut response = next.run(request);
        if response.status() == 304 {
            weaken_not_modified(response.headers_mut(), known.as_deref())?;
            // The `304` has the `Vary` of the `200` (RFC 9110, 15.4.5). It is not known here
            // whether the `200` would be compressed. A superfluous `Vary` costs a cache a little; a
            // missing one gives clients content that they cannot read.
            add_vary(response.headers_mut(), "Accept-Encoding");
            return Ok(response);
        }
        if !self.is_eligible(&response) {
            if self.is_eligible_part(&response) {
                add_vary(response.headers_mut(), "Accept-Encoding");
            }
            return Ok(response);
        }
        let is_long_enough = self.is_long_enough(response.body());
        if is_long_enough || choice.refuses_identity {
            add_vary(response.headers_mut(), "Accept-Encoding");
        }
        match choice {
            Choice { coding: Some(coding), refuses_identity }
                if is_long_enough || refuses_identity =>
            {
                self.compress(&mut response, coding, &method)?;
            }
            _ => {}
        }
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        if self.codings.is_empty() {
            options.mistake("Compression: without a coding nothing can be compressed");
        }
    }
}

impl fmt::Debug for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compression")
            .field("codings", &self.codings)
            .field("levels", &self.levels)
            .field("bytes_min", &self.bytes_min)
            .finish_non_exhaustive()
    }
}

impl Coding {
    /// Returns the name in `Content-Encoding`.
    const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }
}

/// Returns whether `no-transform` is set (RFC 9111, 5.2.2.6).
fn has_no_transform(headers: &Headers) -> bool {
    headers
        .get_all("cache-control")
        .filter_map(|value| std::str::from_utf8(value).ok())
        .flat_map(|value| value.split(','))
        .any(|directive| directive.trim().eq_ignore_ascii_case("no-transform"))
}

/// Returns whether a type is a kind of text. Unknown types are not compressed, because most of them
/// are compressed already.
fn is_compressible(essence: &str) -> bool {
    const OTHERS: &[&str] = &[
        "application/javascript",
        "application/json",
        "application/ld+json",
        "application/manifest+json",
        "application/openmetrics-text",
        "application/rtf",
        "application/sql",
        "application/toml",
        "application/vnd.ms-fontobject",
        "application/wasm",
        "application/x-javascript",
        "application/x-ndjson",
        "application/x-sh",
        "application/xml",
        "application/yaml",
        "font/otf",
        "font/ttf",
        "image/bmp",
        "image/x-icon",
        "image/vnd.microsoft.icon",
    ];
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || essence.ends_with("+text")
        || OTHERS.contains(&essence)
}

fn weaken_etag(headers: &mut Headers) -> Result<()> {
    let strong = headers.get("etag").filter(|etag| etag.starts_with(b"\"")).map(<[u8]>::to_vec);
    if let Some(strong) = strong {
        headers.insert("etag", [b"W/".as_slice(), &strong].concat())?;
    }
    Ok(())
}

/// A `304` names the version that the client has (RFC 9110, 15.4.5). If the client sent the weak
/// form of this strong tag, it has the compressed version, so the `304` gets the weak tag.
fn weaken_not_modified(headers: &mut Headers, known: Option<&str>) -> Result<()> {
    let has_weak = match (headers.get_str("etag"), known) {
        (Some(etag), Some(known)) if etag.starts_with('"') => {
            let weak = format!("W/{etag}");
            known.split(',').any(|tag| tag.trim() == weak)
        }
        _ => false,
    };
    if has_weak {
        weaken_etag(headers)?;
        add_vary(headers, "Accept-Encoding");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
