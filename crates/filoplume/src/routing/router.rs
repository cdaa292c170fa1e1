//! Routers: routes that belong together, with middleware and state of their own.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use filoplume_runtime::Method;

use crate::core::handler::{Endpoint, Handler, Parameters, check_handler, erase};
use crate::core::middleware::{Layer, Middleware};
use crate::core::response::IntoResponse;
use crate::core::states::{Shared, States};
use crate::routing::Route;
use crate::routing::pattern::{check_prefix, join};
use crate::routing::route::Methods;

/// Routes that belong together, to be [nested](Self::nest) below a prefix or [merged](Self::merge)
/// into an app.
///
/// Middleware and state of a router are for its own routes, wherever in the chain of calls they
/// stand. An app runs its own first, then those of the routers from the outside in, then those of
/// the route.
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
/// | `/{{x}}` | `/%7Bx%7D`: doubled braces stand for themselves | |
///
/// - A capture has at least one character, and a segment has one capture at most. Literal text goes
///   before captures, whatever the order in which routes are added; a capture with text around it
///   before one without.
/// - Captures at the same place are of one kind: all with text before them, or all with text behind
///   them, beside at most one without; and `{*rest}` shares its place with no capture. What is left
///   over is for a [fallback](Self::fallback).
/// - Two patterns that match the same paths with other names, such as `/{a}` and `/{b}`, are a
///   mistake. Mistakes are told at the start, all at once, with the places of both routes. The same
///   pattern may be added again for other methods.
/// - Paths are matched as they are on the wire; captures are decoded after that, so `%2F` is a
///   slash in a value and never a separator. Patterns are written in plain text: `/café` matches
///   `/caf%C3%A9`. So `/%61dmin` is not below `/admin`, and a handler for `/{*rest}` that decodes
///   is asked for it; static files send it to `/admin`.
/// - Nothing is resolved: `/a//b` has an empty segment, `..` is a segment like others, letters are
///   not `/Letters`.
///
/// # When no pattern matches
///
/// 1. The path with one slash at its end more or less has a route: `308` to it. Both forms may have
///    routes of their own.
/// 2. The path in its normal form (RFC 3986, 6.2.2) has one, as `/%61` and `/a`, or is below the
///    prefix of another router with a fallback: `308` to it.
/// 3. The [fallback](Self::fallback) of the innermost router whose prefix matches answers, or that
///    of the app.
/// 4. `404`.
///
/// # Methods
///
/// Who answers `GET` answers `HEAD`, unless `HEAD` has a handler. `OPTIONS` is answered with
/// `Allow`, unless it has a handler; `OPTIONS *` names the methods of all routes. Another method of
/// a path with routes is a `405` with `Allow`, and no matter for fallbacks. A handler for
/// [any](crate::routing::any) method gets those that no other handler has, unknown ones included.
/// `CONNECT` asks for another host and is a `501`.
#[derive(Default)]
#[must_use = "a router does nothing until it is nested or merged"]
pub struct Router {
    pub(crate) routes: Vec<Placed<Route>>,
    pub(crate) nested: Vec<Placed<Self>>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) states: States,
    pub(crate) fallback: Option<Fallback>,
    /// What was wrong with the calls; told when the app starts.
    pub(crate) mistakes: Vec<String>,
}

/// What stands in lists of routes in place of methods.
pub(crate) const FALLBACK: &str = "FALLBACK";

/// Something at a pattern or prefix.
pub(crate) struct Placed<T> {
    pub(crate) at: String,
    pub(crate) what: T,
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
            at: pattern.to_owned(),
            what: route,
            written_at: Location::caller(),
        });
        self
    }

    /// Answers `GET`, and with it `HEAD`.
    #[track_caller]
    pub fn get<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.answer(Method::GET, pattern, handler)
    }

    /// Answers `POST`.
    #[track_caller]
    pub fn post<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.answer(Method::POST, pattern, handler)
    }

    /// Answers `PUT`.
    #[track_caller]
    pub fn put<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.answer(Method::PUT, pattern, handler)
    }

    /// Answers `PATCH`.
    #[track_caller]
    pub fn patch<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.answer(Method::PATCH, pattern, handler)
    }

    /// Answers `DELETE`.
    #[track_caller]
    pub fn delete<P: Parameters, H: Handler<P, Output: IntoResponse>>(
        self,
        pattern: &str,
        handler: H,
    ) -> Self {
        const { check_handler::<P, H>() };
        self.answer(Method::DELETE, pattern, handler)
    }

    /// Adds a route with one method. Its handler was checked by the compiler.
    #[track_caller]
    pub(crate) fn answer<P: Parameters>(
        self,
        method: Method,
        pattern: &str,
        handler: impl Handler<P, Output: IntoResponse>,
    ) -> Self {
        self.route(pattern, Route::new().add(Methods::Some(vec![method]), handler))
    }

    /// Adds the routes of another router below a prefix, which may capture. Its `/` is the prefix
    /// itself: `/` of a router at `/notes` is `/notes`, and `/notes/` is redirected there.
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
    /// If the router has middleware, what it has no route for is answered by the nearest fallback
    /// behind that middleware, not by wildcards and captures of routes that are written elsewhere.
    /// A route that is written below the prefix stays as it is. A catch-all for the same prefix
    /// without the middleware is a mistake that is told when the app starts.
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
    #[track_caller]
    pub fn nest(mut self, prefix: &str, router: Self) -> Self {
        let written_at = Location::caller();
        if let Err(mistake) = check_prefix(prefix) {
            self.mistakes.push(format!("nest \"{prefix}\" ({written_at}): {mistake}"));
            return self;
        }
        self.nested.push(Placed { at: prefix.to_owned(), what: router, written_at });
        self
    }

    /// Adds the routes of another router, which keep its middleware and state.
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
            at: String::new(),
            what: router,
            written_at: Location::caller(),
        });
        self
    }

    /// Answers what no route matches, below the prefix of this router. Without it the outer
    /// router's fallback does, and in the end a plain `404`. A router at `/users` and one at
    /// `/users/{id}` cannot both have one.
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
        self.answer_rest(handler)
    }

    #[track_caller]
    pub(crate) fn answer_rest<P: Parameters>(
        mut self,
        handler: impl Handler<P, Output: IntoResponse>,
    ) -> Self {
        let written_at = Location::caller();
        if let Some(before) = &self.fallback {
            let first = before.written_at;
            self.mistakes.push(format!(
                "a router has one fallback, and this one has two: {first} and {written_at}"
            ));
        }
        self.fallback = Some(Fallback { endpoint: erase(handler), written_at });
        self
    }

    /// Returns the routes, nested ones included.
    pub fn routes(&self) -> Routes {
        let mut routes = Vec::new();
        self.list("", &mut routes);
        Routes(routes)
    }

    fn list(&self, prefix: &str, routes: &mut Vec<RouteInfo>) {
        for Placed { at, what, .. } in &self.routes {
            routes.extend(what.handlers.iter().map(|handler| RouteInfo {
                methods: handler.methods.to_string(),
                pattern: join(prefix, at),
                written_at: handler.written_at.to_string(),
            }));
        }
        for Placed { at, what, .. } in &self.nested {
            what.list(&format!("{prefix}{at}"), routes);
        }
        // Files at the root of a router are its fallback.
        if let Some(fallback) = &self.fallback {
            routes.push(RouteInfo {
                methods: FALLBACK.to_owned(),
                pattern: format!("{prefix}/*"),
                written_at: fallback.written_at.to_string(),
            });
        }
    }

    /// Adds middleware around all routes of this router, nested ones included. The first is the
    /// outermost.
    ///
    /// Once the router is [nested](Self::nest), everything below its prefix is behind it: files,
    /// wildcards, captures and the fallback of the outer router too. A merged router has no prefix,
    /// so there it is around the routes only.
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
    pub fn with(mut self, middleware: impl Middleware) -> Self {
        self.layers.push(Arc::new(middleware));
        self
    }

    /// Gives the handlers of this router a value, taken with [`State`](crate::State). It goes
    /// before one of the same type that an outer router was given.
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
    #[track_caller]
    pub fn state<T: Shared + 'static>(mut self, state: T) -> Self {
        if let Some(name) = self.states.insert(state) {
            let written_at = Location::caller();
            self.mistakes.push(format!(
                "there are two states of type `{name}` ({written_at}); wrap one in a type of its \
                 own"
            ));
        }
        self
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("routes", &self.routes.iter().map(|placed| &placed.at).collect::<Vec<_>>())
            .field("nested", &self.nested.iter().map(|placed| &placed.at).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The routes of an app, to be printed.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", || "hi")
///     .route("/notes/{id}", get(|| "a note").delete(|| "gone"));
/// assert_eq!(
///     app.routes().to_string(),
///     "\
/// GET     /
/// GET     /notes/{id}
/// DELETE  /notes/{id}
/// "
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes(pub(crate) Vec<RouteInfo>);

/// One route of an app.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", || "hi")
///     .nest("/notes", Router::new().post("/{id}", || "changed"));
/// let changing: Vec<_> = app
///     .routes()
///     .iter()
///     .filter(|route| route.methods != "GET")
///     .map(|route| route.pattern.clone())
///     .collect();
/// assert_eq!(changing, ["/notes/{id}"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteInfo {
    /// The methods, separated by commas, or `ANY`; of a fallback, and of files at the root of a
    /// router, `FALLBACK`.
    pub methods: String,
    /// The pattern, prefixes included.
    pub pattern: String,
    /// Where it was written: file, line and column.
    pub written_at: String,
}

impl Routes {
    /// Returns the routes in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, RouteInfo> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Routes {
    type Item = &'a RouteInfo;
    type IntoIter = std::slice::Iter<'a, RouteInfo>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.iter().map(|route| route.methods.len()).max().unwrap_or(0).max(6);
        for route in self {
            writeln!(f, "{:width$}  {}", route.methods, route.pattern)?;
        }
        Ok(())
    }
}
