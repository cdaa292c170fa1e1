//! What stands around handlers, and what comes after it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use filoplume_runtime::{Request, Response, note_caught_panic};

use super::context::Context;
use super::error::{Error, Result};
use super::handler::Shareable;
use super::options::RouteOptions;
use super::panics::{Panicked, panic_message};
use super::response::{IntoResponse, respond};

/// Something around handlers, for an app, a router or one route.
///
/// Every `Fn(Request, Next) -> impl IntoResponse` is one:
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", || "secret")
///     .with(|request: Request, next: Next| {
///         if request.header("x-key") != Some("sesame") {
///             return Err(Error::forbidden("this is for friends"));   // the handler is not called
///         }
///         let mut response = next.run(request);
///         response.set_header("x-checked", "yes")?;
///         Ok(response)
///     });
/// # app.test().get("/").header("x-key", "sesame").send().assert_status(200);
/// ```
///
/// Middleware runs in the order it is written: the first is the outermost. `Next` is used up by
/// [`Next::run`], so nothing can go on after it has answered.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not middleware",
    label = "not middleware",
    note = "middleware is a closure `|request: Request, next: Next| -> Result<Response>`, or a \
            type that implements `Middleware`",
    note = "both parameters need their types written: `|request: Request, next: Next| ...`",
    note = "it is `Send + Sync`: what it captures is shared by threads, such as an `Arc` rather \
            than an `Rc`, and a pool rather than a connection"
)]
pub trait Middleware: Send + Sync + 'static {
    /// Answers the request, mostly by [`next.run(request)`](Next::run).
    ///
    /// # Errors
    ///
    /// What cannot be answered; it becomes a response on its way out, through the middleware
    /// further out.
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response>;

    /// Changes how the requests of a route are taken, and says what is put beside them. Called once
    /// per route when the app starts.
    ///
    /// Middleware without it, such as a closure, may put anything beside requests. Middleware that
    /// has it [says](RouteOptions::provide) what that is, so that a handler with an
    /// [`Extension`](crate::Extension) that nobody puts there is found when the app starts.
    fn configure(&self, options: &mut RouteOptions) {
        options.provide_anything();
    }
}

impl<F, R> Middleware for F
where
    F: Fn(Request, Next<'_>) -> R + Shareable + 'static,
    R: IntoResponse,
{
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        const { R::CHECKED };
        respond(request, |request| Ok(self(request, next)))
    }
}

/// Middleware as it is kept.
pub(crate) type Layer = Arc<dyn Middleware>;

/// What comes after a middleware: others, and then the handler.
///
/// ```
/// use filoplume::prelude::*;
///
/// fn greet(request: Request, next: Next) -> Result<Response> {
///     let mut response = next.run(request); // the handler, or what else stands before it
///     response.set_header("x-greeting", "hello")?;
///     Ok(response)
/// }
///
/// let app = App::new().get("/", || "hi").with(greet);
/// app.test()
///     .get("/nowhere")
///     .send()
///     .assert_status(404)
///     .assert_header("x-greeting", "hello");
/// ```
#[derive(Debug)]
pub struct Next<'a> {
    pub(crate) layers: Layers<'a>,
    pub(crate) context: Context<'a>,
    pub(crate) end: End,
}

/// The middleware still to come.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a>(pub(crate) &'a [Layer]);

/// What stands behind the last middleware.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The way to the route, with the router's own middleware.
    Route,
    /// The handler.
    Handler,
    /// The list of methods: a preflight that the route's middleware did not answer.
    Options,
}

impl<'a> Next<'a> {
    /// Hands the request on and returns the response. A failure further in is a response too, with
    /// [the error](Error::of) beside it, so that what is done to responses is done to all of them.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || Err::<(), _>(Error::conflict("lent out"))).with(
    ///     |request: Request, next: Next| {
    ///         let response = next.run(request);
    ///         assert_eq!(response.status_code(), 409);
    ///         assert!(Error::of(&response).is_some());
    ///         response
    ///     },
    /// );
    /// app.test().get("/").send().assert_status(409);
    /// ```
    pub fn run(self, request: Request) -> Response {
        let result = match self.layers.0.split_first() {
            Some((layer, rest)) => {
                let next = Next { layers: Layers(rest), context: self.context, end: self.end };
                layer.handle(request, next)
            }
            None => match self.end {
                End::Route => return self.context.site.route(request, self.context.asked),
                End::Options => return self.context.site.answer_options(&request),
                End::Handler => return self.context.handle(request),
            },
        };
        result.unwrap_or_else(|error| self.context.pending(error))
    }

    /// As [`run`](Self::run), and a panic further in is returned as `Err` with its message.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || -> &str { panic!("out of tea") }).with(
    ///     |request: Request, next: Next| {
    ///         next.run_catching(request).map_err(|message| {
    ///             Error::unavailable("try again later").with_source(message)
    ///         })
    ///     },
    /// );
    /// app.test().get("/").send().assert_status(503);
    /// ```
    ///
    /// # Errors
    ///
    /// If the handler or middleware further in panics.
    pub fn run_catching(self, request: Request) -> std::result::Result<Response, String> {
        let result = catch_unwind(AssertUnwindSafe(|| self.run(request)));
        let response = result.map_err(|panic| {
            note_caught_panic();
            panic_message(&*panic)
        })?;
        match Error::of(&response).and_then(Error::downcast_ref::<Panicked>) {
            Some(panicked) => Err(panicked.message.clone()),
            None => Ok(response),
        }
    }

    /// Returns where the request is being answered: the route and the state.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app =
    ///     App::new().get("/users/{id}", || "ada").with(|request: Request, next: Next| {
    ///         assert_eq!(next.context().route(), Some("/users/{id}"));
    ///         next.run(request)
    ///     });
    /// app.test().get("/users/17").send().assert_text("ada");
    /// ```
    pub fn context(&self) -> Context<'a> {
        self.context
    }
}

impl std::fmt::Debug for Layers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} middlewares", self.0.len())
    }
}

/// Whether a response stands for a panic: what the handler did before it was not finished.
#[cfg(feature = "cookies")]
pub(crate) fn is_panic(response: &Response) -> bool {
    Error::of(response).and_then(Error::downcast_ref::<Panicked>).is_some()
}
