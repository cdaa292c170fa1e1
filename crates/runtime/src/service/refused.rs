//! Requests that the engine answers itself, with a response of the service.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::Service;
use super::exchange::Timing;
use super::panics::note_caught_panic;
use super::request::Request;
use super::response::{Response, ResponseBody};
use crate::budget::refusal::Refusal;

/// The `Retry-After` of a refusal, in seconds, if no measurement suggests another value.
pub(crate) const RETRY_AFTER: u64 = 1;

/// The reason why the engine answers a request with `503` instead of calling the service. It is
/// given to [`Service::refused`]. It is for frameworks that have error pages of their own.
///
/// ```
/// use filoplume_runtime::{Refused, Request, Response, Service};
///
/// struct Site;
///
/// impl Service for Site {
///     fn call(&self, _: Request) -> Response {
///         Response::from("Hello!")
///     }
///
///     fn refused(&self, _: &Request, refused: &Refused<'_>) -> Option<Response> {
///         let seconds = refused.retry_after().as_secs();
///         Some(Response::from(format!("please come back in {seconds} s")))
///     }
/// }
/// # let _service: Box<dyn Service> = Box::new(Site);
/// ```
#[derive(Clone, Copy)]
pub struct Refused<'a> {
    reason: Refusal,
    retry_after: u64,
    because: &'a dyn fmt::Display,
    timing: Option<Timing>,
}

impl<'a> Refused<'a> {
    /// `retry_after` is in seconds.
    pub(crate) fn new(reason: Refusal, retry_after: u64, because: &'a dyn fmt::Display) -> Self {
        Self { reason, retry_after, because, timing: None }
    }

    /// Adds where the time went until now.
    pub(crate) fn timed(self, timing: Option<Timing>) -> Self {
        Self { timing, ..self }
    }

    /// Returns the reason: [`Refusal::Overloaded`], [`Refusal::Memory`], [`Refusal::Spool`],
    /// [`Refusal::Descriptors`] or [`Refusal::ClientThreads`].
    pub fn reason(&self) -> Refusal {
        self.reason
    }

    /// Returns after how long the client is asked to retry, in whole seconds.
    pub fn retry_after(&self) -> Duration {
        Duration::from_secs(self.retry_after)
    }

    /// Returns which limit was reached and what uses it, as the log shows it. It is not meant for
    /// clients. It is formatted when it is displayed.
    pub fn because(&self) -> &'a dyn fmt::Display {
        self.because
    }

    /// Returns where the time of the request went until it was refused. `None` unless the service
    /// [measures](Service::measures).
    pub fn timing(&self) -> Option<Timing> {
        self.timing
    }

    /// Returns the response of the service, as a `503` without a reader. Returns `None` if the
    /// service has no response or panics.
    pub(crate) fn ask(&self, service: &dyn Service, request: &Request) -> Option<Response> {
        let response = catch_unwind(AssertUnwindSafe(|| service.refused(request, self)));
        let mut response = response.unwrap_or_else(|_| {
            tracing::error!("`Service::refused` panicked");
            note_caught_panic();
            None
        })?;
        if !matches!(response.body(), ResponseBody::Empty | ResponseBody::Bytes(_)) {
            // A reader would be read on an event loop, or by a thread of the pool, which has none
            // left.
            *response.body_mut() = ResponseBody::Empty;
        }
        response.set_status(503);
        response.set_header("retry-after", self.retry_after.to_string()).expect("a valid header");
        Some(response)
    }

    /// Returns the response without a body.
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
