//! How long contents of requests may be.

use filoplume_runtime::{Request, Response};

use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;

/// Refuses contents of requests that are longer than so many bytes with `413`.
///
/// A length that was announced is refused before anything is read; one that was not is refused when
/// it has become too long, also for handlers that read a stream.
///
/// It is a setting of the routes that are within: the nearest one decides, so a route may allow
/// more than its app. Without it contents that are collected are at most 2 MiB, and streams are
/// bounded by the server.
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
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit {
    bytes_max: u64,
}

impl BodyLimit {
    /// Returns a limit of so many bytes.
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
