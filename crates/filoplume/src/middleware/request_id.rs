//! An ID for each request, to find its lines in several logs.

use filoplume_runtime::{Request, Response, note_request_id};

use crate::core::context::Context;
use crate::core::error::Result;
use crate::core::extract::FromRequest;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
pub use crate::core::request_id::RequestId;
use crate::extract::ExtensionRejection;
use crate::middleware::catch_panic::run_catching_panics;
use crate::middleware::random_id::random_request_id;

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
        incoming.and_then(RequestId::new).unwrap_or_else(random_request_id)
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for RequestIds {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let asked = next.context().asked;
        let id = asked.request_id_or(|| self.id_of(&request)).as_bytes();
        // For a report if the handler does not return.
        let noted = note_request_id(id);
        let mut response = run_catching_panics(request, next);
        drop(noted);
        response.set_header(&self.header, id)?;
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

impl FromRequest for RequestId {
    type Rejection = ExtensionRejection;

    fn from_request(_: &mut Request, context: &Context<'_>) -> Result<Self, ExtensionRejection> {
        context.request_id().cloned().ok_or_else(ExtensionRejection::of::<Self>)
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>(
            "it takes a `RequestId`, and requests have none: add \
             `.with(middleware::RequestIds::new())` to the app",
        );
    }
}
