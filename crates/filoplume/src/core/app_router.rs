//! The routing of an app, as middleware and static files see it.

use filoplume_runtime::{Request, Response};

use super::asked::Asked;

/// The operations that need the table of routes. Middleware and static files call them through this
/// trait, because this module does not depend on the table. A request without middleware does not
/// use it.
pub(crate) trait AppRouter: Send + Sync {
    /// Routes a request after the middleware of the app, and answers it.
    fn route(&self, request: Request, asked: &Asked) -> Response;

    /// Answers a request without a handler, after the middleware of its route or prefix.
    fn answer_unmatched(&self, request: &Request) -> Response;

    /// Returns the normal form of a path, if that form leads to a different route.
    #[cfg(feature = "static-files")]
    fn normal_form_redirect(&self, path: &str) -> Option<String>;
}
