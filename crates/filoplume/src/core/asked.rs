//! The parts of a request that are kept for the response to an error, and the ID of the request.

use std::fmt;

use filoplume_runtime::{Method, Request};

use super::error_format::{ErrorFormat, FormatPreference};
#[cfg(feature = "json")]
use super::json_memory::HeldForValue;
use super::request_id::{IdCell, RequestId};
use super::snapshot::Snapshot;

/// The parts of a request that determine how an error is rendered.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().present_errors(|error, asked| {
///     let page = Html(format!("<h1>{}</h1>", error.status()));
///     if asked.wants_html() { page.into_response().ok() } else { None }
/// });
/// let client = app.test();
/// client
///     .get("/nowhere")
///     .header("accept", "text/html")
///     .send()
///     .assert_text("<h1>404 Not Found</h1>");
/// client.get("/nowhere").send().assert_header("content-type", "application/problem+json");
/// ```
#[derive(Clone)]
pub struct Asked {
    method: Method,
    accept: FormatPreference,
    /// In development mode only: a copy of the request.
    snapshot: Option<Box<Snapshot>>,
    /// Set by the middleware that gives IDs.
    pub(crate) request_id: IdCell,
    /// Set by the extractor of JSON.
    #[cfg(feature = "json")]
    pub(crate) held_for_value: HeldForValue,
}

impl Asked {
    /// Records what an error response needs. This runs for every request, so it only copies and
    /// decides nothing.
    #[inline(always)]
    pub(crate) fn of(request: &Request, is_development: bool) -> Self {
        let snapshot = if is_development { Some(Box::new(Snapshot::of(request))) } else { None };
        Self {
            method: request.method().clone(),
            accept: FormatPreference::of(request.headers()),
            snapshot,
            request_id: IdCell::default(),
            #[cfg(feature = "json")]
            held_for_value: HeldForValue::default(),
        }
    }

    /// Returns the parts of a request whose client prefers this format.
    pub(crate) fn preferring(format: ErrorFormat) -> Self {
        Self {
            method: Method::GET,
            accept: FormatPreference::preferring(format),
            snapshot: None,
            request_id: IdCell::default(),
            #[cfg(feature = "json")]
            held_for_value: HeldForValue::default(),
        }
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the ID of the request, if it has one:
    /// [`RequestIds`](crate::middleware::RequestIds) gives it.
    pub fn request_id(&self) -> Option<&RequestId> {
        self.request_id.get()
    }

    /// Returns the format in which the client prefers errors.
    pub(crate) fn format(&self) -> ErrorFormat {
        self.accept.format()
    }

    /// Returns a copy of the request; in development mode only.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_deref()
    }

    /// Returns whether the client prefers HTML to JSON and plain text, as browsers do.
    pub fn wants_html(&self) -> bool {
        self.format() == ErrorFormat::Html
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked")
            .field("method", &self.method)
            .field("format", &self.accept.format())
            .finish_non_exhaustive()
    }
}
