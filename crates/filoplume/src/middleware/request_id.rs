//! An ID for each request, to find its lines in several logs.

use filoplume_runtime::{Incomplete, Request, Response, note_request_id, note_request_number};
use http::HeaderName;

use crate::core::context::Context;
use crate::core::error::Result;
use crate::core::extract::FromRequest;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::core::refusal::NextRefused;
use crate::core::request_id::IdCell;
pub use crate::core::request_id::RequestId;
use crate::extract::ExtensionRejection;
use crate::middleware::catch_panic::run_catching_panics;
use crate::middleware::random_id::random_request_id;
use crate::observe::RequestIdHeader;

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
/// An ID consists of 32 hexadecimal digits. It is unique and does not tell how many requests there
/// were. It is not a secret: responses and logs show it, and whoever knows some IDs of a server may
/// compute others.
///
/// A request that the server refuses has an ID too, also if it does so before the request is
/// complete. The ID [that a proxy has given](Self::trust_incoming) is used if the head was
/// complete.
#[derive(Clone, Debug)]
pub struct RequestIds {
    /// The name of the header, or the text that the program gave if it is not a valid name.
    header: Result<HeaderName, String>,
    /// Whether the header is not the default one.
    is_renamed: bool,
    trusts_incoming: bool,
}

impl RequestIds {
    /// Returns middleware that gives each request a new ID.
    pub fn new() -> Self {
        Self {
            header: Ok(HeaderName::from_static(RequestIdHeader::DEFAULT)),
            is_renamed: false,
            trusts_incoming: false,
        }
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
        let name = name.into();
        self.header = HeaderName::try_from(&name).map_err(|_| name);
        self.is_renamed = true;
        self
    }

    /// Gives the request an ID, unless middleware further out has given one.
    fn give(&self, id: &IdCell, name: &HeaderName, request: Option<&Request>) {
        if id.number().is_some() || id.get().is_some() {
            return;
        }
        match request.and_then(|request| self.incoming(name, request)) {
            Some(incoming) => id.set(incoming),
            None => id.set_number(random_request_id()),
        }
    }

    /// Returns the ID that the client has sent, if it is trusted.
    fn incoming(&self, name: &HeaderName, request: &Request) -> Option<RequestId> {
        if !self.trusts_incoming {
            return None;
        }
        request.header(name.as_str()).and_then(RequestId::new)
    }

    /// Says in which header of the response the ID is, if it is not the default one.
    fn tell_header(&self, name: &HeaderName, response: &mut Response) {
        if self.is_renamed {
            response.extensions_mut().insert(RequestIdHeader(name.clone()));
        }
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for RequestIds {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        // The app does not start with an invalid name: see `configure`.
        let Ok(name) = &self.header else { return Ok(next.run(request)) };
        let id = &next.context().asked.request_id;
        self.give(id, name, Some(&request));
        // Noted for a report if the handler does not return.
        if let Some(number) = id.number() {
            let noted = note_request_number(number);
            let mut response = run_catching_panics(request, next);
            drop(noted);
            response.headers_mut().insert_hex(name, number);
            self.tell_header(name, &mut response);
            return Ok(response);
        }
        let text = id.get().map(RequestId::as_bytes).unwrap_or_default();
        let noted = note_request_id(text);
        let mut response = run_catching_panics(request, next);
        drop(noted);
        response.set_header(name.as_str(), text)?;
        self.tell_header(name, &mut response);
        Ok(response)
    }

    fn refused(&self, request: &Request, next: NextRefused<'_>) -> Response {
        let Ok(name) = &self.header else { return next.run(request) };
        let context = next.context();
        self.give(&context.asked.request_id, name, Some(request));
        let mut response = next.run(request);
        if let Some(id) = context.request_id() {
            // An ID consists of characters that are allowed in a header.
            let _ = response.set_header(name.as_str(), id.as_bytes());
        }
        self.tell_header(name, &mut response);
        response
    }

    fn incomplete(&self, incomplete: &Incomplete<'_>, context: Context<'_>) {
        let Ok(name) = &self.header else { return };
        self.give(&context.asked.request_id, name, incomplete.request());
        if let Some(id) = context.request_id() {
            // An ID consists of characters that are allowed in a header.
            let _ = incomplete.set_request_id(name.as_str(), id.as_str());
        }
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<RequestId>();
        if let Err(name) = &self.header {
            options.mistake(format!("RequestIds: `{}` is not a header name", name.escape_debug()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::App;

    /// As in an app that has it and a router that has it too.
    #[test]
    fn a_request_has_one_id() {
        let ids = || RequestIds::new().trust_incoming(true);
        let handler = |id: RequestId| id.as_str().to_owned();
        let client = App::new().get("/", handler).with(ids()).with(ids()).test();
        let response = client.get("/").send();
        response.assert_header("x-request-id", response.text());
        let known = client.get("/").header("x-request-id", "known").send();
        known.assert_text("known").assert_header("x-request-id", "known");
    }
}
