//! What developers are shown of an error beside what the client is told.

use filoplume_runtime::Response;

use super::hints;
use crate::core::error::Error;
use crate::core::route::CompiledRoute;
use crate::core::snapshot::Snapshot;

/// What was found out about an error.
pub(super) struct Findings<'a> {
    pub(super) request: &'a Snapshot,
    /// The nearest first. A panic is one of them.
    pub(super) causes: Vec<String>,
    /// `None` if no route matched.
    pub(super) route: Option<&'a CompiledRoute>,
    pub(super) hint: Option<String>,
    /// The routes to choose from, if none matched.
    pub(super) routes: Vec<RouteLine<'a>>,
}

/// A route in a list.
pub(super) struct RouteLine<'a> {
    pub(super) methods: &'a str,
    pub(super) pattern: &'a str,
    pub(super) is_alike: bool,
}

/// The longest list of routes that is shown.
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
        if route.is_none() && response.status_code() == 404 {
            routes = all_routes
                .iter()
                .take(ROUTES_MAX)
                .map(|route| RouteLine {
                    methods: &route.methods,
                    pattern: &route.pattern,
                    is_alike: hints::are_alike(&route.pattern, &request.path),
                })
                .collect();
            routes.sort_by_key(|route| !route.is_alike);
        }
        let hint = hints::hint(error, response, route, &routes);
        Self { request, causes, route, hint, routes }
    }
}
