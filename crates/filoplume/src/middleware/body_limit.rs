//! A limit for the content of requests.

use filoplume_runtime::{Request, Response};

use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;

/// Refuses requests whose content is longer than the limit with `413`.
///
/// If the length was announced, the request is refused before the content is read. Otherwise it is
/// refused when the limit is passed, also for handlers that read a stream.
///
/// The limit applies to all routes below it, and the innermost one counts: a route may allow more
/// than its app. Without it, content that is collected may have 2 MiB, and a stream as much as the
/// server accepts. The server's limit applies in all cases.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .post("/notes", |text: String| text)
///     .route(
///         "/photos",
///         post(|photo: Vec<u8>| photo.len().to_string())
///             .with(middleware::BodyLimit::new(1 << 20)),
///     )
///     .with(middleware::BodyLimit::new(100));
/// let client = app.test();
/// client.post("/notes").body("x".repeat(100)).send().assert_status(200);
/// client.post("/notes").body("x".repeat(101)).send().assert_status(413);
/// client.post("/photos").body("x".repeat(101)).send().assert_text("101");
/// ```
#[doc(alias("DefaultBodyLimit", "MAX_CONTENT_LENGTH"))]
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit {
    bytes_max: u64,
}

impl BodyLimit {
    /// Returns a limit of `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max }
    }
}

impl Middleware for BodyLimit {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.content_bytes_max(self.bytes_max);
    }
}
