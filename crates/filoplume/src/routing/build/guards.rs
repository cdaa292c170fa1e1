//! Turns nested routers with middleware into the guards of the table.

use std::sync::Arc;

use super::Builder;
use crate::core::error::Error;
use crate::core::handler::{Endpoint, SharedEndpoint, erase};
use crate::core::middleware::Layer;
use crate::core::options::RouteOptions;
use crate::core::route::CompiledRoute;
use crate::core::route::FALLBACK;
use crate::routing::guards::{Guard, GuardedRouter, all_layers, has_kinds, has_layers, joined};
use crate::routing::prefix::Prefix;

impl Builder<'_> {
    /// Adds the guards. It is called after all routes and fallbacks are added.
    pub(super) fn add_guards(&mut self) {
        self.reject_open_routes();
        for router in joined(std::mem::take(&mut self.guarded)) {
            self.reject_catch_alls(&router);
            let has_own_answer = |(prefix, layers): (&Prefix, &[Layer])| {
                router.prefix.covers(prefix)
                    && (prefix.is_longer_than(&router.prefix) || has_layers(layers, &router.layers))
            };
            let inner = self
                .fallbacks
                .iter()
                .filter(|known| has_own_answer((&known.prefix, &known.layers)));
            let inner_fallbacks = inner.map(|known| known.number).collect();
            let prefix = router.prefix.clone();
            let fallback = self.add_guarded_fallback(router);
            self.table.guards.0.push(Guard { prefix, fallback, inner_fallbacks });
        }
        for entry in &mut self.table.entries {
            entry.outside = self.table.guards.outside(&Prefix::of(&entry.matched));
        }
    }

    /// Rejects routes that are open by accident: those of another router at the same prefix, and
    /// those that match any segment below it. A route of another router whose path goes on with a
    /// literal segment is meant to be open, such as `/admin/login`.
    ///
    /// Middleware of the same type counts as the same: two routers may each have their own login.
    fn reject_open_routes(&mut self) {
        let mut reported = Vec::new();
        for nested in &self.nested_routes {
            let Some(route) = self.table.route(nested.number) else { continue };
            for guard in &self.guarded {
                let is_sibling = guard.prefix == nested.router;
                if !is_sibling && !guard.prefix.has_capture_below(&nested.matched)
                    // `reject_catch_alls` reports these.
                    || guard.prefix.has_catch_all(&nested.matched)
                    || has_kinds(&route.layers, &guard.layers)
                {
                    continue;
                }
                let (pattern, prefix) = (&route.pattern, &guard.pattern);
                let (written_at, guarded_at) = (route.written_at, guard.written_at);
                let place = nested.nested_at.filter(|_| is_sibling).unwrap_or(written_at);
                // One mistake for two routers is enough.
                if reported.contains(&(place, guarded_at))
                    || reported.contains(&(guarded_at, place))
                {
                    continue;
                }
                reported.push((place, guarded_at));
                self.mistakes.push(if is_sibling {
                    format!(
                        "the router that is nested at \"{prefix}\" ({place}) lacks middleware of \
                         the other router there ({guarded_at}), so \"{pattern}\" would be open: \
                         nest both as one, `.nest(\"{prefix}\", first.merge(second))`, or add \
                         routes that are meant to be open to the outer router, with their whole \
                         path"
                    )
                } else {
                    format!(
                        "route \"{pattern}\" ({place}) matches paths below \"{prefix}\" without \
                         the middleware of the router that is nested there ({guarded_at}): add the \
                         route to that router, or begin its path below the prefix with a literal \
                         segment"
                    )
                });
            }
        }
    }

    /// Rejects catch-all routes for a guarded prefix that do not have its middleware. It is not
    /// possible to know whether the route or the middleware should take precedence.
    fn reject_catch_alls(&mut self, router: &GuardedRouter) {
        for entry in &self.table.entries {
            if !router.prefix.has_catch_all(&Prefix::of(&entry.matched)) {
                continue;
            }
            let numbers = entry.methods.iter().map(|(_, number)| *number).chain(entry.any);
            let routes = numbers.filter_map(|number| self.table.route(number));
            if let Some(route) =
                routes.into_iter().find(|route| !has_kinds(&route.layers, &router.layers))
            {
                self.mistakes.push(format!(
                    "route \"{}\" ({}) answers every path below \"{}\" without the middleware of \
                     the router that is nested there ({}): add the route to that router, or \
                     move it to another prefix",
                    entry.pattern, route.written_at, router.pattern, router.written_at
                ));
            }
        }
    }

    /// Adds the route that answers below a guard if no other route does: the nearest fallback,
    /// behind the middleware of the guard.
    fn add_guarded_fallback(&mut self, router: GuardedRouter) -> u32 {
        let number = self.next_number();
        let around = self.fallbacks.iter().filter(|known| known.prefix.covers(&router.prefix));
        let nearest = around.max_by(|one, other| {
            one.prefix.is_longer_than(&other.prefix).cmp(&other.prefix.is_longer_than(&one.prefix))
        });
        let nearest = nearest.and_then(|known| Some((known, self.table.route(known.number)?)));
        let mut states = router.states;
        let (endpoint, layers, pattern, written_at, own_captures) = match nearest {
            Some((known, route)) => {
                states.extend_outer(&route.states);
                let endpoint: Box<dyn Endpoint> =
                    Box::new(SharedEndpoint(Arc::clone(&known.endpoint)));
                let layers = all_layers(&known.layers, &router.layers);
                // Static files find their prefix in the pattern that they were added with.
                (
                    endpoint,
                    layers,
                    route.pattern.clone(),
                    route.written_at,
                    Some(route.captures.clone()),
                )
            }
            None => {
                let nothing = || Error::from_status(filoplume_runtime::StatusCode::NOT_FOUND);
                (
                    erase(nothing),
                    router.layers,
                    format!("{}/{{*rest}}", router.pattern),
                    router.written_at,
                    None,
                )
            }
        };
        let mut options = RouteOptions::new();
        options.set_is_joined();
        let options = self.options_of(options, &layers, &*endpoint);
        // The handler reads the captures of its own prefix. If it reads none, the middleware can
        // read those of the guarded prefix.
        let captures = own_captures.filter(|_| options.needs_captures()).unwrap_or(router.captures);
        if self.mistakes.is_empty() {
            let name = format!("the fallback of \"{}/\" ({})", router.pattern, router.written_at);
            self.check(&name, &captures, &options, &states);
        }
        self.table.routes.push(CompiledRoute {
            pattern,
            captures,
            methods: FALLBACK.to_owned(),
            written_at,
            endpoint,
            layers: [&*layers, &options.implied_layers()].concat().into(),
            states,
            options,
        });
        number
    }
}
