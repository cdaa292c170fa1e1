//! Turns panics of handlers into responses.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use filoplume_runtime::{Headers, Request, Response};

use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::core::panics::{PanicFlag, Panicked};
use crate::core::response::IntoResponse;

/// Answers with a response of the program when inner middleware or the handler panics.
///
/// Without it, a panic already is a plain `500`: the log has the route and the message, and the
/// thread continues. The panic's message reaches the client only if the closure puts it into the
/// response.
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
/// This middleware does not see a panic that occurs while a response body is read, after the
/// handler has returned. In that case the engine closes the connection. A program built with `panic
/// = "abort"` ends with its first panic.
#[derive(Default)]
pub struct CatchPanic {
    respond: Option<Respond>,
}

type Respond = Box<dyn Fn(&str) -> Result<Response> + Send + Sync>;

impl CatchPanic {
    /// Returns middleware that turns a panic into a `500`, so that outer middleware sees a
    /// response.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers with the response that this closure makes from the panic's message. The closure
    /// chooses the status, which should be `500`. Headers that inner middleware set are kept.
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
        let flag = PanicFlag::of(&request);
        let response = run_catching_panics(request, next);
        // Inner middleware that adds something to every response may already have caught the panic.
        let panicked = Error::of(&response).and_then(Error::downcast_ref::<Panicked>);
        match (panicked, &self.respond) {
            (Some(panicked), Some(respond)) => {
                // The page does not carry the panic.
                if let Some(flag) = flag {
                    flag.set();
                }
                let mut page = respond(&panicked.message)?;
                add_missing(page.headers_mut(), response.headers())?;
                Ok(page)
            }
            _ => Ok(response),
        }
    }

    // Adds nothing to requests.
    fn configure(&self, _: &mut RouteOptions) {}
}

impl fmt::Debug for CatchPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatchPanic").field("responds", &self.respond.is_some()).finish()
    }
}

/// Adds the headers that inner middleware set, unless the page has them.
fn add_missing(headers: &mut Headers, others: &Headers) -> Result<()> {
    let missing: Vec<_> = others.iter().filter(|(name, _)| !headers.contains(name)).collect();
    for (name, value) in missing {
        headers.append(name, value)?;
    }
    Ok(())
}

/// Runs `next`, and turns a panic of inner middleware into a response, as the framework does for
/// handlers. For middleware that must run on every response.
pub(crate) fn run_catching_panics(request: Request, next: Next<'_>) -> Response {
    let context = next.context();
    let result = catch_unwind(AssertUnwindSafe(|| next.run(request)));
    result.unwrap_or_else(|panic| context.panicked(&*panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_its_own_headers_and_gets_the_others() {
        let headers = |fields: &[(&str, &str)]| {
            let mut headers = Headers::new();
            for &(name, value) in fields {
                headers.append(name, value).expect("it is a header");
            }
            headers
        };
        let mut page = headers(&[("content-type", "text/html")]);
        let others = headers(&[("Content-Type", "text/plain"), ("vary", "a"), ("vary", "b")]);
        add_missing(&mut page, &others).expect("they are headers");
        let all: Vec<_> = page.iter().map(|(name, value)| (name, value.to_vec())).collect();
        let expected = [("content-type", "text/html"), ("vary", "a"), ("vary", "b")];
        assert_eq!(all.len(), expected.len());
        for ((name, value), (expected_name, expected_value)) in all.iter().zip(expected) {
            assert!(name.eq_ignore_ascii_case(expected_name), "{name}");
            assert_eq!(value, expected_value.as_bytes());
        }
    }
}
