//! Requests that the engine answers itself, in the words of the service.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::Service;
use super::panics::note_caught_panic;
use super::request::Request;
use super::response::{Response, ResponseBody};
use crate::budget::refusal::Refusal;

/// Why the engine answers a request with `503` instead of calling the service. Given to
/// [`Service::refused`].
#[derive(Clone, Copy)]
pub struct Refused<'a> {
    reason: Refusal,
    retry_after: u64,
    because: &'a dyn fmt::Display,
}

impl<'a> Refused<'a> {
    /// `retry_after` is in seconds.
    pub(crate) fn new(reason: Refusal, retry_after: u64, because: &'a dyn fmt::Display) -> Self {
        Self { reason, retry_after, because }
    }

    /// Returns the reason: [`Refusal::Overloaded`], [`Refusal::Memory`] or
    /// [`Refusal::ClientThreads`].
    pub fn reason(&self) -> Refusal {
        self.reason
    }

    /// Returns how long the client is asked to stay away, in whole seconds.
    pub fn retry_after(&self) -> Duration {
        Duration::from_secs(self.retry_after)
    }

    /// Returns which limit was reached and who has what is missing, as the log says it: not for
    /// strangers. It is made when it is shown.
    pub fn because(&self) -> &'a dyn fmt::Display {
        self.because
    }

    /// Returns the response of the service, made a `503` without a reader. `None` if it has none,
    /// or panics.
    pub(crate) fn ask(&self, service: &dyn Service, request: &Request) -> Option<Response> {
        let response = catch_unwind(AssertUnwindSafe(|| service.refused(request, self)));
        let mut response = response.unwrap_or_else(|_| {
            tracing::error!("what a service says of a refusal panicked");
            note_caught_panic();
            None
        })?;
        if !matches!(response.body(), ResponseBody::Empty | ResponseBody::Bytes(_)) {
            // It would be read on an event loop, or by a thread of which there is none.
            *response.body_mut() = ResponseBody::Empty;
        }
        response.status(503);
        response.set_header("retry-after", self.retry_after.to_string()).expect("a valid header");
        Some(response)
    }

    /// As [`ask`](Self::ask), with an empty response if there is no other.
    pub(crate) fn response(&self, service: Option<&dyn Service>, request: &Request) -> Response {
        service.and_then(|service| self.ask(service, request)).unwrap_or_else(|| self.empty())
    }

    /// Returns the response without words.
    pub(crate) fn empty(&self) -> Response {
        let mut response = Response::new(503);
        response.add_header("retry-after", self.retry_after.to_string()).expect("a valid header");
        response
    }
}

impl fmt::Debug for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}
