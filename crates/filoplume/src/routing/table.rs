//! All routes of an app, ready to be matched: built once at start-up, read by all threads.

use std::fmt;
use std::panic::Location;

use filoplume_runtime::{Method, Request};

use crate::context::States;
use crate::handler::Endpoint;
use crate::middleware::Layer;
use crate::routing::pattern::{join, to_matched};
use crate::routing::route::{MethodHandler, Methods};
use crate::routing::router::{Fallback, Placed, Router};
use crate::routing::{Route, RouteOptions};

/// The number in a plan of what no route answers.
pub(crate) const NO_ROUTE: u32 = u32::MAX;

/// The routes of an app.
pub(crate) struct Table {
    paths: matchit::Router<usize>,
    entries: Vec<Entry>,
    routes: Vec<CompiledRoute>,
    /// Fallbacks of nested routers, by their prefixes.
    nested_fallbacks: matchit::Router<u32>,
    fallback: Option<u32>,
}

/// All that is at one pattern.
struct Entry {
    pattern: String,
    written_at: &'static Location<'static>,
    methods: Vec<(Method, u32)>,
    any: Option<u32>,
    /// The value of `Allow` (RFC 9110, 10.2.1).
    allow: String,
}

/// A handler with what belongs to it.
pub(crate) struct CompiledRoute {
    pub(crate) pattern: String,
    pub(crate) written_at: &'static Location<'static>,
    pub(crate) endpoint: Box<dyn Endpoint>,
    /// The middleware of routers and the route; that of the app comes before.
    pub(crate) layers: Box<[Layer]>,
    pub(crate) states: States,
    pub(crate) options: RouteOptions,
}

/// What answers a method and a path.
pub(crate) enum Found<'t> {
    Route(u32),
    /// The path is there, the method is not; these are.
    OtherMethods {
        allow: &'t str,
    },
    /// `OPTIONS` of a path whose handlers do not answer it.
    Options {
        allow: &'t str,
    },
    /// The path is there with one slash at the end more or less: this one.
    Slash {
        path: String,
    },
    Nothing,
}

impl Table {
    /// Returns what answers a request for this method and path.
    #[inline]
    pub(crate) fn find(&self, method: &Method, path: &str) -> Found<'_> {
        match self.paths.at(path) {
            Ok(matched) => self.entries[*matched.value].find(method),
            Err(_) => self.find_none(path),
        }
    }

    /// Returns what was planned for a request, or what answers it if nothing was.
    #[inline]
    pub(crate) fn found_for(&self, request: &Request) -> Found<'_> {
        match request.route().filter(|&number| number != NO_ROUTE) {
            Some(number) => Found::Route(number),
            None => self.find(request.method(), request.path()),
        }
    }

    pub(crate) fn route(&self, number: u32) -> Option<&CompiledRoute> {
        self.routes.get(number as usize)
    }

    /// Returns the captures of a path by name. Matching again is cheaper than keeping what few handlers want.
    pub(crate) fn captures<'p>(&'p self, path: &'p str) -> Vec<(&'p str, &'p str)> {
        let matched = self.paths.at(path).map(|matched| matched.params);
        let matched = matched.or_else(|_| self.nested_fallbacks.at(path).map(|matched| matched.params));
        matched.map(|params| params.iter().collect()).unwrap_or_default()
    }

    #[inline(never)]
    fn find_none(&self, path: &str) -> Found<'_> {
        if let Some(path) = self.other_slash(path) {
            return Found::Slash { path };
        }
        let nested = self.nested_fallbacks.at(path).ok().map(|matched| *matched.value);
        nested.or(self.fallback).map_or(Found::Nothing, Found::Route)
    }

    /// The path with one slash at its end more or less, if there is a route for that.
    fn other_slash(&self, path: &str) -> Option<String> {
        // `//host/` or `/\host/` as a redirect would lead to another host.
        if !path.starts_with('/') || path[1..].starts_with(['/', '\\']) {
            return None;
        }
        let other = match path.strip_suffix('/') {
            Some("") => return None,
            Some(without) => without.to_owned(),
            None => format!("{path}/"),
        };
        self.paths.at(&other).is_ok().then_some(other)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| &entry.pattern)).finish()
    }
}

impl Entry {
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
        let of =
            |method: &Method| self.methods.iter().find(|(of, _)| of == method).map(|(_, number)| *number);
        // Who answers GET answers HEAD: the engine leaves the content out (RFC 9110, 9.3.2).
        let number = of(method).or_else(|| if *method == Method::HEAD { of(&Method::GET) } else { None });
        number.or(self.any)
    }

    fn allow(&self) -> String {
        let mut names: Vec<&str> = self.methods.iter().map(|(method, _)| method.as_str()).collect();
        for (implied, by) in [("HEAD", "GET"), ("OPTIONS", "")] {
            if !names.contains(&implied) {
                if let Some(at) = names.iter().position(|name| *name == by) {
                    names.insert(at + 1, implied);
                } else if by.is_empty() {
                    names.push(implied);
                }
            }
        }
        names.join(", ")
    }
}

/// Builds the table of an app. `app_layers` are those that run before a route is chosen.
pub(crate) fn build(router: Router, app_layers: &[Layer]) -> Result<Table, Vec<String>> {
    let mut builder = Builder {
        table: Table {
            paths: matchit::Router::new(),
            entries: Vec::new(),
            routes: Vec::new(),
            nested_fallbacks: matchit::Router::new(),
            fallback: None,
        },
        app_layers,
        mistakes: Vec::new(),
    };
    builder.add_router(router, "", &[], &States::default());
    for entry in &mut builder.table.entries {
        entry.allow = entry.allow();
    }
    if builder.mistakes.is_empty() { Ok(builder.table) } else { Err(builder.mistakes) }
}

struct Builder<'a> {
    table: Table,
    app_layers: &'a [Layer],
    mistakes: Vec<String>,
}

/// What an outer router gives its routes.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    prefix: &'a str,
    layers: &'a [Layer],
    states: &'a States,
}

impl Builder<'_> {
    fn add_router(&mut self, router: Router, prefix: &str, outer_layers: &[Layer], outer_states: &States) {
        let Router { routes, nested, layers, mut states, fallback, mistakes } = router;
        self.mistakes.extend(mistakes);
        let layers = [outer_layers, &layers].concat();
        states.extend_outer(outer_states);
        let within = Surroundings { prefix, layers: &layers, states: &states };
        for Placed { at, what, written_at } in routes {
            self.add_route(&at, what, written_at, within);
        }
        for Placed { at, what, .. } in nested {
            self.add_router(what, &format!("{prefix}{at}"), &layers, &states);
        }
        if let Some(fallback) = fallback {
            self.add_fallback(fallback, within);
        }
    }

    fn add_route(
        &mut self,
        pattern: &str,
        route: Route,
        written_at: &'static Location<'static>,
        within: Surroundings<'_>,
    ) {
        let Route { handlers, layers, adjust } = route;
        if let Err(mistake) = to_matched(pattern) {
            self.mistakes.push(format!("route \"{pattern}\" ({written_at}): {mistake}"));
            return;
        }
        let pattern = join(within.prefix, pattern);
        let Some(entry) = self.entry(&pattern, written_at) else { return };
        let layers = [within.layers, &layers].concat();
        for MethodHandler { methods, endpoint, written_at } in handlers {
            let mut options = self.options(&layers, &*endpoint);
            for adjust in &adjust {
                adjust(&mut options);
            }
            let number = self.next_number();
            self.claim(entry, &methods, number, written_at);
            let has_captures = pattern.replace("{{", "").contains('{');
            let name = format!("{methods} {pattern} ({written_at})");
            self.check(&name, has_captures, &options, within.states);
            self.table.routes.push(CompiledRoute {
                pattern: pattern.clone(),
                written_at,
                endpoint,
                layers: layers.clone().into(),
                states: within.states.clone(),
                options,
            });
        }
    }

    /// The entry of a pattern, made if it is new. `None`: it cannot be, and that is noted.
    fn entry(&mut self, pattern: &str, written_at: &'static Location<'static>) -> Option<usize> {
        if let Some(entry) = self.table.entries.iter().position(|entry| entry.pattern == pattern) {
            return Some(entry);
        }
        let number = self.table.entries.len();
        let matched = to_matched(pattern);
        let inserted = matched.and_then(|matched| {
            let inserted = self.table.paths.insert(matched, number);
            inserted.map_err(|error| self.explain(error))
        });
        if let Err(mistake) = inserted {
            self.mistakes.push(format!("route \"{pattern}\" ({written_at}): {mistake}"));
            return None;
        }
        self.table.entries.push(Entry {
            pattern: pattern.to_owned(),
            written_at,
            methods: Vec::new(),
            any: None,
            allow: String::new(),
        });
        Some(number)
    }

    fn explain(&self, error: matchit::InsertError) -> String {
        let matchit::InsertError::Conflict { with } = error else {
            return error.to_string();
        };
        let other = self.table.entries.iter().find(|entry| to_matched(&entry.pattern).as_ref() == Ok(&with));
        match other {
            Some(other) => format!(
                "it conflicts with route \"{}\" ({}): both match the same paths; give the captures the same name, or the \
                 patterns different text",
                other.pattern, other.written_at
            ),
            None => format!("it conflicts with route \"{with}\""),
        }
    }

    /// Gives a handler the methods of a pattern.
    fn claim(
        &mut self,
        entry: usize,
        methods: &Methods,
        number: u32,
        written_at: &'static Location<'static>,
    ) {
        let Table { entries, routes, .. } = &mut self.table;
        let entry = &mut entries[entry];
        let mut claim = |method: Option<&Method>| {
            let before = match method {
                None => entry.any,
                Some(method) => entry.methods.iter().find(|(of, _)| of == method).map(|(_, number)| *number),
            };
            match (before, method) {
                (Some(before), _) => {
                    let first = routes.get(before as usize).map_or(written_at, |route| route.written_at);
                    let method = method.map_or("ANY", Method::as_str);
                    let pattern = &entry.pattern;
                    self.mistakes
                        .push(format!("{method} {pattern} has two handlers: {first} and {written_at}"));
                }
                (None, Some(method)) => entry.methods.push((method.clone(), number)),
                (None, None) => entry.any = Some(number),
            }
        };
        match methods {
            Methods::Any => claim(None),
            Methods::Some(methods) => methods.iter().for_each(|method| claim(Some(method))),
        }
    }

    fn add_fallback(&mut self, fallback: Fallback, within: Surroundings<'_>) {
        let Fallback { endpoint, written_at } = fallback;
        let options = self.options(within.layers, &*endpoint);
        let number = self.next_number();
        let prefix = within.prefix;
        let name = format!("the fallback of \"{prefix}/\" ({written_at})");
        self.check(&name, prefix.contains('{'), &options, within.states);
        if prefix.is_empty() {
            if let Some(first) = self.table.fallback.and_then(|number| self.table.route(number)) {
                let first = first.written_at;
                self.mistakes.push(format!("there are two fallbacks: {first} and {written_at}"));
            }
            self.table.fallback = Some(number);
        } else {
            for pattern in [prefix.to_owned(), format!("{prefix}/"), format!("{prefix}/{{*filoplume_rest}}")]
            {
                let inserted =
                    to_matched(&pattern).map(|matched| self.table.nested_fallbacks.insert(matched, number));
                if !matches!(inserted, Ok(Ok(()))) {
                    self.mistakes.push(format!("{name} has the prefix of another one"));
                    break;
                }
            }
        }
        self.table.routes.push(CompiledRoute {
            pattern: format!("{prefix}/*"),
            written_at,
            endpoint,
            layers: within.layers.into(),
            states: within.states.clone(),
            options,
        });
    }

    fn options(&self, layers: &[Layer], endpoint: &dyn Endpoint) -> RouteOptions {
        let mut options = RouteOptions::new();
        for layer in self.app_layers.iter().chain(layers) {
            layer.configure(&mut options);
        }
        endpoint.configure(&mut options);
        options
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.table.routes.len()).unwrap_or(u32::MAX)
    }

    fn check(&mut self, name: &str, has_captures: bool, options: &RouteOptions, states: &States) {
        for (id, type_name) in options.needs_states() {
            if !states.has(*id) {
                self.mistakes.push(format!(
                    "{name} takes `State<{type_name}>`, and no such state was given: add `.state(..)` to the app"
                ));
            }
        }
        if options.needs_captures() && !has_captures {
            self.mistakes
                .push(format!("{name} takes `Path<..>`, and its pattern captures nothing: write `{{name}}`"));
        }
    }
}
