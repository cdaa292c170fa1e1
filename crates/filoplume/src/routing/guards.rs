//! Guards: they apply the middleware of a nested router to everything below its prefix.
//!
//! Without guards, a file or wildcard route of the outer router would answer paths that the nested
//! router has no route for. Then a login that protects `/admin` would not protect
//! `admin/secret.html`.

use std::panic::Location;
use std::sync::Arc;

use crate::core::captures::Capture;
use crate::core::handler::Endpoint;
use crate::core::middleware::Layer;
use crate::core::states::States;
use crate::routing::prefix::{FoldedPath, Prefix};

/// The prefix of a nested router that has middleware.
pub(super) struct Guard {
    pub(super) prefix: Prefix,
    /// The number of the route that answers paths below the prefix that match no other route.
    pub(super) fallback: u32,
    /// The fallbacks of routers nested within this one, which take precedence over `fallback`.
    pub(super) inner_fallbacks: Vec<u32>,
}

/// The guards of a table, narrower prefixes first.
#[derive(Default)]
pub(super) struct Guards(pub(super) Vec<Guard>);

impl Guards {
    /// Returns whether a path is below one of these guards. A route outside of them must not answer
    /// such a path.
    #[inline(never)]
    pub(super) fn excludes(&self, outside: &[usize], path: &str) -> bool {
        self.position(path).is_some_and(|guard| outside.contains(&guard))
    }

    /// Returns the fallback for a path that matches no route. `otherwise` is the fallback that the
    /// prefixes alone would choose.
    pub(super) fn fallback(&self, path: &str, otherwise: Option<u32>) -> Option<u32> {
        let Some(guard) = self.position(path).and_then(|guard| self.0.get(guard)) else {
            return otherwise;
        };
        otherwise.filter(|number| guard.inner_fallbacks.contains(number)).or(Some(guard.fallback))
    }

    /// Returns the fallback of the guard that a path is below. It has the middleware of the guard.
    pub(super) fn route(&self, path: &str) -> Option<u32> {
        self.position(path).and_then(|guard| self.0.get(guard)).map(|guard| guard.fallback)
    }

    /// Returns the guards whose paths a pattern may match although the pattern is not written below
    /// their prefixes.
    pub(super) fn outside(&self, pattern: &Prefix) -> Vec<usize> {
        let is_outside = |guard: &Guard| {
            guard.prefix.may_contain_paths_of(pattern) && !guard.prefix.covers(pattern)
        };
        (0..self.0.len()).filter(|&guard| self.0.get(guard).is_some_and(is_outside)).collect()
    }

    fn position(&self, path: &str) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let path = FoldedPath::of(path);
        self.0.iter().position(|guard| path.is_below(&guard.prefix))
    }
}

/// A nested router with middleware, while the table is being built.
pub(super) struct GuardedRouter {
    pub(super) pattern: String,
    pub(super) prefix: Prefix,
    pub(super) captures: Vec<Capture>,
    pub(super) layers: Vec<Layer>,
    pub(super) states: States,
    pub(super) written_at: &'static Location<'static>,
}

/// A fallback, while the table is being built.
pub(super) struct KnownFallback {
    pub(super) number: u32,
    pub(super) prefix: Prefix,
    pub(super) endpoint: Arc<dyn Endpoint>,
    pub(super) layers: Vec<Layer>,
}

/// A route of a nested router, while the table is being built.
pub(super) struct NestedRoute {
    pub(super) number: u32,
    pub(super) matched: Prefix,
    /// The prefix of its router.
    pub(super) router: Prefix,
    /// Where its router is nested.
    pub(super) nested_at: Option<&'static Location<'static>>,
}

/// Merges routers with the same prefix, and sorts narrower prefixes first.
pub(super) fn joined(routers: Vec<GuardedRouter>) -> Vec<GuardedRouter> {
    let mut joined: Vec<GuardedRouter> = Vec::new();
    for router in routers {
        match joined.iter_mut().find(|other| other.prefix == router.prefix) {
            Some(other) => {
                other.layers = all_layers(&other.layers, &router.layers);
                other.states.extend_outer(&router.states);
            }
            None => joined.push(router),
        }
    }
    let mut sorted: Vec<GuardedRouter> = Vec::with_capacity(joined.len());
    for router in joined {
        let rank = router.prefix.rank();
        let index = sorted.partition_point(|other| other.prefix.rank() <= rank);
        sorted.insert(index, router);
    }
    sorted
}

/// Returns the first layers, followed by those of the second that are not among them.
pub(super) fn all_layers(first: &[Layer], second: &[Layer]) -> Vec<Layer> {
    let new = second.iter().filter(|layer| !has_layer(first, layer));
    first.iter().chain(new).cloned().collect()
}

/// Returns whether all wanted layers are among the layers.
pub(super) fn has_layers(layers: &[Layer], wanted: &[Layer]) -> bool {
    wanted.iter().all(|layer| has_layer(layers, layer))
}

/// Returns whether each wanted layer, or another one of its type, is among the layers.
pub(super) fn has_kinds(layers: &[Layer], wanted: &[Layer]) -> bool {
    let has = |wanted: &Layer| {
        // Dereferenced, so that the type is that of the middleware and never that of the `Arc`.
        let kind = (**wanted).kind();
        layers.iter().any(|layer| (**layer).kind() == kind)
    };
    wanted.iter().all(has)
}

fn has_layer(layers: &[Layer], wanted: &Layer) -> bool {
    layers.iter().any(|layer| std::ptr::addr_eq(Arc::as_ptr(layer), Arc::as_ptr(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(prefix: &str, states: States) -> GuardedRouter {
        GuardedRouter {
            pattern: prefix.to_owned(),
            prefix: Prefix::of(prefix),
            captures: Vec::new(),
            layers: Vec::new(),
            states,
            written_at: Location::caller(),
        }
    }

    /// Both are as narrow, and a path may be below both.
    #[test]
    fn of_prefixes_of_the_same_rank_the_first_stays_first() {
        let prefixes = ["/{a}", "/x{a}", "/{a}.d", "/x"];
        let routers = prefixes.map(|prefix| router(prefix, States::default())).into();
        let sorted: Vec<String> =
            joined(routers).into_iter().map(|router| router.pattern).collect();
        assert_eq!(sorted, ["/x", "/x{a}", "/{a}.d", "/{a}"]);
    }

    #[test]
    fn routers_with_the_same_prefix_have_the_states_of_both() {
        let (mut one, mut two) = (States::default(), States::default());
        one.insert(1_u8, Location::caller());
        two.insert(2_u16, Location::caller());
        two.insert(2_u8, Location::caller());
        let joined = joined(vec![router("/x", one), router("/x", two)]);
        let [both] = joined.as_slice() else { panic!("there are {}", joined.len()) };
        assert_eq!((both.states.get(), both.states.get()), (Some(&1_u8), Some(&2_u16)));
    }
}
