//! Panics of handlers, as responses.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use filoplume_runtime::{Headers, Request, Response};

use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::core::panics::Panicked;
use crate::core::response::IntoResponse;

/// Answers with a page of the program when something further in panics.
///
/// Without it a panic is a plain `500` already, with the route and the message in the log, and the
/// thread goes on. What the panic says is for the program; it goes to the client only if the
/// closure puts it into the response.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || -> String { panic!("out of paper") }).with(
///     middleware::CatchPanic::new().respond(|_message: &str| {
///         (StatusCode::INTERNAL_SERVER_ERROR, Html("<h1>We are sorry</h1>"))
///     }),
/// );
/// app.test().get("/").send().assert_status(500).assert_text("<h1>We are sorry</h1>");
/// ```
///
/// A panic while a response body is read, after the handler has returned, is not seen here: the
/// engine closes the connection. A program that is built with `panic = "abort"` ends with its first
/// panic.
#[derive(Default)]
pub struct CatchPanic {
    respond: Option<Respond>,
}

type Respond = Box<dyn Fn(&str) -> Result<Response> + Send + Sync>;

impl CatchPanic {
    /// Returns middleware that makes a panic a `500` right here, so that middleware further out
    /// sees a response.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers with what this closure makes of the panic's message. Its status is its own: a page
    /// should have `500`. Headers that middleware further in set stay.
    #[must_use]
    pub fn respond<R: IntoResponse>(
        mut self,
        respond: impl Fn(&str) -> R + Send + Sync + 'static,
    ) -> Self {
        self.respond = Some(Box::new(move |message| respond(message).into_response()));
        self
    }
}

impl Middleware for CatchPanic {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        let response = contain(request, next);
        // It may have been contained further in already, by middleware that has something to add to
        // every response.
        let panicked = Error::of(&response).and_then(Error::downcast_ref::<Panicked>);
        match (panicked, &self.respond) {
            (Some(panicked), Some(respond)) => {
                let mut page = respond(&panicked.message)?;
                add_missing(page.headers_mut(), response.headers())?;
                Ok(page)
            }
            _ => Ok(response),
        }
    }

    // It puts nothing beside requests.
    fn configure(&self, _: &mut RouteOptions) {}
}

impl fmt::Debug for CatchPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatchPanic").field("responds", &self.respond.is_some()).finish()
    }
}

/// Keeps what middleware further in said of the response, unless the page says it itself.
fn add_missing(headers: &mut Headers, others: &Headers) -> Result<()> {
    let missing: Vec<_> = others.iter().filter(|(name, _)| !headers.contains(name)).collect();
    for (name, value) in missing {
        headers.append(name, value)?;
    }
    Ok(())
}

/// As [`Next::run`], and a panic of middleware further in is the response that stands for it, as
/// one of a handler is already: for middleware whose work is to be done on every response.
pub(crate) fn contain(request: Request, next: Next<'_>) -> Response {
    let context = next.context();
    let result = catch_unwind(AssertUnwindSafe(|| next.run(request)));
    result.unwrap_or_else(|panic| context.panicked(&*panic))
}
