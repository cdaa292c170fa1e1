//! The table of all routes of an app. It is built once at start-up and read by all threads.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use filoplume_runtime::{Method, Permits, Request};

use crate::core::changed_method::PlansMethod;
use crate::core::route::CompiledRoute;
use crate::observe::RouteName;
use crate::routing::guards::{Guards, has_kinds};
use crate::routing::pattern::normal_form;

/// The number in a plan that stands for a request that no route answers.
pub(crate) const NO_ROUTE: u32 = u32::MAX;

/// Matches paths to numbers. All values are numbers, because the code of the matcher is 14 kB for
/// each type of value.
pub(super) type Matcher = matchit::Router<u32>;

/// The routes of an app.
#[derive(Default)]
pub(crate) struct Table {
    pub(super) paths: Matcher,
    pub(super) entries: Vec<Entry>,
    pub(super) routes: Vec<CompiledRoute>,
    /// The fallbacks of nested routers, by prefix.
    pub(super) nested_fallbacks: Matcher,
    pub(super) fallback: Option<u32>,
    /// The prefixes whose middleware applies to every request below them.
    pub(super) guards: Guards,
    /// The methods of all routes, for `OPTIONS *`.
    pub(super) allow: String,
}

/// The routes of one pattern.
pub(super) struct Entry {
    pub(super) pattern: String,
    /// The pattern in the form that paths are matched against.
    pub(super) matched: String,
    pub(super) written_at: &'static Location<'static>,
    pub(super) methods: Vec<(Method, u32)>,
    pub(super) any: Option<u32>,
    /// The value of `Allow` (RFC 9110, 10.2.1).
    pub(super) allow: String,
    /// The guards whose paths the pattern may match although it is not written below their prefix.
    pub(super) outside: Vec<usize>,
}

/// The result of matching a method and a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'t> {
    Route(u32),
    /// The path has routes, but none for this method. `allow` lists the methods it has.
    OtherMethods {
        allow: &'t str,
    },
    /// `OPTIONS` for a path whose handlers do not answer it, or for the whole server.
    Options {
        allow: &'t str,
    },
    /// The path has no route, but this other form of it has one.
    Redirect {
        path: String,
    },
    /// `CONNECT`: it names a host, not a path.
    Connect,
    Nothing,
}

impl Table {
    /// Returns the match for this method and path.
    #[inline]
    pub(crate) fn find(&self, method: &Method, path: &str) -> Found<'_> {
        match self.entry_index(path) {
            Some(number) => self.entries[number].find(method),
            None => self.find_unmatched(method, path),
        }
    }

    /// Returns the number of the route that answers this method and path. It is called before the
    /// handler, also for paths that clients make up, so it looks for redirects only where a
    /// fallback would otherwise answer.
    #[inline]
    pub(crate) fn route_of(&self, method: &Method, path: &str) -> Option<u32> {
        let found = match self.entry_index(path) {
            Some(number) => self.entries[number].find(method),
            None => self.find_fallback(method, path)?,
        };
        if let Found::Route(number) = found { Some(number) } else { None }
    }

    #[inline(never)]
    fn find_fallback(&self, method: &Method, path: &str) -> Option<Found<'_>> {
        self.fallback_of(path)?;
        Some(self.find_unmatched(method, path))
    }

    /// Returns the entry that matches a path, unless the path is below a guard and the entry is
    /// not.
    #[inline]
    fn entry_index(&self, path: &str) -> Option<usize> {
        let number = *self.paths.at(path).ok()?.value as usize;
        let outside = &self.entries[number].outside;
        (outside.is_empty() || !self.guards.excludes(outside, path)).then_some(number)
    }

    /// Returns the route that was planned for a request. Without a plan, it matches the request.
    #[inline]
    pub(crate) fn find_planned(&self, request: &Request) -> Found<'_> {
        match request.route().filter(|&number| number != NO_ROUTE) {
            Some(number) => Found::Route(number),
            None => self.find(request.method(), request.path()),
        }
    }

    #[inline]
    pub(crate) fn route(&self, number: u32) -> Option<&CompiledRoute> {
        self.routes.get(number as usize)
    }

    /// Returns the fallback of the guard that a path is below. It has the middleware of the guard.
    /// Returns `None` if the path has routes, but none with that middleware: they belong to another
    /// router.
    #[inline(never)]
    pub(crate) fn guarding_route(&self, path: &str) -> Option<&CompiledRoute> {
        let guard = self.route(self.guards.route(path)?)?;
        let is_guarded = |number: u32| {
            self.route(number).is_some_and(|route| has_kinds(&route.layers, &guard.layers))
        };
        match self.entry_index(path).and_then(|number| self.entries.get(number)) {
            Some(entry) if !entry.numbers().any(is_guarded) => None,
            _ => Some(guard),
        }
    }

    /// Returns all routes, fallbacks included.
    pub(crate) fn routes(&self) -> &[CompiledRoute] {
        &self.routes
    }

    /// Returns the name of each route in metrics, in the order of their numbers.
    pub(crate) fn names(&self) -> impl Iterator<Item = RouteName> + '_ {
        self.routes.iter().map(|route| RouteName {
            methods: route.methods.clone(),
            pattern: route.pattern.clone(),
            is_on_pool: route.options.is_on_pool(),
        })
    }

    /// Returns the permits that the routes use. Permits that several routes share are returned
    /// several times.
    pub(crate) fn permits(&self) -> impl Iterator<Item = &Permits> {
        self.routes.iter().filter_map(|route| route.options.permits())
    }

    /// Returns the middleware of the app that changes methods. Each route has been told of it.
    pub(crate) fn plans_method(&self) -> Box<[Arc<dyn PlansMethod>]> {
        self.routes.first().map(|route| route.options.plans_method().into()).unwrap_or_default()
    }

    /// Returns whether a handler wants to know about the requests of the app.
    pub(crate) fn is_observed(&self) -> bool {
        self.routes.iter().any(|route| route.options.is_observed)
    }

    #[inline(never)]
    fn find_unmatched(&self, method: &Method, path: &str) -> Found<'_> {
        if *method == Method::CONNECT {
            return Found::Connect;
        }
        if path == "*" {
            return Found::Options { allow: &self.allow };
        }
        // This takes linear time and few allocations, because clients can make up any path.
        let normal = resolved_normal_form(path);
        if let Some(path) = self.redirect_target(path, normal.as_deref()) {
            return Found::Redirect { path };
        }
        if let Some(path) = normal.filter(|normal| self.leads_elsewhere(normal, path)) {
            return Found::Redirect { path };
        }
        self.fallback_of(path).map_or(Found::Nothing, Found::Route)
    }

    /// Returns the fallback that answers a path without a route.
    fn fallback_of(&self, path: &str) -> Option<u32> {
        self.guards.fallback(path, self.nested_fallback(path).or(self.fallback))
    }

    /// Returns the normal form of a path, if that form leads to a different route. A client that
    /// writes a letter of `/private` as `%70` must not bypass the middleware of `/private` and
    /// reach a handler that decodes paths, such as static files.
    #[cfg(feature = "static-files")]
    pub(crate) fn normal_form_redirect(&self, path: &str) -> Option<String> {
        resolved_normal_form(path).filter(|normal| self.leads_elsewhere(normal, path))
    }

    /// Returns whether two paths have different routes or fallbacks.
    fn leads_elsewhere(&self, path: &str, than: &str) -> bool {
        let place = |path: &str| match self.entry_index(path) {
            Some(number) => (Some(number), None),
            None => (None, self.guards.fallback(path, self.nested_fallback(path))),
        };
        place(path) != place(than)
    }

    fn nested_fallback(&self, path: &str) -> Option<u32> {
        self.nested_fallbacks.at(path).ok().map(|matched| *matched.value)
    }

    /// Returns another form of a path if that form has a route: the normal form, the path with a
    /// slash added to or removed from its end, or both.
    fn redirect_target(&self, path: &str, normal: Option<&str>) -> Option<String> {
        if !is_local(path) {
            return None;
        }
        let has_route = |path: &str| self.entry_index(path).is_some() && !has_dot_segments(path);
        if let Some(normal) = normal.filter(|normal| has_route(normal)) {
            return Some(normal.to_owned());
        }
        [normal, Some(path)].into_iter().flatten().find_map(|path| match path.strip_suffix('/') {
            Some(without) => {
                (!without.is_empty() && has_route(without)).then(|| without.to_owned())
            }
            None => Some(format!("{path}/")).filter(|with| has_route(with)),
        })
    }
}

/// Returns whether a redirect to the path stays on the same host: one to `//host/` or `/\host/`
/// does not.
fn is_local(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| !rest.starts_with(['/', '\\']))
}

/// Returns the normal form of a path if it differs from the path. Returns `None` if a client would
/// resolve dot segments in it before it sends the next request, or would read it as another host.
fn resolved_normal_form(path: &str) -> Option<String> {
    let normal = if is_local(path) { normal_form(path) } else { None };
    normal.filter(|path| !has_dot_segments(path))
}

/// Returns whether a client resolves segments of the path before it sends it. Browsers do so for
/// `%2e` as well.
fn has_dot_segments(path: &str) -> bool {
    path.split('/').any(|segment| {
        let (mut rest, mut dots) = (segment.as_bytes(), 0);
        while let [b'.', tail @ ..] | [b'%', b'2', b'e' | b'E', tail @ ..] = rest {
            (rest, dots) = (tail, dots + 1);
        }
        rest.is_empty() && (dots == 1 || dots == 2)
    })
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| &entry.pattern)).finish()
    }
}

impl Entry {
    /// Returns the numbers of all routes of the path.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        self.methods.iter().map(|(_, number)| *number).chain(self.any)
    }

    #[inline]
    fn find(&self, method: &Method) -> Found<'_> {
        match self.number(method) {
            Some(number) => Found::Route(number),
            None if *method == Method::OPTIONS => Found::Options { allow: &self.allow },
            None => Found::OtherMethods { allow: &self.allow },
        }
    }

    #[inline]
    fn number(&self, method: &Method) -> Option<u32> {
        let of = |method: &Method| {
            self.methods.iter().find(|(of, _)| of == method).map(|(_, number)| *number)
        };
        // A handler for GET answers HEAD: the engine omits the content (RFC 9110, 9.3.2).
        let number =
            of(method).or_else(|| if *method == Method::HEAD { of(&Method::GET) } else { None });
        number.or(self.any)
    }
}

/// The value of `Allow` for these methods. It includes `HEAD` if it has `GET`, and always includes
/// `OPTIONS`.
pub(super) fn allow<'a>(methods: impl IntoIterator<Item = &'a Method>) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut add = |name: &'a str| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    for method in methods {
        add(method.as_str());
        if *method == Method::GET {
            add("HEAD");
        }
    }
    add("OPTIONS");
    names.join(", ")
}
