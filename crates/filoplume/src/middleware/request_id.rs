//! An ID for each request, to find its lines in several logs.

use std::fmt;
use std::sync::Arc;

use filoplume_runtime::{Request, Response, note_request_id};

use crate::core::context::Context;
use crate::core::error::Result;
use crate::core::extract::FromRequest;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::extract::{Extension, ExtensionRejection};
use crate::middleware::catch_panic::run_catching_panics;
use crate::middleware::random_id::random_id;

/// Longest ID that is accepted from a client. A W3C `traceparent` has 55 characters.
const ID_BYTES_MAX: usize = 64;

/// Gives each request an ID. Handlers take it as a [`RequestId`], the [`Logger`](super::Logger)
/// logs it, and the response has it as `x-request-id`.
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
/// An ID consists of 32 hexadecimal digits. It is unique and cannot be guessed. It is not a secret,
/// though: responses and logs show it.
#[derive(Clone, Debug)]
pub struct RequestIds {
    header: String,
    trusts_incoming: bool,
}

/// The ID of a request, from [`RequestIds`]. If a handler takes it without that middleware, the app
/// does not start.
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
    /// Returns middleware that gives each request a new ID.
    pub fn new() -> Self {
        Self { header: "x-request-id".to_owned(), trusts_incoming: false }
    }

    /// Uses the ID of the request's header, if it consists of 1 to 64 letters, digits, and
    /// `-_.:/+=@`. For servers behind a proxy that sets the header: without a proxy, a client can
    /// choose the same ID for all its requests. Default: no.
    #[must_use]
    pub fn trust_incoming(mut self, trusts_incoming: bool) -> Self {
        self.trusts_incoming = trusts_incoming;
        self
    }

    /// Sets the name of the header, in requests and responses. Default: `x-request-id`.
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
        // For a report if the handler does not return.
        let noted = note_request_id(id.as_str());
        let mut response = run_catching_panics(request, next);
        drop(noted);
        response.set_header(&self.header, id.as_str())?;
        // For an outer logger.
        response.extensions_mut().insert(id);
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<RequestId>();
        if http::HeaderName::try_from(&self.header).is_err() {
            options.mistake(format!(
                "RequestIds: `{}` is not a header name",
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

    fn generate() -> Self {
        Self(format!("{:032x}", random_id()).into())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromRequest for RequestId {
    type Rejection = ExtensionRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, ExtensionRejection> {
        Extension::from_request(request, context).map(|Extension(id)| id)
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>(
            "it takes a `RequestId`, and requests have none: add \
             `.with(middleware::RequestIds::new())` to the app",
        );
    }
}

/// Returns whether an ID from a client is safe in logs and headers: it has no spaces, quotes, or
/// control characters.
fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_have_one_format() {
        let ids: HashSet<_> = (0..10_000).map(|_| RequestId::generate()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(
            |id| id.as_str().len() == 32 && id.as_str().bytes().all(|b| b.is_ascii_hexdigit())
        ));
        let starts: HashSet<_> = ids.iter().map(|id| id.as_str()[..8].to_owned()).collect();
        assert!(starts.len() > 9_990, "an ID does not predict the next one");
    }

    #[test]
    fn only_safe_ids_are_accepted() {
        for good in ["a", "7f-A_b.c:d/e+f=@", &"x".repeat(64)] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", "a b", "a\"b", "a\tb", "ä", "a,b", "<script>", &"x".repeat(65)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
