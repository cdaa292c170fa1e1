//! Entity tags for responses of handlers, and conditional requests.

use std::fmt::Write as _;

use filoplume_runtime::{Headers, Method, Request, Response, ResponseBody, StatusCode};
use sha2::{Digest, Sha256};

use super::{Middleware, Next};
use crate::core::error::Result;
use crate::core::options::RouteOptions;
use crate::semantics::conditional::{Conditions, EntityTag, Validators, Verdict, not_modified};

/// Length of the hash in a tag. 128 bits do not collide by chance, and a deliberate collision takes
/// 2⁶⁴ tries.
const HASH_BYTES: usize = 16;

/// Adds an entity tag to responses to `GET`, and answers `304` if the client has that version.
///
/// The tag is a hash of the content. So the handler still runs, and only the transfer is saved. The
/// hash is SHA-256 rather than a faster one, because users may write the content and must not be
/// able to give a new version the tag of the old one. The same content has the same tag on every
/// machine.
///
/// - An `ETag` or `Last-Modified` that the handler set is used as it is.
/// - Only content in memory gets a tag. For a stream, the handler's own `ETag` and `Last-Modified`
///   count; the stream is not read for a `304`.
/// - Only a `200` to `GET` or `HEAD` is considered, without `Cache-Control: no-store`: clients keep
///   no copy of such a response. To protect a resource against lost updates, a handler evaluates
///   the [conditions](crate::conditional) before it writes.
///
/// Add middleware that changes the content, such as compression, before this one. A `304` then
/// saves that work too. Compression makes the tag weak.
///
/// ```
/// use filoplume::prelude::*;
///
/// let client =
///     App::new().get("/", || "long and seldom new").with(middleware::ETag::new()).test();
/// let first = client.get("/").send();
/// let tag = first.header("etag").unwrap();
/// client.get("/").header("if-none-match", tag).send().assert_status(304).assert_text("");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ETag {
    is_weak: bool,
}

impl ETag {
    /// Returns the middleware. Its tags are strong: they change with every byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes weak tags, for content that outer middleware may re-encode without changing its
    /// meaning. Default: strong.
    #[must_use]
    pub fn weak(mut self, is_weak: bool) -> Self {
        self.is_weak = is_weak;
        self
    }

    fn tag(self, content: &[u8]) -> EntityTag {
        let hash = Sha256::digest(content);
        let text = hash.iter().take(HASH_BYTES).fold(String::new(), |mut text, byte| {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        if self.is_weak { EntityTag::weak(&text) } else { EntityTag::strong(&text) }
    }

    /// Adds a tag to a response that has none, if its content is in memory.
    fn tag_response(self, response: &mut Response, is_head: bool) -> Result<()> {
        if response.headers().contains("etag") {
            return Ok(());
        }
        let tag = match response.body() {
            ResponseBody::Bytes(bytes) => self.tag(bytes),
            // A handler for `HEAD` alone has no content, and the tag of an empty content would be
            // wrong.
            ResponseBody::Empty if !is_head => self.tag(&[]),
            ResponseBody::Empty
            | ResponseBody::Sized { .. }
            | ResponseBody::File { .. }
            | ResponseBody::Unsized(_)
            | ResponseBody::Pushed(_) => return Ok(()),
        };
        response.set_header("etag", tag.as_bytes())?;
        Ok(())
    }
}

impl Middleware for ETag {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let method = request.method().clone();
        if ![Method::GET, Method::HEAD].contains(&method) {
            return Ok(next.run(request));
        }
        // The handler consumes the request, so its conditions are copied first. Most requests have
        // none, and nothing is copied.
        let conditional = has_conditions(request.headers()).then(|| request.headers().clone());
        let mut response = next.run(request);
        if response.status() != StatusCode::OK || has_no_store(&response) {
            return Ok(response);
        }
        self.tag_response(&mut response, method == Method::HEAD)?;
        let Some(headers) = conditional else { return Ok(response) };
        let validators = Validators::of(&response);
        let verdict = Conditions::of(&headers).evaluate(&method, Some(&validators));
        verdict.ok()?;
        if verdict == Verdict::NotModified {
            not_modified(&mut response);
        }
        Ok(response)
    }

    // Adds nothing to requests.
    fn configure(&self, _: &mut RouteOptions) {}
}

fn has_conditions(headers: &Headers) -> bool {
    let names = ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];
    names.iter().any(|name| headers.contains(name))
}

fn has_no_store(response: &Response) -> bool {
    let mut values = response.headers().get_all("cache-control");
    values.any(|value| {
        value
            .split(|&byte| byte == b',')
            .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-store"))
    })
}
