//! Decodes the content of requests.

mod decode;

use filoplume_runtime::{Request, Response, StatusCode};

use self::decode::{decoded, memory_of};
use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::semantics::content_coding::{ACCEPTED_CODINGS, codings_of, is_coded};

/// The longest decoded content for routes without a limit of their own. It is the server's default
/// for contents.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Decodes the content of requests by their `Content-Encoding`: gzip, deflate, Brotli and zstd, or
/// several of them in a row (RFC 9110, 8.4).
///
/// ```
/// use filoplume::prelude::*;
/// use std::io::Write;
///
/// let app = App::new()
///     .post("/notes", |note: String| note)
///     .with(middleware::Decompression::new());
/// let client = app.test();
///
/// let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
/// gzip.write_all(b"remember the milk")?;
/// let post = client.post("/notes").header("content-encoding", "gzip").body(gzip.finish()?);
/// post.send().assert_text("remember the milk");
///
/// client
///     .post("/notes")
///     .header("content-encoding", "compress")
///     .body("?")
///     .send()
///     .assert_status(415)
///     .assert_header("accept-encoding", "gzip, deflate, br, zstd");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Everything further in sees the decoded content, middleware and handlers alike: the headers
/// `Content-Encoding` and `Content-Length` are removed, and
/// [`Request::content_length`](crate::Request::content_length) is `None`. A content is decoded
/// while it is read, so a handler that takes a [`Body`](crate::Body) or a form with files needs
/// constant memory: up to 20 MiB for Brotli, 8 MiB for zstd and 300 KiB for gzip and deflate. This
/// memory counts towards the [memory budget](crate::ServerConfig::memory_max) until the content is
/// read. If the budget has no room, the response is a `503`. A content that nobody reads is not
/// decoded. Long contents that have arrived are decoded in turns, by one thread per processor: see
/// [`Request::compute_in_turn`](crate::Request::compute_in_turn).
///
/// A content with another coding, with more than three, or with more than one of Brotli and zstd,
/// whose windows are large, is refused with `415` (RFC 7694). One that is malformed, ends early, or
/// continues after its end is a `400`. So is Brotli with windows of more than 16 MiB, an extension
/// that the coding `br` does not have. An empty content is accepted, whether its length or its
/// first chunk says that it is empty.
///
/// The [limit of the route](crate::Route::content_bytes_max) applies to the content as it is sent
/// and as it is decoded, and to each step between. Decoding stops at the limit, and the response
/// is `413`: a small content cannot expand without bound.
///
/// Without this middleware, extractors refuse coded content with `415`. A handler that takes the
/// whole [`Request`] gets it as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Decompression {
    bytes_max: Option<u64>,
}

impl Decompression {
    /// Returns decompression with all codings.
    pub fn new() -> Self {
        Self { bytes_max: None }
    }

    /// Sets the maximum length of decoded content for routes without a limit of their own, which
    /// are those that read a stream. Default: the
    /// [server's](crate::ServerConfig::content_bytes_max), 64 MiB.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::Body;
    ///
    /// let app = App::new()
    ///     .post("/", |mut text: Body| -> Result<String> {
    ///         Ok(std::io::copy(&mut text, &mut std::io::sink())?.to_string())
    ///     })
    ///     .with(middleware::Decompression::new().bytes_max(1000));
    /// let bomb = zstd::encode_all(&[b'a'; 2000][..], 3)?;
    /// let post = app.test().post("/").header("content-encoding", "zstd").body(bomb).send();
    /// post.assert_status(413);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn bytes_max(mut self, bytes: u64) -> Self {
        self.bytes_max = Some(bytes);
        self
    }
}

impl Default for Decompression {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for Decompression {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        if !request.headers().contains("content-encoding") {
            return Ok(next.run(request));
        }
        if request.content_length() == Some(0) {
            request.headers_mut().remove("content-encoding");
            return Ok(next.run(request));
        }
        let context = next.context();
        let values = || request.headers().get_all("content-encoding");
        let Some(codings) = codings_of(values()) else {
            let error = Error::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("the content must be encoded as one of: {ACCEPTED_CODINGS}"),
            );
            return Err(error.with_known_header("accept-encoding", ACCEPTED_CODINGS));
        };
        if !is_coded(values()) {
            return Ok(next.run(request));
        }
        let limits =
            [context.content_bytes_max(), self.bytes_max, context.server_content_bytes_max()];
        let bytes_max = limits.into_iter().flatten().next().unwrap_or(BYTES_MAX);
        if request.content_length().is_some_and(|length| length > bytes_max) {
            return Err(Error::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the content is longer than the {bytes_max} bytes that are accepted"),
            ));
        }
        let Some(memory) = request.hold_memory(memory_of(&codings)) else {
            let error = Error::unavailable("there is no memory to decode the content in");
            return Err(error.with_known_header("retry-after", "1"));
        };
        let mut coded = std::mem::take(request.body_mut());
        coded.bound(bytes_max);
        *request.body_mut() = decoded(coded, codings, bytes_max, memory);
        for gone in ["content-encoding", "content-length"] {
            request.headers_mut().remove(gone);
        }
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.decode_content();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor};

    use filoplume_runtime::Body;

    use super::*;
    use crate::App;

    /// Any number of them decode to nothing.
    const EMPTY_GZIP: [u8; 20] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn coded_content_is_bounded_too_although_its_length_is_unknown() {
        let unsized_content = |mut request: Request, next: Next<'_>| -> Result<Response> {
            let content = std::mem::take(request.body_mut()).into_bytes(u64::MAX)?;
            *request.body_mut() = Body::from_reader(Cursor::new(content));
            Ok(next.run(request))
        };
        let app = App::new()
            .post("/", |mut content: Body| -> Result<String> {
                Ok(io::copy(&mut content, &mut io::sink())?.to_string())
            })
            .with(unsized_content)
            .with(Decompression::new().bytes_max(100));
        let client = app.test();
        for (members, status) in [(5, 200), (6, 413)] {
            let request = client.post("/").header("content-encoding", "gzip");
            let response = request.body(EMPTY_GZIP.repeat(members)).chunked().send();
            response.assert_status(status);
        }
    }
}
