//! The handlers of one path.

use std::fmt;
use std::panic::Location;

use filoplume_runtime::{Method, Permits};

use crate::core::handler::{Endpoint, Handler, Parameters, check_handler, erase};
use crate::core::middleware::{Layer, Middleware, layer};
use crate::core::options::RouteOptions;
use crate::core::response::IntoResponse;

/// The handlers of one path, by method, with middleware and options of their own.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().route(
///     "/notes",
///     get(|| "all notes").post(|text: String| (StatusCode::CREATED, text)),
/// );
/// let client = app.test();
/// client.post("/notes").body("remember").send().assert_status(201);
/// client
///     .delete("/notes")
///     .send()
///     .assert_status(405)
///     .assert_header("allow", "GET, HEAD, POST, OPTIONS");
/// ```
#[must_use = "a route does nothing until it is given to an app or a router"]
pub struct Route {
    pub(crate) handlers: Vec<MethodHandler>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) adjust: Vec<Adjust>,
}

/// Changes the options of a route, after its middleware and handlers have set theirs.
pub(crate) type Adjust = Box<dyn Fn(&mut RouteOptions) + Send + Sync>;

/// A handler and the methods that it answers.
pub(crate) struct MethodHandler {
    pub(crate) methods: Methods,
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) written_at: &'static Location<'static>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Methods {
    Some(Vec<Method>),
    Any,
}

impl Methods {
    fn of(methods: impl IntoIterator<Item = Method>) -> Self {
        let mut some: Vec<Method> = Vec::new();
        for method in methods {
            if !some.contains(&method) {
                some.push(method);
            }
        }
        Self::Some(some)
    }

    #[cfg(feature = "websocket")]
    pub(crate) fn has_get(&self) -> bool {
        match self {
            Self::Some(methods) => methods.contains(&Method::GET),
            Self::Any => true,
        }
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("ANY"),
            Self::Some(methods) => {
                let names: Vec<_> = methods.iter().map(Method::as_str).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),+ $(,)?) => {
        $(
            #[doc = concat!("Returns a route that answers `", stringify!($method), "`.")]
            ///
            /// ```
            /// use filoplume::prelude::*;
            #[doc = concat!("use filoplume::routing::", stringify!($name), ";")]
            ///
            #[doc = concat!("let route = ", stringify!($name), "(|| \"done\");")]
            /// let client = App::new().route("/notes", route).test();
            #[doc = concat!("let response = client.", stringify!($name), "(\"/notes\").send();")]
            /// response.assert_status(200);
            /// ```
            #[track_caller]
            pub fn $name<P: Parameters, H: Handler<P, Output: IntoResponse>>(handler: H) -> Route {
                const { check_handler::<P, H>() };
                Route::new().add(Methods::Some(vec![Method::$method]), handler)
            }
        )+

        impl Route {
            $(
                #[doc = concat!("Answers `", stringify!($method), "` too.")]
                #[track_caller]
                pub fn $name<P: Parameters, H: Handler<P, Output: IntoResponse>>(
                    self,
                    handler: H,
                ) -> Self {
                    const { check_handler::<P, H>() };
                    self.add(Methods::Some(vec![Method::$method]), handler)
                }
            )+
        }
    };
}

methods! {
    get GET,
    post POST,
    put PUT,
    patch PATCH,
    delete DELETE,
    head HEAD,
    options OPTIONS,
}

/// Returns a route that answers every method that has no other handler, including unknown methods.
///
/// ```
/// use filoplume::prelude::*;
///
/// let client = App::new()
///     .route("/", get(|| "got").any(|method: Method| format!("{method}?")))
///     .test();
/// client.get("/").send().assert_text("got");
/// client.request(Method::from_bytes(b"PURGE")?, "/").send().assert_text("PURGE?");
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn any<P: Parameters, H: Handler<P, Output: IntoResponse>>(handler: H) -> Route {
    const { check_handler::<P, H>() };
    Route::new().add(Methods::Any, handler)
}

/// Returns a route that answers several methods with one handler. An app with a route without
/// methods does not start.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::routing::on;
///
/// let app = App::new().route("/vote", on([Method::PUT, Method::POST], || "counted"));
/// app.test().put("/vote").send().assert_text("counted");
/// ```
#[track_caller]
pub fn on<P: Parameters, H: Handler<P, Output: IntoResponse>>(
    methods: impl IntoIterator<Item = Method>,
    handler: H,
) -> Route {
    const { check_handler::<P, H>() };
    Route::new().add_on(Methods::of(methods), handler)
}

impl Route {
    pub(crate) fn new() -> Self {
        Self { handlers: Vec::new(), layers: Vec::new(), adjust: Vec::new() }
    }

    #[track_caller]
    pub(crate) fn add<P: Parameters>(
        mut self,
        methods: Methods,
        handler: impl Handler<P, Output: IntoResponse>,
    ) -> Self {
        let written_at = Location::caller();
        self.handlers.push(MethodHandler { methods, endpoint: erase(handler), written_at });
        self
    }

    /// Like [`add`](Self::add), but reports a mistake if there are no methods, because the handler
    /// would never be called. The check is here, so that a program without `on` does not contain
    /// the text.
    #[track_caller]
    fn add_on<P: Parameters>(
        self,
        methods: Methods,
        handler: impl Handler<P, Output: IntoResponse>,
    ) -> Self {
        let written_at = Location::caller();
        let is_empty = methods == Methods::Some(Vec::new());
        let this = self.add(methods, handler);
        if !is_empty {
            return this;
        }
        this.adjust(move |options| {
            options.mistake(format!(
                "`on` ({written_at}) has no methods, so its handler answers nothing: name its \
                 methods, or use `any`"
            ));
        })
    }

    /// Adds a handler for every method that has no other handler.
    #[track_caller]
    pub fn any<P: Parameters, H: Handler<P, Output: IntoResponse>>(self, handler: H) -> Self {
        const { check_handler::<P, H>() };
        self.add(Methods::Any, handler)
    }

    /// Adds one handler for several methods.
    #[track_caller]
    pub fn on<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        methods: impl IntoIterator<Item = Method>,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.add_on(Methods::of(methods), handler)
    }

    /// Adds middleware around the handlers of this route. It runs inside the middleware of the
    /// router and the app.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .route("/login", post(|| "welcome").with(middleware::RateLimit::per_minute(1)));
    /// let client = app.test();
    /// client.post("/login").send().assert_status(200);
    /// client.post("/login").send().assert_status(429);
    /// ```
    #[doc(alias("layer", "use", "wrap", "route_layer"))]
    #[track_caller]
    pub fn with<M>(mut self, middleware: M) -> Self
    where
        M: Middleware, // `Logger::new()` with its `()`, or `fn(Request, Next) -> Result<Response>`
    {
        self.layers.push(layer(middleware));
        self
    }

    /// Sets the maximum length of the content. Longer content is answered with `413`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().route("/note", post(|text: String| text).content_bytes_max(10));
    /// app.test().post("/note").body("more than ten").send().assert_status(413);
    /// ```
    #[doc(alias("DefaultBodyLimit", "MAX_CONTENT_LENGTH"))]
    pub fn content_bytes_max(self, bytes: u64) -> Self {
        self.adjust(move |options| {
            options.content_bytes_max(bytes);
        })
    }

    /// Calls the handlers when the whole content is there. Content up to a
    /// [bound](crate::ServerConfig::buffered_content_bytes_max) is in memory. Longer content waits
    /// in a file without a name. `Body`, `Multipart` and `Request` read it from there; on other
    /// routes they read it from the network as it arrives.
    ///
    /// Use it for uploads from slow clients. Without it, a handler that reads an upload holds a
    /// thread until the last byte, and only a limited number of threads may do so. With it, an
    /// upload holds no thread before it is complete. The cost is a second copy of the content on
    /// the disk. [`spool_folder`](crate::ServerConfig::spool_folder) and
    /// [`spooled_bytes_max`](crate::ServerConfig::spooled_bytes_max) set the folder and the total
    /// size; a content that does not fit is answered with `503`.
    ///
    /// A parameter that collects the content in memory, such as `Json`, is a mistake here.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn length(mut content: Body) -> Result<String> {
    ///     Ok(std::io::copy(&mut content, &mut std::io::sink())?.to_string())
    /// }
    ///
    /// let upload = post(length).spooled().content_bytes_max(1 << 30);
    /// let app = App::new().route("/upload", upload);
    /// app.test().post("/upload").body(vec![0; 3_000_000]).send().assert_text("3000000");
    /// ```
    #[cfg(feature = "spool")]
    #[cfg_attr(docsrs, doc(cfg(feature = "spool")))]
    pub fn spooled(self) -> Self {
        self.adjust(|options| {
            options.spooled();
        })
    }

    /// Always runs the handlers on the event loop, regardless of the measured execution times.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// // This handler is quick and never waits.
    /// let app = App::new().route("/health", get(|| "fine").on_loop());
    /// app.test().get("/health").send().assert_text("fine");
    /// ```
    pub fn on_loop(self) -> Self {
        self.adjust(|options| {
            options.on_loop();
        })
    }

    /// Always runs the handlers on threads of the pool, regardless of the measured execution times.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// // Even the first request runs on a thread of the pool.
    /// let app = App::new().route("/report", get(|| "a long one").on_pool());
    /// app.test().get("/report").send().assert_text("a long one");
    /// ```
    pub fn on_pool(self) -> Self {
        self.adjust(|options| {
            options.on_pool();
        })
    }

    /// Calls the handlers only while they hold one of these permits. Use it for a scarce resource,
    /// such as the connections of a pool. Requests wait without a thread, in the order of their
    /// arrival, for at most [`queue_timeout`](crate::ServerConfig::queue_timeout). Routes that
    /// share permits take turns. So 16 connections need about 16 threads, and no request runs into
    /// a time-out of the connection pool, however many clients there are.
    ///
    /// ```
    /// use filoplume::Permits;
    /// use filoplume::prelude::*;
    ///
    /// let database = Permits::new("database", 16); // as many as the pool has connections
    /// let app = App::new()
    ///     .route("/notes", get(|| "all notes").uses(&database))
    ///     .route("/search", get(|| "what was found").uses(&database))
    ///     .get("/about", || "needs no database");
    /// app.test().get("/notes").send().assert_text("all notes");
    /// ```
    ///
    /// A permit is released when the handler returns or panics. To limit all routes of a router or
    /// an app, add the permits as [middleware](crate::Middleware): `.with(database.clone())`. A
    /// route uses one kind of permits; an app with a route that uses two does not start. The [test
    /// client](crate::App::test) calls one handler at a time and takes no permits.
    ///
    /// A content is collected before the permit is taken. A handler that reads the content as it
    /// arrives, as [`Body`](crate::Body) or `Multipart`, would hold the permit while a slow client
    /// sends: an app with such a route does not start. Either have the content collected by
    /// `spooled()` (feature `spool`), or call [`Permits::take`](crate::Permits::take) in the
    /// handler when the content is there:
    ///
    /// ```
    /// use filoplume::Permits;
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// fn upload(State(database): State<Permits>, mut content: Body) -> Result<String> {
    ///     let length = std::io::copy(&mut content, &mut std::io::sink())?;
    ///     let permit = database.take(Duration::from_secs(2));
    ///     let _permit = permit.ok_or(Error::unavailable("the database is busy"))?;
    ///     Ok(format!("{length} bytes"))
    /// }
    ///
    /// let database = Permits::new("database", 16);
    /// let app = App::new().post("/upload", upload).state(database.clone());
    /// app.test().post("/upload").body("some").send().assert_text("4 bytes");
    ///
    /// let app = App::new().route("/upload", post(|_: Body| "read").uses(&database));
    /// let error = app.build().unwrap_err();
    /// assert!(format!("{error:?}").contains("reads the content as it arrives"));
    /// ```
    pub fn uses(self, permits: &Permits) -> Self {
        let permits = permits.clone();
        self.adjust(move |options| {
            options.uses(&permits);
        })
    }

    /// Runs the handlers even if other routes occupy all threads. Use it for requests that must be
    /// answered under overload, such as health checks. Eight threads are reserved for all vital
    /// routes together; vital requests beyond these are treated like any other request.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().route("/health", get(|| "the disk can be written").vital());
    /// app.test().get("/health").send().assert_status(200);
    /// ```
    pub fn vital(self) -> Self {
        self.adjust(|options| {
            options.vital();
        })
    }

    /// Records that the handlers open WebSockets.
    #[cfg(feature = "websocket")]
    pub(crate) fn for_sockets(self) -> Self {
        self.adjust(RouteOptions::expect_upgrade)
    }

    fn adjust(mut self, adjust: impl Fn(&mut RouteOptions) + Send + Sync + 'static) -> Self {
        self.adjust.push(Box::new(adjust));
        self
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<_> =
            self.handlers.iter().map(|handler| handler.methods.to_string()).collect();
        f.debug_struct("Route")
            .field("methods", &methods)
            .field("middleware", &self.layers.len())
            .finish()
    }
}
