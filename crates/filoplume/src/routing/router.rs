//! Routers: groups of routes with their own middleware and state.

use std::fmt;
use std::panic::Location;

use filoplume_runtime::Method;

use crate::core::handler::{Endpoint, Handler, Parameters, check_handler, erase};
use crate::core::middleware::{Layer, Middleware, layer};
use crate::core::names::type_name_of;
use crate::core::response::IntoResponse;
use crate::core::route::FALLBACK;
use crate::core::states::{Shared, States};
use crate::routing::Route;
use crate::routing::pattern::{check_prefix, join};
use crate::routing::route::Methods;
use crate::routing::routes::{RouteInfo, Routes};

/// A group of routes, which can be [nested](Self::nest) below a prefix or [merged](Self::merge)
/// into an app.
///
/// Middleware and state of a router apply to all of its routes, regardless of the order of the
/// calls. The middleware of the app runs first, then that of the routers from the outermost to the
/// innermost, then that of the route.
///
/// ```
/// use filoplume::prelude::*;
///
/// fn notes() -> Router {
///     Router::new()
///         .get("/", || "all notes")
///         .get("/{id}", |Path(id): Path<u32>| format!("note {id}"))
/// }
///
/// let app = App::new().nest("/notes", notes());
/// let client = app.test();
/// client.get("/notes").send().assert_text("all notes");
/// client.get("/notes/3").send().assert_text("note 3");
/// ```
///
/// # Patterns
///
/// A pattern begins with a slash and is matched against the whole path, without the query.
///
/// | pattern | matches | captures |
/// |---|---|---|
/// | `/users` | `/users` | |
/// | `/users/{id}` | `/users/17`, not `/users/` | `id` = `17` |
/// | `/files/{name}.txt`, `/v{major}` | `/files/a.b.txt`, `/v2` | `name` = `a.b`, `major` = `2` |
/// | `/files/{*path}` | `/files/a/b.txt`, not `/files/` | `path` = `a/b.txt` |
/// | `/{{x}}` | `/%7Bx%7D`: doubled braces are literal | |
///
/// - A capture has at least one character. A segment has at most one capture. Literal text takes
///   precedence over captures, regardless of the order in which routes are added. A capture with
///   text around it takes precedence over one without.
/// - All captures at the same position must be of one kind: all with text before them, or all with
///   text after them. One capture without text may stand beside these. `{*rest}` cannot stand
///   beside another capture. A [fallback](Self::fallback) can answer the remaining paths.
/// - Two patterns that match the same paths with different names, such as `/{a}` and `/{b}`, are a
///   mistake. All mistakes are reported together when the app starts, with the locations of both
///   routes. A pattern may be added again for other methods.
/// - Paths are matched in their percent-encoded form, and captures are decoded afterwards. So `%2F`
///   is a slash in a value and never a separator. Patterns are written in plain text: `/café`
///   matches `/caf%C3%A9`. `/%61dmin` does not match `/admin`; it can match a `/{*rest}` whose
///   handler decodes it. Static files redirect it to `/admin`.
/// - Paths are not resolved: `/a//b` has an empty segment, `..` is an ordinary segment, and
///   `/letters` is not `/Letters`.
///
/// # When no pattern matches
///
/// 1. If the path with a slash added to or removed from its end has a route, the response is a
///    `308` to that path. Both forms may have routes of their own.
/// 2. If the normal form of the path (RFC 3986, 6.2.2) has a route, as `/a` for `/%61`, or is below
///    the prefix of another router with a fallback, the response is a `308` to the normal form.
/// 3. Otherwise the [fallback](Self::fallback) of the innermost router whose prefix matches
///    answers, or that of the app.
/// 4. Otherwise the response is a `404`.
///
/// # Methods
///
/// A handler for `GET` also answers `HEAD`, unless `HEAD` has a handler. `OPTIONS` is answered with
/// `Allow`, unless it has a handler; `OPTIONS *` lists the methods of all routes. Any other method
/// without a handler is a `405` with `Allow`; fallbacks do not answer it. A handler for
/// [any](crate::routing::any) method answers the methods that have no other handler, including
/// unknown ones. `CONNECT` is a `501`, because it asks for a tunnel to another host.
#[doc(alias("Blueprint", "Scope", "APIRouter"))]
#[derive(Default)]
#[must_use = "a router does nothing until it is nested or merged"]
pub struct Router {
    pub(crate) routes: Vec<Placed<Route>>,
    pub(crate) nested: Vec<Placed<Self>>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) states: States,
    pub(crate) fallback: Option<Fallback>,
    /// Mistakes in the calls; reported when the app starts.
    pub(crate) mistakes: Vec<String>,
}

/// A value at a pattern or prefix.
pub(crate) struct Placed<T> {
    pub(crate) path: String,
    pub(crate) value: T,
    pub(crate) written_at: &'static Location<'static>,
}

pub(crate) struct Fallback {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) written_at: &'static Location<'static>,
}

impl Router {
    /// Returns a router without routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route with all its methods.
    ///
    /// See [`Router`] for patterns.
    #[track_caller]
    pub fn route(mut self, pattern: &str, route: Route) -> Self {
        self.routes.push(Placed {
            path: pattern.to_owned(),
            value: route,
            written_at: Location::caller(),
        });
        self
    }

    /// Answers `GET` and `HEAD`.
    #[track_caller]
    pub fn get<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.add_handler(Method::GET, pattern, handler)
    }

    /// Answers `POST`.
    #[track_caller]
    pub fn post<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.add_handler(Method::POST, pattern, handler)
    }

    /// Answers `PUT`.
    #[track_caller]
    pub fn put<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.add_handler(Method::PUT, pattern, handler)
    }

    /// Answers `PATCH`.
    #[track_caller]
    pub fn patch<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.add_handler(Method::PATCH, pattern, handler)
    }

    /// Answers `DELETE`.
    #[track_caller]
    pub fn delete<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.add_handler(Method::DELETE, pattern, handler)
    }

    /// Opens WebSockets. The handler has a
    /// [`WebSocketUpgrade`](crate::websocket::WebSocketUpgrade) among its parameters and returns
    /// it; otherwise the app does not start. The handshake passes through the router's middleware,
    /// which can refuse it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::websocket::{Socket, WebSocketUpgrade};
    ///
    /// fn echo(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    ///     upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
    /// }
    ///
    /// let private = Router::new()
    ///     .websocket("/echo", echo)
    ///     .with(middleware::BasicAuth::user("ada", "sesame"));
    /// let client = App::new().nest("/private", private).test();
    /// client.get("/private/echo").send().assert_status(401);
    /// client.get("/private/echo").basic("ada", "sesame").send().assert_status(426);
    /// ```
    #[cfg(feature = "websocket")]
    #[track_caller]
    pub fn websocket<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.add_socket(pattern, handler)
    }

    /// Adds a route for WebSockets. The caller has checked the handler at compile time.
    #[cfg(feature = "websocket")]
    #[track_caller]
    pub(crate) fn add_socket<P: Parameters>(
        self,
        pattern: &str,
        handler: impl Handler<P, Output: IntoResponse>,
    ) -> Self {
        let route = Route::new().add(Methods::Some(vec![Method::GET]), handler);
        self.route(pattern, route.for_sockets())
    }

    /// Adds a route with one method. The caller has checked the handler at compile time.
    #[track_caller]
    pub(crate) fn add_handler<P: Parameters>(
        self,
        method: Method,
        pattern: &str,
        handler: impl Handler<P, Output: IntoResponse>,
    ) -> Self {
        self.route(pattern, Route::new().add(Methods::Some(vec![method]), handler))
    }

    /// Adds the routes of another router below a prefix, which may contain captures. The router's
    /// `/` is the prefix itself: `/` of a router at `/notes` is `/notes`, and `/notes/` is
    /// redirected there.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let notes =
    ///     Router::new().get("/", |Path(user): Path<String>| format!("all notes of {user}"));
    /// let users = Router::new().nest("/{user}/notes", notes);
    /// App::new()
    ///     .nest("/users", users)
    ///     .test()
    ///     .get("/users/ada/notes")
    ///     .send()
    ///     .assert_text("all notes of ada");
    /// ```
    ///
    /// If the router has middleware, that middleware also applies to paths below the prefix that
    /// have no route: the nearest fallback answers them behind the middleware. Wildcards and
    /// captures of routes outside of the prefix do not match them. A route of another router is not
    /// affected if its path goes on with a literal segment below the prefix. Other routes of other
    /// routers would be open by accident, so an app with one of these does not start: routes of
    /// another router that is nested at the same prefix without such middleware, and catch-all
    /// routes and captures right below the prefix. `.nest("/admin", first.merge(second))` puts both
    /// routers behind the middleware of the first one.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let site = tempfile::tempdir()?;
    /// # let public = site.path().to_owned();
    /// # std::fs::create_dir_all(public.join("admin"))?;
    /// # std::fs::write(public.join("admin/plan.html"), "the plan")?;
    /// let admin = Router::new()
    ///     .get("/users", || "all users")
    ///     .with(middleware::BasicAuth::user("ada", "sesame"));
    /// let client = App::new()
    ///     .get("/admin/login", || "who are you?")
    ///     .nest("/admin", admin)
    ///     .files("/", StaticFiles::folder(public)) // with a file admin/plan.html
    ///     .test();
    /// client.get("/admin/login").send().assert_status(200);
    /// client.get("/admin/plan.html").send().assert_status(401);
    /// client.get("/admin/plan.html").basic("ada", "sesame").send().assert_text("the plan");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("mount", "scope", "prefix"))]
    #[track_caller]
    pub fn nest(mut self, prefix: &str, router: Self) -> Self {
        let written_at = Location::caller();
        if let Err(mistake) = check_prefix(prefix) {
            self.mistakes.push(format!("nest \"{prefix}\" ({written_at}): {mistake}"));
            return self;
        }
        self.nested.push(Placed { path: prefix.to_owned(), value: router, written_at });
        self
    }

    /// Adds the routes of another router. They keep that router's middleware and state.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let open = Router::new().get("/about", || "about us");
    /// let closed = Router::new()
    ///     .get("/admin", || "secret")
    ///     .with(middleware::BasicAuth::user("ada", "sesame"));
    /// let client = App::new().nest("/site", Router::new().merge(open).merge(closed)).test();
    /// client.get("/site/about").send().assert_status(200);
    /// client.get("/site/admin").send().assert_status(401);
    /// ```
    #[track_caller]
    pub fn merge(mut self, router: Self) -> Self {
        self.nested.push(Placed {
            path: String::new(),
            value: router,
            written_at: Location::caller(),
        });
        self
    }

    /// Answers requests below the prefix of this router that match no route. Without it the
    /// fallback of the outer router answers, and finally a plain `404`. A router at `/users` and
    /// one at `/users/{id}` cannot both have a fallback.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let api = Router::new()
    ///     .get("/notes", || "all notes")
    ///     .fallback(|| Error::not_found("see /api/docs"));
    /// let client = App::new().nest("/api", api).fallback(|| Html("<h1>Lost?</h1>")).test();
    /// client.get("/api/note").send().assert_status(404).assert_contains("see /api/docs");
    /// client.get("/other").send().assert_text("<h1>Lost?</h1>");
    /// ```
    #[track_caller]
    pub fn fallback<P: Parameters, H: Handler<P, Output: IntoResponse>>(self, handler: H) -> Self {
        const { check_handler::<P, H>() };
        self.set_fallback(handler)
    }

    #[track_caller]
    pub(crate) fn set_fallback<P: Parameters>(
        mut self,
        handler: impl Handler<P, Output: IntoResponse>,
    ) -> Self {
        let written_at = Location::caller();
        if let Some(before) = &self.fallback {
            let first = before.written_at;
            self.mistakes.push(format!(
                "a router can have only one fallback; remove one of these: {first} and {written_at}"
            ));
        }
        self.fallback = Some(Fallback { endpoint: erase(handler), written_at });
        self
    }

    /// Returns the routes, including those of nested routers.
    pub fn routes(&self) -> Routes {
        let mut routes = Vec::new();
        self.list("", &[], &mut routes);
        Routes(routes)
    }

    fn list(&self, prefix: &str, outer: &[Layer], routes: &mut Vec<RouteInfo>) {
        let layers = [outer, &self.layers].concat();
        let names = |layers: &[Layer]| layers.iter().map(|layer| layer.name()).collect::<Vec<_>>();
        for Placed { path, value: route, .. } in &self.routes {
            let behind = names(&[&*layers, &route.layers].concat());
            routes.extend(route.handlers.iter().map(|handler| RouteInfo {
                methods: handler.methods.to_string(),
                pattern: join(prefix, path),
                behind: behind.clone(),
                written_at: handler.written_at.to_string(),
            }));
        }
        for Placed { path, value: router, .. } in &self.nested {
            router.list(&format!("{prefix}{path}"), &layers, routes);
        }
        // Files at the root of a router are its fallback.
        if let Some(fallback) = &self.fallback {
            routes.push(RouteInfo {
                methods: FALLBACK.to_owned(),
                pattern: format!("{prefix}/*"),
                behind: names(&layers),
                written_at: fallback.written_at.to_string(),
            });
        }
    }

    /// Adds middleware around all routes of this router, including nested routers. The first
    /// middleware that is added is the outermost.
    ///
    /// If the router is [nested](Self::nest), the middleware applies to everything below its
    /// prefix, including files, wildcards, captures and the fallback of the outer router. A merged
    /// router has no prefix, so its middleware applies only to its routes.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let admin = Router::new()
    ///     .get("/users", || "all users")
    ///     .with(middleware::BasicAuth::user("ada", "sesame"));
    /// let client = App::new().get("/", || "hi").nest("/admin", admin).test();
    /// client.get("/").send().assert_status(200);
    /// client.get("/admin/users").send().assert_status(401);
    /// client.get("/admin/users").basic("ada", "sesame").send().assert_text("all users");
    /// ```
    #[doc(alias(
        "layer",
        "use",
        "wrap",
        "before_request",
        "after_request",
        "from_fn",
        "route_layer"
    ))]
    #[track_caller]
    pub fn with<M>(mut self, middleware: M) -> Self
    where
        M: Middleware, // `Logger::new()` with its `()`, or `fn(Request, Next) -> Result<Response>`
    {
        self.layers.push(layer(middleware));
        self
    }

    /// Adds a value that the handlers of this router extract with [`State`](crate::State). It takes
    /// precedence over a value of the same type of an outer router.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// #[derive(Clone)]
    /// struct Shop(&'static str);
    ///
    /// let stall = |name| {
    ///     Router::new().get("/", |State(Shop(name)): State<Shop>| name).state(Shop(name))
    /// };
    /// let client = App::new()
    ///     .nest("/tea", stall("Tea & Co"))
    ///     .nest("/books", stall("The Attic"))
    ///     .test();
    /// client.get("/books").send().assert_text("The Attic");
    /// ```
    #[doc(alias("with_state", "app_data", "manage", "data"))]
    #[track_caller]
    pub fn state<T: Shared + 'static>(mut self, state: T) -> Self {
        let written_at = Location::caller();
        if let Some(first) = self.states.insert(state, written_at) {
            self.mistakes.push(format!(
                "there are two states of type `{}` ({first} and {written_at}): wrap one of them \
                 in a type of its own",
                type_name_of::<T>()
            ));
        }
        self
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("routes", &self.routes.iter().map(|placed| &placed.path).collect::<Vec<_>>())
            .field("nested", &self.nested.iter().map(|placed| &placed.path).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
