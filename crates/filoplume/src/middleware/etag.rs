//! Tags for content that handlers make, and the conditions of those who have it already.

use std::fmt::Write as _;

use filoplume_runtime::{Headers, Method, Request, Response, ResponseBody, StatusCode};
use sha2::{Digest, Sha256};

use super::{Middleware, Next};
use crate::core::error::Result;
use crate::core::options::RouteOptions;
use crate::semantics::conditional::{Conditions, EntityTag, Validators, Verdict, not_modified};

/// How much of the hash is in a tag: 128 bits do not meet by chance, nor on purpose with less than
/// 2⁶⁴ tries.
const HASH_BYTES: usize = 16;

/// Middleware that tags the content of `GET`, and answers `304` to who has it already.
///
/// The tag is a hash of the content, so the handler still runs: what is saved is sending. It is
/// SHA-256 and not a faster hash, because the content may be written by people who would like a new
/// version to have the tag of the old one; the same content has the same tag on every machine.
///
/// - An `ETag` or `Last-Modified` that the handler set is evaluated as it is.
/// - Only content in memory is tagged. Of a stream the handler's own `ETag` and `Last-Modified`
///   count; it is not read for a `304`.
/// - Only a `200` to `GET` or `HEAD` is looked at, and none with `Cache-Control: no-store`: nobody
///   has that. To protect what is there from being overwritten, a handler evaluates the
///   [conditions](crate::conditional) before it writes.
///
/// Middleware that changes the content, such as compression, stands further out, so that a `304`
/// saves that too; it weakens the tag.
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

    /// Makes weak tags: for content that is the same in what it means, whatever is done to its
    /// bytes further out. Default: strong.
    #[must_use]
    pub fn weak(mut self, is_weak: bool) -> Self {
        self.is_weak = is_weak;
        self
    }

    fn tag(self, content: &[u8]) -> EntityTag {
        let hash = Sha256::digest(content);
        let text = hash.iter().take(HASH_BYTES).fold(String::new(), |mut text, byte| {
            // Writing to a `String` does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        if self.is_weak { EntityTag::weak(&text) } else { EntityTag::strong(&text) }
    }

    /// Gives a response a tag, if it has none and its content is here.
    fn tag_response(self, response: &mut Response, is_head: bool) -> Result<()> {
        if response.headers().contains("etag") {
            return Ok(());
        }
        let tag = match response.body() {
            ResponseBody::Bytes(bytes) => self.tag(bytes),
            // A handler for `HEAD` alone has no content to show, and the tag of nothing would be
            // wrong.
            ResponseBody::Empty if !is_head => self.tag(&[]),
            ResponseBody::Empty | ResponseBody::Sized { .. } | ResponseBody::Unsized(_) => {
                return Ok(());
            }
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
        // The request goes to the handler. Most have no condition, and then there is nothing to
        // keep of it.
        let conditional = has_conditions(request.headers()).then(|| request.headers().clone());
        let mut response = next.run(request);
        if response.status_code() != StatusCode::OK || is_not_stored(&response) {
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

    // It puts nothing beside requests.
    fn configure(&self, _: &mut RouteOptions) {}
}

fn has_conditions(headers: &Headers) -> bool {
    let names = ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];
    names.iter().any(|name| headers.contains(name))
}

fn is_not_stored(response: &Response) -> bool {
    let mut values = response.headers().get_all("cache-control");
    values.any(|value| {
        value
            .split(|&byte| byte == b',')
            .any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-store"))
    })
}
