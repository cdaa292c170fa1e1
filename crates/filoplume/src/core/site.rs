//! The app from within.

use filoplume_runtime::{Request, Response};

use super::asked::Asked;

/// What those who answer for an app ask of it that takes its table of routes. A request without
/// middleware comes by without asking.
pub(crate) trait Site: Send + Sync {
    /// Answers a request behind the middleware of the app.
    fn route(&self, request: Request, asked: &Asked) -> Response;

    /// Answers `OPTIONS` behind the middleware of a route.
    fn answer_options(&self, request: &Request) -> Response;

    /// Returns the path in its normal form, if that is a place of others.
    #[cfg(feature = "static-files")]
    fn other_place(&self, path: &str) -> Option<String>;
}
