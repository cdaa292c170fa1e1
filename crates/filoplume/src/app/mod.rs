//! The app as the program writes it: it collects routes, middleware, state and settings until it is
//! built. Messages of the compiler quote lines of this file: some have a comment for that.

mod beside;
mod built_app;
#[cfg(feature = "console")]
mod console;
mod health;
mod observe;
mod other_names;
mod refused;
mod server_timing;
mod shutdown;

use std::error::Error as StdError;
use std::fmt;
#[cfg(unix)]
use std::path::PathBuf;

use filoplume_runtime::{Method, Response, ServerConfig};

pub(crate) use self::beside::{Beside, Part};
pub(crate) use self::built_app::{BuiltApp, OWN_RESPONDERS, SpecialPlans};
use self::refused::RefusalContents;
pub(crate) use self::server_timing::ServerTiming;
use self::shutdown::ShutdownHooks;
use crate::client::Proxies;
use crate::core::asked::Asked;
use crate::core::error::{Error, Result, responder};
use crate::core::handler::{Handler, Parameters, check_handler};
use crate::core::middleware::{Layer, Middleware};
use crate::core::panics::record_panic_locations;
use crate::core::response::IntoResponse;
use crate::core::settings::Settings;
use crate::core::states::Shared;
use crate::routing::{Route, Router, Routes, build};
#[cfg(feature = "static-files")]
use crate::static_files::StaticFiles;

/// An app: routes, middleware, state and settings. A request passes through the middleware to the
/// handler of its route.
///
/// ```no_run
/// use filoplume::prelude::*;
///
/// fn main() -> filoplume::Result<()> {
///     App::new()
///         .get("/", || "Hello, World!")
///         .get("/hello/{name}", |Path(name): Path<String>| format!("Hello, {name}!"))
///         .listen("127.0.0.1:5000")
/// }
/// ```
///
/// [`listen`](Self::listen) and [`build`](Self::build) report all mistakes at once, each with its
/// source location. An example of a mistake is two routes that match the same paths.
///
/// A path that matches no route is redirected with `308` if it matches one after a slash is added
/// to or removed from its end.
#[derive(Default)]
#[must_use = "an app does nothing until `listen`, `build` or `test` is called"]
pub struct App {
    pub(crate) router: Router,
    /// `None` if the program set no configuration.
    pub(crate) config: Option<ServerConfig>,
    pub(crate) settings: Settings,
    server_timing: ServerTiming,
    shutdown_hooks: ShutdownHooks,
    #[cfg(unix)]
    pub(crate) hot_restart: Option<PathBuf>,
    pub(crate) beside: Option<Box<dyn Beside>>,
}

impl App {
    /// Returns an app without routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route with all its methods. [`Router`] describes the patterns.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .route("/notes", get(|| "all notes").post(|| (StatusCode::CREATED, "kept")));
    /// app.test().post("/notes").send().assert_status(201);
    /// ```
    #[track_caller]
    pub fn route(mut self, pattern: &str, route: Route) -> Self {
        self.router = self.router.route(pattern, route);
        self
    }

    /// Answers `GET` and `HEAD`.
    #[track_caller]
    pub fn get<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self, // returns the app: chain the calls, or `let app = app.get(..);`
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.add_handler(Method::GET, pattern, handler);
        self
    }

    /// Answers `POST`.
    #[track_caller]
    pub fn post<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self, // returns the app: chain the calls, or `let app = app.post(..);`
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.add_handler(Method::POST, pattern, handler);
        self
    }

    /// Answers `PUT`.
    #[track_caller]
    pub fn put<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.add_handler(Method::PUT, pattern, handler);
        self
    }

    /// Answers `PATCH`.
    #[track_caller]
    pub fn patch<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.add_handler(Method::PATCH, pattern, handler);
        self
    }

    /// Answers `DELETE`.
    #[track_caller]
    pub fn delete<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.add_handler(Method::DELETE, pattern, handler);
        self
    }

    /// Opens WebSockets. The handler has a
    /// [`WebSocketUpgrade`](crate::websocket::WebSocketUpgrade) among its parameters and returns
    /// it; otherwise the app does not start.
    #[cfg(feature = "websocket")]
    #[track_caller]
    pub fn websocket<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.add_socket(pattern, handler);
        self
    }

    /// Adds the routes of a router below a prefix. [The router's middleware](Router::nest) applies
    /// to everything below the prefix.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let notes = Router::new()
    ///     .get("/", || "all notes")
    ///     .get("/{id}", |Path(id): Path<u32>| format!("note {id}"));
    /// App::new().nest("/notes", notes).test().get("/notes/3").send().assert_text("note 3");
    /// ```
    #[track_caller]
    pub fn nest(mut self, prefix: &str, router: Router) -> Self {
        self.router = self.router.nest(prefix, router);
        self
    }

    /// Adds the routes of a router. They keep the router's middleware and state.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn pages() -> Router {
    ///     Router::new().get("/about", || "about us")
    /// }
    ///
    /// App::new()
    ///     .get("/", || "hi")
    ///     .merge(pages())
    ///     .test()
    ///     .get("/about")
    ///     .send()
    ///     .assert_text("about us");
    /// ```
    #[track_caller]
    pub fn merge(mut self, router: Router) -> Self {
        self.router = self.router.merge(router);
        self
    }

    /// Answers requests that match no route, in place of a plain `404`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().fallback(|request: Request| {
    ///     (StatusCode::NOT_FOUND, format!("there is no {}", request.path()))
    /// });
    /// app.test().get("/tea").send().assert_status(404).assert_text("there is no /tea");
    /// ```
    #[track_caller]
    pub fn fallback<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.set_fallback(handler);
        self
    }

    /// Adds middleware around everything, including responses of the app itself such as `404`. The
    /// first middleware that is added is the outermost.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", || "hi")
    ///     .with(middleware::RequestIds::new()) // the outermost: the logger knows the id
    ///     .with(middleware::Logger::new());
    /// let missing = app.test().get("/nowhere").send();
    /// missing.assert_status(404);
    /// assert!(missing.header("x-request-id").is_some());
    /// ```
    #[track_caller]
    pub fn with<M>(mut self, middleware: M) -> Self
    where
        M: Middleware, // `Logger::new()` with its `()`, or `fn(Request, Next) -> Result<Response>`
    {
        self.router = self.router.with(middleware);
        self
    }

    /// Adds a value that handlers extract with [`State`](crate::State).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// #[derive(Clone)]
    /// struct Motto(&'static str);
    ///
    /// let app =
    ///     App::new().get("/", |State(motto): State<Motto>| motto.0).state(Motto("be kind"));
    /// app.test().get("/").send().assert_text("be kind");
    /// ```
    #[track_caller]
    pub fn state<T: Shared + 'static>(mut self, state: T) -> Self {
        self.router = self.router.state(state);
        self
    }

    /// Maps errors of type `E` that a handler returned with `?`. Without a mapping such an error is
    /// a plain `500`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::num::ParseIntError;
    ///
    /// fn double(text: String) -> Result<String> {
    ///     Ok((text.parse::<i64>()? * 2).to_string())
    /// }
    ///
    /// let app = App::new().post("/double", double).map_error(|error: &ParseIntError| {
    ///     Error::unprocessable(format!("not a number: {error}"))
    /// });
    /// app.test().post("/double").body("two").send().assert_status(422);
    /// ```
    pub fn map_error<E: StdError + 'static>(
        mut self,
        map: impl Fn(&E) -> Error + Send + Sync + 'static,
    ) -> Self {
        self.settings.error_mappers.push(Box::new(move |error| error.downcast_ref().map(&map)));
        self
    }

    /// Answers errors of type `E` with their [`IntoResponse`] implementation, even if `?` has
    /// converted them into an [`Error`]. Without this call, such an error is a plain `500`. A
    /// handler that returns `Result<_, E>` does not need it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::fmt;
    ///
    /// #[derive(Debug)]
    /// struct SoldOut;
    ///
    /// impl std::error::Error for SoldOut {}
    ///
    /// impl fmt::Display for SoldOut {
    ///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    ///         f.write_str("sold out")
    ///     }
    /// }
    ///
    /// impl IntoResponse for SoldOut {
    ///     fn into_response(self) -> Result<Response> {
    ///         Err(Error::conflict(self.to_string()))
    ///     }
    /// }
    ///
    /// fn take() -> Result<u32, SoldOut> {
    ///     Err(SoldOut)
    /// }
    ///
    /// fn buy() -> Result<String> {
    ///     Ok(format!("{} are left", take()?))
    /// }
    ///
    /// let client = App::new().post("/buy", buy).error_response::<SoldOut>().test();
    /// client.post("/buy").send().assert_status(409).assert_contains("sold out");
    /// ```
    pub fn error_response<E>(mut self) -> Self
    where
        E: StdError + IntoResponse + Send + Sync + 'static,
    {
        self.settings.responders.push(responder::<E>);
        self
    }

    /// Replaces the default rendering of errors: problem details, HTML or plain text. If the
    /// closure returns `None` or panics, the default rendering is used.
    ///
    /// Only the content and the content type are taken from the returned response. The status, and
    /// the headers that middleware set, stay.
    ///
    /// The engine answers `503` if it has no thread, permit or memory for a request. For these
    /// responses the closure is called when the app is built, once for each format that clients may
    /// prefer, and the result is cached: an overloaded server has no time to call it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().present_errors(|error, _| {
    ///     Some(Response::from(format!("oops: {}", error.status())))
    /// });
    /// app.test().get("/nowhere").send().assert_status(404).assert_text("oops: 404 Not Found");
    /// ```
    pub fn present_errors(
        mut self,
        present: impl Fn(&Error, &Asked) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        self.settings.presenter = Some(Box::new(present));
        self
    }

    /// Shows errors with their causes, the route, the request and hints to every client. Browsers
    /// get a page; other clients get a member `development` in the problem details. Use it only in
    /// development, since it reveals internals. A warning is logged at start-up. Default: off.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/users", || "all").development(true);
    /// let page = app.test().get("/user").header("accept", "text/html").send();
    /// assert!(page.text().contains("Did you mean GET /users?"));
    /// ```
    pub fn development(mut self, is_development: bool) -> Self {
        self.settings.is_development = is_development;
        self
    }

    /// Trusts these proxies to report the [address of the client](crate::ClientAddr). Default: no
    /// proxy is trusted, and the client is the peer of the connection.
    ///
    /// The connections of these proxies do not count for
    /// [`connections_per_client_max`](crate::ServerConfig::connections_per_client_max), nor do the
    /// threads that wait for them: behind one address of a proxy are many clients.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    ///
    /// fn main() -> filoplume::Result<()> {
    ///     App::new()
    ///         .get("/", |client: ClientAddr| format!("you are {client}"))
    ///         .trust_proxies(["10.0.0.0/8", "::1"])
    ///         .listen("127.0.0.1:5000")
    /// }
    /// ```
    pub fn trust_proxies(mut self, proxies: impl Into<Proxies>) -> Self {
        let mut proxies = proxies.into();
        self.router.mistakes.append(&mut proxies.mistakes);
        self.settings.proxies = proxies;
        self
    }

    /// Sets the configuration of the server: timeouts, threads, limits. It applies however the
    /// server is bound: by [`listen`](Self::listen), [`start`](Self::start), the [test
    /// client](Self::test), or a [`Server`](crate::Server) that is given the result of
    /// [`build`](Self::build). Only a configuration that is set on the [server's own
    /// builder](crate::ServerBuilder::config) replaces it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let config =
    ///     ServerConfig::default().threads_max(64).head_timeout(Duration::from_secs(5));
    /// let app = App::new().get("/", || "hi").config(config).start("127.0.0.1:0")?;
    /// app.shutdown();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn config(mut self, config: ServerConfig) -> Self {
        self.config = Some(config);
        self
    }

    /// Returns the routes, to print or inspect them.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "hi").post("/notes", || "kept");
    /// let patterns: Vec<_> = app.routes().iter().map(|route| route.pattern.clone()).collect();
    /// assert_eq!(patterns, ["/", "/notes"]);
    /// ```
    pub fn routes(&self) -> Routes {
        self.router.routes()
    }

    /// Serves files below a prefix. At `/` the files are the fallback: paths that match a route go
    /// to that route.
    ///
    /// ```no_run
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/api/hello", || "Hello!")
    ///     .files("/downloads", StaticFiles::folder("downloads"))
    ///     .files("/", StaticFiles::folder("public"));
    /// ```
    #[cfg(feature = "static-files")]
    #[track_caller]
    pub fn files(mut self, prefix: &str, files: StaticFiles) -> Self {
        self.router = self.router.files(prefix, files);
        self
    }

    pub(crate) fn into_built(self) -> Result<BuiltApp> {
        let Self { mut router, mut settings, .. } = self;
        let layers: Box<[Layer]> = std::mem::take(&mut router.layers).into();
        settings.states = router.states.clone();
        let table = build(router, &layers, self.config.as_ref()).map_err(|mistakes| {
            let list: Vec<_> = mistakes.iter().map(|mistake| format!("\n  - {mistake}")).collect();
            Error::start_up(format!("the app cannot start:{}", list.concat()))
        })?;
        if table.is_observed() || settings.is_development {
            settings.observer.get_or_insert_default();
        }
        if let Some(observer) = &settings.observer {
            observer.begin(table.names(), table.permits());
            settings.checks.take().into_iter().for_each(|checks| observer.add_checks(checks));
        }
        if settings.is_development {
            tracing::warn!(
                "development mode is on: every client is shown errors, routes and requests"
            );
            record_panic_locations();
        }
        settings.responders.extend(OWN_RESPONDERS);
        let server_timing = self.server_timing.in_development(settings.is_development);
        let app = BuiltApp {
            layers,
            special_plans: SpecialPlans::of(&table, &server_timing),
            table,
            server_timing,
            settings,
            config: self.config,
            refusal_contents: RefusalContents::default(),
            shutdown_hooks: self.shutdown_hooks,
        };
        if !app.settings.is_development {
            app.prepare_refusals();
        }
        Ok(app)
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("router", &self.router).finish_non_exhaustive()
    }
}
