//! A route of a built app.

use std::panic::Location;

use super::captures::Capture;
use super::handler::Endpoint;
use super::middleware::Layer;
use super::options::RouteOptions;
use super::states::States;

/// The text in lists of routes that replaces the methods of a fallback.
pub(crate) const FALLBACK: &str = "FALLBACK";

/// A handler with its pattern, methods, middleware, state and options.
pub(crate) struct CompiledRoute {
    pub(crate) pattern: String,
    /// The captures of the pattern; for a nested fallback, those of its prefix.
    pub(crate) captures: Vec<Capture>,
    /// The methods, as text for lists.
    pub(crate) methods: String,
    pub(crate) written_at: &'static Location<'static>,
    pub(crate) endpoint: Box<dyn Endpoint>,
    /// The middleware of the routers and the route. The middleware of the app runs before it.
    pub(crate) layers: Box<[Layer]>,
    pub(crate) states: States,
    pub(crate) options: RouteOptions,
}

impl CompiledRoute {
    /// Returns whether this is a fallback, which answers requests that no route matches.
    pub(crate) fn is_fallback(&self) -> bool {
        self.methods == FALLBACK
    }
}
