//! Builds the table from the routers: checks everything, and reports all mistakes at once.

mod guards;

use std::panic::Location;
use std::sync::Arc;

use filoplume_runtime::{Method, ServerConfig};

use crate::core::captures::Capture;
use crate::core::handler::{Endpoint, SharedEndpoint};
use crate::core::middleware::Layer;
use crate::core::options::RouteOptions;
use crate::core::route::CompiledRoute;
use crate::core::route::FALLBACK;
use crate::core::states::States;
use crate::routing::Route;
use crate::routing::guards::{GuardedRouter, KnownFallback, NestedRoute};
use crate::routing::pattern::{Pattern, join};
use crate::routing::prefix::Prefix;
use crate::routing::route::{MethodHandler, Methods};
use crate::routing::router::{Fallback, Placed, Router};
use crate::routing::table::{Entry, Matcher, Table, allow};

/// Builds the table of an app. `app_layers` run before a route is chosen.
pub(crate) fn build(
    router: Router,
    app_layers: &[Layer],
    config: Option<&ServerConfig>,
) -> Result<Table, Vec<String>> {
    let mut builder = Builder {
        table: Table::default(),
        app_layers,
        config,
        mistakes: Vec::new(),
        guarded: Vec::new(),
        nested_routes: Vec::new(),
        fallbacks: Vec::new(),
    };
    builder.add_router(router, &Scope::default());
    builder.add_guards();
    for entry in &mut builder.table.entries {
        entry.allow = allow(entry.methods.iter().map(|(method, _)| method));
    }
    let methods = builder.table.entries.iter().flat_map(|entry| &entry.methods);
    builder.table.allow = allow(methods.map(|(method, _)| method));
    if builder.mistakes.is_empty() { Ok(builder.table) } else { Err(builder.mistakes) }
}

struct Builder<'a> {
    table: Table,
    app_layers: &'a [Layer],
    config: Option<&'a ServerConfig>,
    mistakes: Vec<String>,
    guarded: Vec<GuardedRouter>,
    nested_routes: Vec<NestedRoute>,
    fallbacks: Vec<KnownFallback>,
}

/// The settings that a router passes to its routes and nested routers.
#[derive(Default)]
struct Scope {
    prefix: String,
    layers: Vec<Layer>,
    states: States,
    /// The number of layers that apply to everything below the prefix of an outer router.
    guarding: usize,
    /// Where the innermost router with a prefix is nested.
    nested_at: Option<&'static Location<'static>>,
}

impl Builder<'_> {
    fn add_router(&mut self, router: Router, outer: &Scope) {
        self.add_router_at(router, "", outer, Location::caller());
    }

    fn add_router_at(
        &mut self,
        router: Router,
        at: &str,
        outer: &Scope,
        written_at: &'static Location<'static>,
    ) {
        let Router { routes, nested, layers, mut states, fallback, mistakes } = router;
        self.mistakes.extend(mistakes);
        states.extend_outer(&outer.states);
        let mut scope = Scope {
            prefix: format!("{}{at}", outer.prefix),
            layers: [&*outer.layers, &layers].concat(),
            states,
            guarding: outer.guarding,
            nested_at: if at.is_empty() { outer.nested_at } else { Some(written_at) },
        };
        if !at.is_empty() && scope.layers.len() > outer.guarding {
            self.guard(&scope, written_at);
            scope.guarding = scope.layers.len();
        }
        for Placed { path, value, written_at } in routes {
            self.add_route(&path, value, written_at, &scope);
        }
        for Placed { path, value, written_at } in nested {
            self.add_router_at(value, &path, &scope, written_at);
        }
        if let Some(fallback) = fallback {
            self.add_fallback(fallback, &scope);
        }
    }

    /// Records that everything below a prefix is behind the layers that were collected on the way
    /// to it.
    fn guard(&mut self, scope: &Scope, written_at: &'static Location<'static>) {
        // An invalid prefix was already reported with its routes.
        let Ok(Pattern { matched, captures }) = Pattern::parse(&scope.prefix) else { return };
        self.guarded.push(GuardedRouter {
            pattern: scope.prefix.clone(),
            prefix: Prefix::of(&matched),
            captures,
            layers: scope.layers.clone(),
            states: scope.states.clone(),
            written_at,
        });
    }

    fn add_route(
        &mut self,
        pattern: &str,
        route: Route,
        written_at: &'static Location<'static>,
        scope: &Scope,
    ) {
        let Route { handlers, layers, adjust } = route;
        // The pattern of a nested route must begin with a slash too, so it is first checked on its
        // own.
        if let Err(mistake) = Pattern::parse(pattern) {
            let below = match &*scope.prefix {
                "" => String::new(),
                prefix => format!(" below \"{prefix}\""),
            };
            self.mistakes.push(format!("route \"{pattern}\"{below} ({written_at}): {mistake}"));
            return;
        }
        let joined = join(&scope.prefix, pattern);
        let parsed = Pattern::parse(&joined);
        let Pattern { matched, captures } = match parsed {
            Ok(parsed) => parsed,
            Err(mistake) => {
                self.mistakes.push(format!("route \"{joined}\" ({written_at}): {mistake}"));
                return;
            }
        };
        let pattern = joined;
        let router = Pattern::parse(&scope.prefix).map(|prefix| Prefix::of(&prefix.matched));
        let router = router.unwrap_or_else(|_| Prefix::of(""));
        let Some(entry) = self.entry(&pattern, &matched, written_at) else { return };
        let layers = [&*scope.layers, &layers].concat();
        for MethodHandler { methods, endpoint, written_at } in handlers {
            let mut options = self.options(&layers, &*endpoint);
            for adjust in &adjust {
                adjust(&mut options);
            }
            let number = self.next_number();
            self.claim(entry, &methods, number, written_at);
            let name = format!("{methods} {pattern} ({written_at})");
            self.check(&name, &captures, &options, &scope.states);
            #[cfg(feature = "websocket")]
            if let Some(mistake) = options.socket_mistake(methods.has_get()) {
                self.report(&name, mistake);
            }
            self.nested_routes.push(NestedRoute {
                number,
                matched: Prefix::of(&matched),
                router: router.clone(),
                nested_at: scope.nested_at,
            });
            self.table.routes.push(CompiledRoute {
                pattern: pattern.clone(),
                captures: captures.clone(),
                methods: methods.to_string(),
                written_at,
                endpoint,
                layers: [&*layers, &options.implied_layers()].concat().into(),
                states: scope.states.clone(),
                options,
            });
        }
    }

    /// Returns the entry of a pattern, and creates it if it is new. If that fails, it records the
    /// mistake and returns `None`.
    fn entry(
        &mut self,
        pattern: &str,
        matched: &str,
        written_at: &'static Location<'static>,
    ) -> Option<usize> {
        if let Some(entry) = self.table.entries.iter().position(|entry| entry.matched == matched) {
            return Some(entry);
        }
        let number = self.table.entries.len();
        if let Err(error) = self.table.paths.insert(matched, u32::try_from(number).ok()?) {
            let mistake = self.explain(matched, &error);
            self.mistakes.push(format!("route \"{pattern}\" ({written_at}) {mistake}"));
            return None;
        }
        self.table.entries.push(Entry {
            pattern: pattern.to_owned(),
            matched: matched.to_owned(),
            written_at,
            methods: Vec::new(),
            any: None,
            allow: String::new(),
            outside: Vec::new(),
        });
        Some(number)
    }

    /// Returns the reason why a pattern cannot be added. The error of the matcher may name a route
    /// that does not conflict, so each existing route is tried alone with the pattern.
    fn explain(&self, matched: &str, error: &matchit::InsertError) -> String {
        let conflicts_with = |other: &&Entry| {
            let mut two = Matcher::new();
            two.insert(&*other.matched, 0).is_ok() && two.insert(matched, 1).is_err()
        };
        if Matcher::new().insert(matched, 0).is_err() {
            return format!("cannot be matched: {error}");
        }
        let Some(other) = self.table.entries.iter().find(conflicts_with) else {
            return format!("conflicts with other routes: {error}");
        };
        let reason = if shape(&other.matched) == shape(matched) {
            "both match the same paths: use the same names for the captures"
        } else {
            "captures at the same position must be of one kind, either all with text before them \
             or all with text after them, and `{*rest}` cannot stand beside another capture; a \
             fallback can answer the remaining paths"
        };
        format!("conflicts with route \"{}\" ({}): {reason}", other.pattern, other.written_at)
    }

    /// Assigns methods of a pattern to a handler.
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
                Some(method) => {
                    entry.methods.iter().find(|(of, _)| of == method).map(|(_, number)| *number)
                }
            };
            match (before, method) {
                (Some(before), _) => {
                    let first =
                        routes.get(before as usize).map_or(written_at, |route| route.written_at);
                    let method = method.map_or("ANY", Method::as_str);
                    let begin = format!("{method} {} has several handlers", entry.pattern);
                    // All handlers of one method are one mistake.
                    match self.mistakes.iter_mut().find(|known| known.starts_with(&begin)) {
                        Some(known) => known.push_str(&format!(", {written_at}")),
                        None => self
                            .mistakes
                            .push(format!("{begin}; keep one of them: {first}, {written_at}")),
                    }
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

    fn add_fallback(&mut self, fallback: Fallback, scope: &Scope) {
        let Fallback { endpoint, written_at } = fallback;
        let options = self.options(&scope.layers, &*endpoint);
        let number = self.next_number();
        let prefix = &*scope.prefix;
        let name = format!("the fallback of \"{prefix}/\" ({written_at})");
        let endpoint: Arc<dyn Endpoint> = endpoint.into();
        let (matched, captures) = Pattern::parse(prefix)
            .map_or_else(|_| Default::default(), |pattern| (pattern.matched, pattern.captures));
        self.fallbacks.push(KnownFallback {
            number,
            prefix: Prefix::of(&matched),
            endpoint: Arc::clone(&endpoint),
            layers: scope.layers.clone(),
        });
        self.check(&name, &captures, &options, &scope.states);
        if prefix.is_empty() {
            if let Some(first) = self.table.fallback.and_then(|number| self.table.route(number)) {
                let first = first.written_at;
                self.mistakes.push(format!(
                    "there are two fallbacks: {first} and {written_at}; keep one of them"
                ));
            }
            self.table.fallback = Some(number);
        } else {
            self.insert_nested_fallback(prefix, number, &name);
        }
        self.table.routes.push(CompiledRoute {
            pattern: format!("{prefix}/{{*rest}}"),
            captures,
            methods: FALLBACK.to_owned(),
            written_at,
            endpoint: Box::new(SharedEndpoint(endpoint)),
            layers: [&*scope.layers, &options.implied_layers()].concat().into(),
            states: scope.states.clone(),
            options,
        });
    }

    /// Adds a fallback to the matcher, or records why it conflicts with another one.
    fn insert_nested_fallback(&mut self, prefix: &str, number: u32, name: &str) {
        // The prefix itself, the prefix with a slash, and everything below it.
        for tail in ["", "/", "/{*rest-of-fallback}"] {
            let pattern = Pattern::parse(&format!("{prefix}{tail}"));
            let inserted =
                pattern.map(|pattern| self.table.nested_fallbacks.insert(pattern.matched, number));
            let other = match inserted {
                Ok(Ok(())) => continue,
                Ok(Err(matchit::InsertError::Conflict { with })) => {
                    format!("that of \"{}\"", with.trim_end_matches("{*rest-of-fallback}"))
                }
                Ok(Err(error)) => format!("others: {error}"),
                Err(mistake) => format!("others: {mistake}"),
            };
            let fallbacks = self.table.routes.iter().rev();
            let fallback_shape = shape(&format!("{prefix}/{{*rest}}"));
            let mut same_prefix = fallbacks
                .filter(|route| route.is_fallback())
                .filter(|route| shape(&route.pattern) == fallback_shape)
                .map(|route| route.written_at);
            self.mistakes.push(match same_prefix.next() {
                Some(location) => {
                    format!("{name} has the prefix of another fallback ({location})")
                }
                None => format!(
                    "{name} conflicts with {other}: a fallback answers every path below its \
                     prefix, so the prefix of another one cannot have a capture at the same \
                     position"
                ),
            });
            return;
        }
    }

    fn options(&self, layers: &[Layer], endpoint: &dyn Endpoint) -> RouteOptions {
        self.options_of(RouteOptions::new(), layers, endpoint)
    }

    fn options_of(
        &self,
        mut options: RouteOptions,
        layers: &[Layer],
        endpoint: &dyn Endpoint,
    ) -> RouteOptions {
        if let Some(config) = self.config {
            options.limit_contents(config.accepted_content_bytes());
        }
        for (layers, is_of_app) in [(self.app_layers, true), (layers, false)] {
            options.set_is_of_app(is_of_app);
            for layer in layers {
                layer.configure(&mut options);
            }
        }
        endpoint.configure(&mut options);
        options
    }

    fn next_number(&self) -> u32 {
        u32::try_from(self.table.routes.len()).unwrap_or(u32::MAX)
    }

    fn check(&mut self, name: &str, captures: &[Capture], options: &RouteOptions, states: &States) {
        for (id, type_name) in options.needs_states() {
            if !states.has(*id) {
                let others = match states.names() {
                    _ if options.provides(*id) => {
                        ", or take `Extension<..>`, which middleware adds".to_owned()
                    }
                    [] => String::new(),
                    names => format!("; the states of the app are `{}`", names.join("`, `")),
                };
                // `state` takes any type, so nothing makes an `Arc<Sql>` an `Arc<dyn Database>`.
                let call = if type_name.contains("dyn ") {
                    format!("write `.state(value as {type_name})`")
                } else {
                    "add `.state(..)` to the app".to_owned()
                };
                self.mistakes.push(format!(
                    "{name} extracts `State<{type_name}>`, but there is no such state: {call}\
                     {others}"
                ));
            }
        }
        for advice in options.missing_extensions() {
            self.report(name, &advice(states));
        }
        for otherwise in options.unprovided() {
            self.report(name, otherwise);
        }
        for mistake in options.mistakes() {
            // Middleware of the app reports the same mistake for every route.
            if !self.mistakes.contains(mistake) {
                self.mistakes.push(mistake.clone());
            }
        }
        for mistake in options.contradictions() {
            self.report(name, &mistake);
        }
        if options.needs_captures() && captures.is_empty() {
            self.mistakes.push(format!(
                "{name} extracts `Path<..>`, but its pattern has no capture: write `{{name}}`"
            ));
            return;
        }
        for mistake in options.capture_mistakes(captures) {
            self.report(name, &mistake);
        }
    }

    /// Records a mistake of a route. It is cold, so that it is not inlined into each caller.
    #[cold]
    fn report(&mut self, name: &str, mistake: &str) {
        self.mistakes.push(format!("{name}: {mistake}"));
    }
}

/// Returns a pattern without the names of its captures.
fn shape(matched: &str) -> String {
    let mut shape = String::new();
    let mut is_name = false;
    for character in matched.chars() {
        match character {
            '{' => is_name = true,
            '}' => is_name = false,
            _ => {}
        }
        if !is_name || matches!(character, '{' | '*') {
            shape.push(character);
        }
    }
    shape
}
