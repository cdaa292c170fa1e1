//! The trait of middleware, and `Next`, which calls the rest of the chain.

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use filoplume_runtime::{Incomplete, Request, Response, note_caught_panic};

use super::context::Context;
use super::error::{Error, Result};
use super::handler::Shareable;
use super::options::RouteOptions;
use super::panics::{PanicFlag, Panicked, panic_message};
use super::refusal::NextRefused;
use super::response::{IntoResponse, respond};

/// A wrapper around handlers, for an app, a router or one route.
///
/// Every `Fn(Request, Next) -> impl IntoResponse` is middleware:
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
/// Middleware runs in the order in which it is added: the first is the outermost. [`Next::run`]
/// consumes `Next`, so a request cannot be passed on after it was answered.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not middleware",
    label = "not middleware",
    note = "middleware is a closure `|request: Request, next: Next| -> Result<Response>` with the \
            types of both parameters, or a type that implements `Middleware`",
    note = "add it only if it is wanted: `let app = if is_on {{ app.with(middleware) }} else {{ \
            app }};`",
    note = "middleware must be `Send + Sync`, because threads share what it captures: use an `Arc` \
            rather than an `Rc`, and a pool rather than a connection"
)]
#[doc(alias("Layer", "Transform", "Fairing", "from_fn"))]
pub trait Middleware: Send + Sync + 'static {
    /// Answers the request, usually by calling [`next.run(request)`](Next::run).
    ///
    /// # Errors
    ///
    /// A failure. It becomes a response, which then passes through the middleware further out.
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response>;

    /// Completes the response if the server refuses the request with a `503`, because the server is
    /// overloaded: no thread, memory or disk space is left for the request. Then neither
    /// [`handle`](Self::handle) nor a handler is called.
    ///
    /// [`next.run(request)`](NextRefused::run) returns the response, as the middleware further in
    /// has left it. Cheap headers and log lines belong here. Under a flood it is called for each
    /// refusal, on an event loop, so it should not wait. The default adds nothing.
    ///
    /// ```
    /// use filoplume::middleware::NextRefused;
    /// use filoplume::prelude::*;
    ///
    /// struct Region(&'static str);
    ///
    /// impl Middleware for Region {
    ///     fn handle(&self, request: Request, next: Next) -> Result<Response> {
    ///         let mut response = next.run(request);
    ///         response.set_header("x-region", self.0)?;
    ///         Ok(response)
    ///     }
    ///
    ///     fn refused(&self, request: &Request, next: NextRefused) -> Response {
    ///         let mut response = next.run(request);
    ///         let _ = response.set_header("x-region", self.0);
    ///         response
    ///     }
    /// }
    ///
    /// let app = App::new().get("/", || "hi").with(Region("north"));
    /// app.test().get("/").send().assert_header("x-region", "north");
    /// ```
    fn refused(&self, request: &Request, next: NextRefused<'_>) -> Response {
        next.run(request)
    }

    /// Called when the server has refused a request before it was complete: it is malformed,
    /// exceeds a limit, did not arrive in time, or came without TLS to an address that expects it.
    /// Neither [`handle`](Self::handle) nor a handler is called, and the response cannot be
    /// changed. Use it for logs and counters. The default does nothing.
    ///
    /// If the head was valid, the middleware of the route is told as well as that of the app. Under
    /// a flood it is called for each such request, on an event loop, so it should not wait.
    ///
    /// ```
    /// use filoplume::Context;
    /// use filoplume::middleware::Incomplete;
    /// use filoplume::prelude::*;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// struct CountBad(Arc<AtomicU64>);
    ///
    /// impl Middleware for CountBad {
    ///     fn handle(&self, request: Request, next: Next) -> Result<Response> {
    ///         Ok(next.run(request))
    ///     }
    ///
    ///     fn incomplete(&self, _: &Incomplete, _: Context) {
    ///         self.0.fetch_add(1, Relaxed);
    ///     }
    /// }
    ///
    /// let bad = Arc::new(AtomicU64::new(0));
    /// let app = App::new().get("/", || "hi").with(CountBad(Arc::clone(&bad)));
    /// app.test().raw("GET  /  HTTP/1.1\r\n\r\n");
    /// assert_eq!(bad.load(Relaxed), 1);
    /// ```
    fn incomplete(&self, incomplete: &Incomplete<'_>, context: Context<'_>) {
        let _ = (incomplete, context);
    }

    /// Changes the options of a route, and declares which extensions the middleware adds to
    /// requests. It is called once per route when the app starts.
    ///
    /// Middleware without this method, such as a closure, is assumed to add any extension.
    /// Middleware with this method [declares](RouteOptions::provide) its extensions. A handler with
    /// an [`Extension`](crate::Extension) that no middleware adds is then reported when the app
    /// starts.
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
        const {
            let () = R::CHECKED;
            assert!(
                !R::IS_NOTHING,
                "this middleware returns nothing, so the client gets an empty 200: return the \
                 response, as `next.run(request)` at the end, without a semicolon"
            );
        };
        respond(request, |request| Ok(self(request, next)))
    }
}

/// Middleware as routes and apps store it.
pub(crate) type Layer = Arc<dyn NamedMiddleware>;

/// Middleware that knows its type even as a trait object.
pub(crate) trait NamedMiddleware: Middleware {
    /// Returns the type.
    fn kind(&self) -> TypeId;

    /// Returns the name of the type or function, or `a closure`.
    fn name(&self) -> String;
}

/// Middleware with the line that has added it, for the mistakes that it reports.
struct Added<M> {
    middleware: M,
    written_at: &'static Location<'static>,
}

/// Returns the middleware as routes and apps store it.
#[track_caller]
pub(crate) fn layer(middleware: impl Middleware) -> Layer {
    Arc::new(Added { middleware, written_at: Location::caller() })
}

impl<M: Middleware> Middleware for Added<M> {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        self.middleware.handle(request, next)
    }

    fn refused(&self, request: &Request, next: NextRefused<'_>) -> Response {
        self.middleware.refused(request, next)
    }

    fn incomplete(&self, incomplete: &Incomplete<'_>, context: Context<'_>) {
        self.middleware.incomplete(incomplete, context);
    }

    // Here and not in the builder, so that programs without middleware do not contain it.
    fn configure(&self, options: &mut RouteOptions) {
        let known = options.mistakes().len();
        self.middleware.configure(options);
        options.locate_mistakes(known, self.written_at);
    }
}

impl<M: Middleware> NamedMiddleware for Added<M> {
    fn kind(&self) -> TypeId {
        TypeId::of::<M>()
    }

    fn name(&self) -> String {
        let name = std::any::type_name::<M>();
        let name = name.split('<').next().unwrap_or(name);
        match name.rsplit("::").next().unwrap_or(name) {
            "{{closure}}" => "a closure".to_owned(),
            short => short.to_owned(),
        }
    }
}

/// The rest of the chain: the remaining middleware, and then the handler.
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
#[doc(alias("call_next"))]
#[derive(Debug)]
pub struct Next<'a> {
    pub(crate) layers: Layers<'a>,
    pub(crate) context: Context<'a>,
    pub(crate) end: End,
}

/// The remaining middleware.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a>(pub(crate) &'a [Layer]);

/// The end of the chain, which the last middleware calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The routing of the app, followed by the middleware of the router and the route.
    Route,
    /// The handler.
    Handler,
    /// The response to a request that no handler answers: a list of methods, a redirect or an
    /// error.
    Unmatched,
    /// The response to a request whose content is longer than its route accepts.
    TooLong,
}

impl<'a> Next<'a> {
    /// Passes the request on and returns the response. A failure further in is also returned as a
    /// response, which carries [the error](Error::of). So middleware that changes responses changes
    /// those of failures too.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || Err::<(), _>(Error::conflict("lent out"))).with(
    ///     |request: Request, next: Next| {
    ///         let response = next.run(request);
    ///         assert_eq!(response.status(), 409);
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
                End::Route => return self.context.router.route_again(request, self.context),
                End::Unmatched => return self.context.router.answer_unmatched(&request),
                End::Handler => return self.context.handle(request),
                End::TooLong => return self.context.content_too_long(),
            },
        };
        result.unwrap_or_else(|error| self.context.pending(error))
    }

    /// Like [`run`](Self::run), but returns a panic further in as `Err` with its message. Whatever
    /// this middleware answers then, the changes to a session are not saved.
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
        let flag = PanicFlag::of(&request);
        let caught = |message| {
            if let Some(flag) = &flag {
                flag.set();
            }
            message
        };
        let result = catch_unwind(AssertUnwindSafe(|| self.run(request)));
        let response = result.map_err(|panic| {
            note_caught_panic();
            caught(panic_message(&*panic))
        })?;
        match Error::of(&response).and_then(Error::downcast_ref::<Panicked>) {
            Some(panicked) => Err(caught(panicked.message.clone())),
            None => Ok(response),
        }
    }

    /// Returns the context of the request: its route and state.
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

/// Returns whether a response stands for a panic, after which the handler's work may be incomplete.
/// Middleware that others may stand within also looks at the [`PanicFlag`].
#[cfg(feature = "cookies")]
pub(crate) fn is_panic(response: &Response) -> bool {
    Error::of(response).and_then(Error::downcast_ref::<Panicked>).is_some()
}
