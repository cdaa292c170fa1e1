//! The routing of an app, as middleware and static files see it.

use filoplume_runtime::{Method, Request, Response};

use super::asked::Asked;
use super::context::Context;
use super::options::RouteOptions;

/// The operations that need the table of routes. Middleware and static files call them through this
/// trait, because this module does not depend on the table. A request without middleware does not
/// use it.
pub(crate) trait AppRouter: Send + Sync {
    /// Routes a request after the middleware of the app, and answers it.
    fn route(&self, request: Request, asked: &Asked) -> Response;

    /// Like [`route`](Self::route), for a request that middleware of the app may have changed since
    /// it was planned. `context` is that of this middleware.
    fn route_again(&self, request: Request, context: Context<'_>) -> Response;

    /// Returns the number and the options of the route that answers a method at a path.
    fn route_of(&self, method: &Method, path: &str) -> Option<(u32, &RouteOptions)>;

    /// Answers a request without a handler, after the middleware of its route or prefix.
    fn answer_unmatched(&self, request: &Request) -> Response;

    /// Returns the normal form of a path, if that form leads to a different route.
    #[cfg(feature = "static-files")]
    fn normal_form_redirect(&self, path: &str) -> Option<String>;
}
