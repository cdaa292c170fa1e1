//! The app as it is written: routes, middleware, state and settings, collected until it starts.

mod built_app;
mod refused;

use std::error::Error as StdError;
use std::fmt;

use filoplume_runtime::{Method, Response, ServerConfig};

pub(crate) use self::built_app::BuiltApp;
use self::refused::RefusalContents;
use crate::client::Proxies;
use crate::core::asked::Asked;
use crate::core::error::{Error, Result, responder};
use crate::core::handler::{Handler, Parameters, check_handler};
use crate::core::middleware::{Layer, Middleware};
use crate::core::panics::note_places_of_panics;
use crate::core::response::IntoResponse;
use crate::core::settings::Settings;
use crate::core::states::Shared;
use crate::routing::{Route, Router, Routes, build};
#[cfg(feature = "static-files")]
use crate::static_files::StaticFiles;

/// An app: what is asked for goes through its middleware to the handler of a route.
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
/// Mistakes, such as two routes for the same paths, are told by [`listen`](Self::listen) and
/// [`build`](Self::build), all at once, each with the line it stands in.
///
/// A path that matches no route, and would with one slash at its end more or less, is redirected
/// there with `308`.
#[derive(Default)]
#[must_use = "an app does nothing until `listen`, `build` or `test` is called"]
pub struct App {
    pub(crate) router: Router,
    /// `None` if the program set none.
    pub(crate) config: Option<ServerConfig>,
    pub(crate) settings: Settings,
}

impl App {
    /// Returns an app without routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route with all its methods. See [`Router`] for patterns.
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

    /// Answers `GET`, and with it `HEAD`.
    #[track_caller]
    pub fn get<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.answer(Method::GET, pattern, handler);
        self
    }

    /// Answers `POST`.
    #[track_caller]
    pub fn post<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        mut self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.router = self.router.answer(Method::POST, pattern, handler);
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
        self.router = self.router.answer(Method::PUT, pattern, handler);
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
        self.router = self.router.answer(Method::PATCH, pattern, handler);
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
        self.router = self.router.answer(Method::DELETE, pattern, handler);
        self
    }

    /// Adds the routes of a router below a prefix. Everything below the prefix is behind [its
    /// middleware](Router::nest).
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

    /// Adds the routes of a router, which keep its middleware and state.
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

    /// Answers what no route matches, instead of a plain `404`.
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
        self.router = self.router.answer_rest(handler);
        self
    }

    /// Adds middleware around everything, answers of the app itself included, such as `404`. The
    /// first is the outermost.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", || "hi")
    ///     .with(middleware::RequestIds::new()) // the outermost: the logger knows the id
    ///     .with(middleware::Logger::new());
    /// assert!(
    ///     app.test()
    ///         .get("/nowhere")
    ///         .send()
    ///         .assert_status(404)
    ///         .header("x-request-id")
    ///         .is_some()
    /// );
    /// ```
    pub fn with(mut self, middleware: impl Middleware) -> Self {
        self.router = self.router.with(middleware);
        self
    }

    /// Gives all handlers a value, taken with [`State`](crate::State).
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

    /// Says how an error of type `E` is answered that a handler returned with `?`, instead of with
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
        self.settings.translators.push(Box::new(move |error| error.downcast_ref().map(&map)));
        self
    }

    /// Has errors of type `E` answered as their [`IntoResponse`] says, also when they became an
    /// [`Error`] by `?`, which otherwise makes a plain `500` of them. A handler that returns
    /// `Result<_, E>` needs no call of this method.
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

    /// Presents errors in another way than as problem details or HTML. `None` leaves it at these,
    /// and so does a panic.
    ///
    /// Status and headers that middleware set stay; of the response only the content and its type
    /// are taken.
    ///
    /// For requests that the engine refuses with `503`, because there is no thread, permit or
    /// memory for them, it is asked when the app is built, once for each form that clients may
    /// prefer, and what it says is kept: under overload there is no time to ask.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().present_errors(|error, _| {
    ///     Some(Response::from(format!("oops: {}", error.status_code())))
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

    /// Shows errors with their causes, the route, the request and hints, to whoever asks: as a page
    /// to browsers, in a member `development` of the problem details to others. For development
    /// only: it tells all. A line in the log says at the start that it is on. Default: off.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/users", || "all").development(true);
    /// let page = app.test().get("/user").header("accept", "text/html").send();
    /// assert!(page.text().contains("Was GET /users meant?"));
    /// ```
    pub fn development(mut self, is_development: bool) -> Self {
        self.settings.is_development = is_development;
        self
    }

    /// Believes these proxies about [who asks](crate::ClientAddr). Default: nobody; the client is
    /// whoever connects.
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

    /// Sets how the server behaves: timeouts, threads, limits. The app keeps it, whoever binds the
    /// server: [`listen`](Self::listen), [`start`](Self::start), the [test client](Self::test), and
    /// a [`Server`](crate::Server) that is given what [`build`](Self::build) returns. Only a
    /// configuration that is set on the [server's own builder](crate::ServerBuilder::config)
    /// replaces it.
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

    /// Returns the routes, to be printed or looked at.
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

    /// Serves files below a prefix. At `/` they are the fallback: whatever has a route of its own
    /// goes there.
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
        let layers: Box<[Layer]> = self.router.layers.as_slice().into();
        let mut settings = self.settings;
        settings.states = self.router.states.clone();
        let mut router = self.router;
        router.layers.clear();
        let table = build(router, &layers).map_err(|mistakes| {
            let list: Vec<_> = mistakes.iter().map(|mistake| format!("\n  - {mistake}")).collect();
            Error::start_up(format!("the app cannot start:{}", list.concat()))
        })?;
        if settings.is_development {
            tracing::warn!(
                "development mode is on: whoever asks is shown errors, routes and requests"
            );
            note_places_of_panics();
        }
        let refusal_contents = RefusalContents::default();
        let app = BuiltApp { table, layers, settings, config: self.config, refusal_contents };
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
