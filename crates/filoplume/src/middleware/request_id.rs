//! An id for each request, to find its lines in the logs of everybody concerned.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use filoplume_runtime::{Request, Response};

use crate::core::context::Context;
use crate::core::error::Result;
use crate::core::extract::Extract;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::extract::{Extension, ExtensionRejection};
use crate::middleware::catch_panic::contain;

/// Longest id that is taken over from a client. A W3C `traceparent` has 55 characters.
const ID_BYTES_MAX: usize = 64;

/// Gives each request an id: handlers take it as a [`RequestId`], the [`Logger`](super::Logger)
/// writes it, and the response carries it as `x-request-id`.
///
/// ```
/// use filoplume::middleware::RequestId;
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |id: RequestId| format!("this is {id}"))
///     .with(middleware::RequestIds::new())
///     .with(middleware::Logger::new());
/// let response = app.test().get("/").send();
/// let id = response.header("x-request-id").unwrap();
/// response.assert_text(&format!("this is {id}"));
/// ```
///
/// An id is 32 hexadecimal digits that nobody else is given and nobody can guess. It is no secret
/// to build on, though: responses and logs show it.
#[derive(Clone, Debug)]
pub struct RequestIds {
    header: String,
    trusts_incoming: bool,
}

/// The id of a request, given by [`RequestIds`]. An app with a handler that takes one does not
/// start without it.
///
/// ```
/// use filoplume::middleware::{RequestId, RequestIds};
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/help", |id: RequestId| format!("Tell us this number: {}", id.as_str()))
///     .with(RequestIds::new().trust_incoming(true));
/// app.test()
///     .get("/help")
///     .header("x-request-id", "17")
///     .send()
///     .assert_text("Tell us this number: 17");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestIds {
    /// Returns middleware that gives each request a new id.
    pub fn new() -> Self {
        Self { header: "x-request-id".to_owned(), trusts_incoming: false }
    }

    /// Takes over the id that a request brings along, if it is 1 to 64 letters, digits, and
    /// `-_.:/+=@`. For servers behind a proxy that sets it: of others, a client can choose the same
    /// id for all its requests. Default: no.
    #[must_use]
    pub fn trust_incoming(mut self, trusts_incoming: bool) -> Self {
        self.trusts_incoming = trusts_incoming;
        self
    }

    /// Sets the name of the header, both ways. Default: `x-request-id`.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>) -> Self {
        self.header = name.into();
        self
    }

    fn id_of(&self, request: &Request) -> RequestId {
        let incoming = if self.trusts_incoming { request.header(&self.header) } else { None };
        match incoming {
            Some(id) if is_id(id) => RequestId(id.into()),
            _ => RequestId::generate(),
        }
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for RequestIds {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let id = self.id_of(&request);
        request.extensions_mut().insert(id.clone());
        let mut response = contain(request, next);
        response.set_header(&self.header, id.as_str())?;
        // For a logger further out.
        response.extensions_mut().insert(id);
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<RequestId>();
        if http::HeaderName::try_from(&self.header).is_err() {
            options.mistake(format!(
                "RequestIds: `{}` is no name for a header",
                self.header.escape_debug()
            ));
        }
    }
}

impl RequestId {
    /// Returns the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A counter that a keyed hash turned into noise: unique because the counter is, not to be
    /// guessed because the keys, which the standard library takes from the system, are not; and no
    /// call into the system for each request.
    fn generate() -> Self {
        static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let [first, second] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{:016x}{:016x}", first.hash_one(count), second.hash_one(count)).into())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Extract for RequestId {
    type Rejection = ExtensionRejection;

    fn extract(request: &mut Request, context: &Context<'_>) -> Result<Self, ExtensionRejection> {
        Extension::extract(request, context).map(|Extension(id)| id)
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>(
            "it takes a `RequestId`, and requests have none: add \
             `.with(middleware::RequestIds::new())` to the app",
        );
    }
}

/// Whether an id of somebody else can be written anywhere: no spaces, quotes, or control
/// characters.
fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_all_different_and_of_one_shape() {
        let ids: HashSet<_> = (0..10_000).map(|_| RequestId::generate()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(
            |id| id.as_str().len() == 32 && id.as_str().bytes().all(|b| b.is_ascii_hexdigit())
        ));
        let starts: HashSet<_> = ids.iter().map(|id| id.as_str()[..8].to_owned()).collect();
        assert!(starts.len() > 9_990, "one id tells nothing of the next");
    }

    #[test]
    fn only_harmless_ids_are_taken_over() {
        for good in ["a", "7f-A_b.c:d/e+f=@", &"x".repeat(64)] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", "a b", "a\"b", "a\tb", "ä", "a,b", "<script>", &"x".repeat(65)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
