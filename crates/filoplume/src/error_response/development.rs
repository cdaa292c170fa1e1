//! Additional information about an error, for development mode.

use filoplume_runtime::Response;

use super::hints::{self, RouteLine};
use crate::core::error::Error;
use crate::core::route::CompiledRoute;
use crate::core::snapshot::Snapshot;

/// The information about one error.
pub(super) struct Findings<'a> {
    pub(super) request: &'a Snapshot,
    /// The direct cause first. A panic counts as a cause.
    pub(super) causes: Vec<String>,
    /// `None` if no route matched.
    pub(super) route: Option<&'a CompiledRoute>,
    pub(super) hint: Option<String>,
    /// The routes of the app, if none matched.
    pub(super) routes: Vec<RouteLine<'a>>,
}

/// The maximum number of routes in the list.
const ROUTES_MAX: usize = 500;

impl<'a> Findings<'a> {
    pub(super) fn of(
        error: &Error,
        response: &Response,
        request: &'a Snapshot,
        route: Option<&'a CompiledRoute>,
        all_routes: &'a [CompiledRoute],
    ) -> Self {
        let causes = error.chain().map(ToString::to_string).collect();
        let mut routes = Vec::new();
        if response.status() == 404 && route.is_none_or(CompiledRoute::is_fallback) {
            let (similar, others): (Vec<_>, Vec<_>) = all_routes
                .iter()
                .take(ROUTES_MAX)
                .map(|route| RouteLine {
                    methods: &route.methods,
                    pattern: &route.pattern,
                    // The pattern of a fallback is like every path below its prefix.
                    is_similar: !route.is_fallback()
                        && hints::are_similar(&route.pattern, &request.path),
                })
                .partition(|route: &RouteLine<'_>| route.is_similar);
            routes = similar;
            routes.extend(others);
        }
        let hint = hints::hint(error, response, route, &routes);
        Self { request, causes, route, hint, routes }
    }
}
