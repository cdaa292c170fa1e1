//! A route as it answers.

use std::panic::Location;

use super::captures::Capture;
use super::handler::Endpoint;
use super::middleware::Layer;
use super::options::RouteOptions;
use super::states::States;

/// A handler with what belongs to it.
pub(crate) struct CompiledRoute {
    pub(crate) pattern: String,
    /// The captures of the pattern; of a nested fallback those of its prefix.
    pub(crate) captures: Vec<Capture>,
    /// The methods, as they are printed.
    pub(crate) methods: String,
    pub(crate) written_at: &'static Location<'static>,
    pub(crate) endpoint: Box<dyn Endpoint>,
    /// The middleware of routers and the route; that of the app comes before.
    pub(crate) layers: Box<[Layer]>,
    pub(crate) states: States,
    pub(crate) options: RouteOptions,
}
