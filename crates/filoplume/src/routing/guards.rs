//! Guards: what lies below the prefix of a nested router with middleware is answered behind that
//! middleware.
//!
//! Without them a file or wildcard route of the outer router would answer what the nested router
//! has no route for, and a login that stands before `/admin` would not stand before
//! `admin/secret.html`.

use std::panic::Location;
use std::sync::Arc;

use crate::core::captures::Capture;
use crate::core::handler::Endpoint;
use crate::core::middleware::Layer;
use crate::core::states::States;
use crate::routing::prefix::{Prefix, Reading};

/// The prefix of a nested router with middleware of its own.
pub(super) struct Guard {
    pub(super) prefix: Prefix,
    /// The number of the route that answers what no route below the prefix does.
    pub(super) fallback: u32,
    /// The fallbacks of routers further in, which answer for themselves.
    pub(super) inner_fallbacks: Vec<u32>,
}

/// The guards of a table, the narrower ones first.
#[derive(Default)]
pub(super) struct Guards(pub(super) Vec<Guard>);

impl Guards {
    /// Returns whether a path is below one of these guards, so that a route outside of them may not
    /// answer it.
    #[inline(never)]
    pub(super) fn keeps_out(&self, outside: &[usize], path: &str) -> bool {
        self.position(path).is_some_and(|guard| outside.contains(&guard))
    }

    /// Returns the fallback for a path that no route answers, given the one that its prefixes would
    /// choose.
    pub(super) fn fallback(&self, path: &str, otherwise: Option<u32>) -> Option<u32> {
        let Some(guard) = self.position(path).and_then(|guard| self.0.get(guard)) else {
            return otherwise;
        };
        otherwise.filter(|number| guard.inner_fallbacks.contains(number)).or(Some(guard.fallback))
    }

    /// Returns the guards that a pattern is not written below, although paths below them may match
    /// it.
    pub(super) fn outside(&self, pattern: &Prefix) -> Vec<usize> {
        let is_outside = |guard: &Guard| {
            guard.prefix.may_be_entered_by(pattern) && !guard.prefix.covers(pattern)
        };
        (0..self.0.len()).filter(|&guard| self.0.get(guard).is_some_and(is_outside)).collect()
    }

    fn position(&self, path: &str) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let path = Reading::of(path);
        self.0.iter().position(|guard| path.is_below(&guard.prefix))
    }
}

/// A nested router with middleware, while the table is built.
pub(super) struct GuardedRouter {
    pub(super) pattern: String,
    pub(super) prefix: Prefix,
    pub(super) captures: Vec<Capture>,
    pub(super) layers: Vec<Layer>,
    pub(super) states: States,
    pub(super) written_at: &'static Location<'static>,
}

/// A fallback, while the table is built.
pub(super) struct KnownFallback {
    pub(super) number: u32,
    pub(super) prefix: Prefix,
    pub(super) endpoint: Arc<dyn Endpoint>,
    pub(super) layers: Vec<Layer>,
}

/// Joins routers with the same prefix, and sorts the narrower prefixes first.
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
    joined.sort_by_key(|router| router.prefix.rank());
    joined
}

/// The first layers, and those of the second that are not among them.
pub(super) fn all_layers(first: &[Layer], second: &[Layer]) -> Vec<Layer> {
    let new = second.iter().filter(|layer| !has_layer(first, layer));
    first.iter().chain(new).cloned().collect()
}

/// Whether these are among the layers.
pub(super) fn has_layers(layers: &[Layer], wanted: &[Layer]) -> bool {
    wanted.iter().all(|layer| has_layer(layers, layer))
}

fn has_layer(layers: &[Layer], wanted: &Layer) -> bool {
    layers.iter().any(|layer| std::ptr::addr_eq(Arc::as_ptr(layer), Arc::as_ptr(wanted)))
}
