//! An app that is ready to serve: passes a request through the app's middleware to its route, and
//! renders errors.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use filoplume_runtime::{Method, Plan, Request, Response, ResponseBody, ServerConfig, StatusCode};

use super::refused::RefusalContents;
use super::server_timing::ServerTiming;
use super::shutdown::ShutdownHooks;
use crate::core::app_router::AppRouter;
use crate::core::asked::Asked;
use crate::core::changed_method::PlansMethod;
use crate::core::context::Context;
use crate::core::error::{Error, Responder};
use crate::core::middleware::{End, Layer, Layers, Next};
use crate::core::options::RouteOptions;
use crate::core::route::CompiledRoute;
use crate::core::settings::Settings;
use crate::error_response::render;
use crate::routing::{Found, Table};

/// The responses of error types of this crate that `?` converts. An app that wants other responses
/// calls `map_error`, which takes precedence.
pub(crate) const OWN_RESPONDERS: &[Responder] = &[
    #[cfg(feature = "jwt")]
    crate::core::error::responder::<crate::middleware::JwtError>,
];

/// An app that is ready to serve, shared by all threads.
pub(crate) struct BuiltApp {
    pub(crate) table: Table,
    pub(crate) layers: Box<[Layer]>,
    pub(crate) settings: Settings,
    pub(crate) server_timing: ServerTiming,
    pub(crate) special_plans: SpecialPlans,
    /// The server configuration that the program set.
    pub(crate) config: Option<ServerConfig>,
    pub(super) refusal_contents: RefusalContents,
    pub(super) shutdown_hooks: ShutdownHooks,
}

/// What plans depend on besides the options of their routes.
pub(crate) struct SpecialPlans {
    /// Whether there is anything. A single test finds that there is nothing in most apps.
    pub(crate) are_needed: bool,
    /// The middleware of the app that changes methods.
    plans_method: Box<[Arc<dyn PlansMethod>]>,
}

impl SpecialPlans {
    pub(super) fn of(table: &Table, server_timing: &ServerTiming) -> Self {
        let plans_method = table.plans_method();
        Self { are_needed: !server_timing.is_never() || !plans_method.is_empty(), plans_method }
    }
}

impl BuiltApp {
    /// Answers a request. This is the entry point of the app.
    pub(crate) fn answer(&self, request: Request) -> Response {
        let asked = Asked::of(&request, self.settings.is_development);
        let route = request.route().and_then(|number| self.table.route(number));
        let context = Context { router: self, settings: &self.settings, route, asked: &asked };
        // Catches panics of middleware. Panics of handlers are caught further in, so that
        // middleware sees the responses to them.
        let response = match catch_unwind(AssertUnwindSafe(|| self.run(request, context))) {
            Ok(response) => response,
            Err(panic) => context.panicked(&*panic),
        };
        if matches!(response.body(), ResponseBody::Empty) && Error::of(&response).is_some() {
            return render(response, context, self.table.routes());
        }
        response
    }

    /// Completes a plan that depends on more than the options of its route.
    #[cold]
    pub(crate) fn plan_specially(&self, request: &mut Request, plan: Plan) -> Plan {
        let plans = self.special_plans.plans_method.iter();
        let plan = plans.fold(plan, |plan, plans| plans.plan(request, plan, self));
        if self.server_timing.measures(request) { plan.timed() } else { plan }
    }

    /// Called when the server has stopped.
    pub(crate) fn stopped(&self) {
        self.shutdown_hooks.run();
    }

    #[inline]
    fn run(&self, request: Request, context: Context<'_>) -> Response {
        if self.layers.is_empty() {
            return self.route(request, context.asked);
        }
        Next { layers: Layers(&self.layers), context, end: End::Route }.run(request)
    }

    /// Returns the route that a CORS preflight asks about. The middleware of that route may answer,
    /// although no handler answers `OPTIONS`.
    fn preflighted_route(&self, request: &Request) -> Option<&CompiledRoute> {
        request.header("origin")?;
        let method = request.header("access-control-request-method")?;
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        match self.table.find(&method, request.path()) {
            Found::Route(number) => self.table.route(number),
            _ => None,
        }
    }
}

impl BuiltApp {
    /// Answers a request that no handler answers. Some middleware runs first and may answer
    /// instead: that of the route for a CORS preflight, and that of a guard for all paths below its
    /// prefix, so that strangers do not learn which routes there are.
    #[cold]
    fn route_unmatched(&self, request: Request, asked: &Asked, found: &Found<'_>) -> Response {
        let (route, path) = match found {
            Found::Options { .. } => (self.preflighted_route(&request), request.path()),
            Found::Redirect { path } => (None, path.as_str()),
            _ => (None, request.path()),
        };
        let Some(route) = route.or_else(|| self.table.guarding_route(path)) else {
            return unmatched_response(found, &request);
        };
        let context = Context { router: self, settings: &self.settings, route: Some(route), asked };
        Next { layers: Layers(&route.layers), context, end: End::Unmatched }.run(request)
    }
}

impl AppRouter for BuiltApp {
    fn route(&self, mut request: Request, asked: &Asked) -> Response {
        let is_planned = request.route().is_some();
        let number = match self.table.find_planned(&request) {
            Found::Route(number) => number,
            unmatched => return self.route_unmatched(request, asked, &unmatched),
        };
        let Some(route) = self.table.route(number) else {
            return Error::from_status(StatusCode::NOT_FOUND).into_pending_response();
        };
        let context = Context { router: self, settings: &self.settings, route: Some(route), asked };
        if route.options.refuses_content(&mut request, is_planned) {
            // The content is refused behind the middleware, which may refuse the client first, and
            // which adds the headers that a script in a browser needs to see the response. The body
            // is bounded, because the middleware must not read all of it.
            request.body_mut().bound(route.options.bytes_max().unwrap_or(u64::MAX));
            return Next { layers: Layers(&route.layers), context, end: End::TooLong }.run(request);
        }
        if route.layers.is_empty() {
            return context.handle(request);
        }
        Next { layers: Layers(&route.layers), context, end: End::Handler }.run(request)
    }

    fn route_again(&self, mut request: Request, context: Context<'_>) -> Response {
        let plans = self.special_plans.plans_method.iter();
        plans.for_each(|plans| plans.settle(&mut request));
        if request.route().is_none() {
            if let Some((_, options)) = self.route_of(request.method(), request.path()) {
                if let Some((permits, answer)) = options.late_permits() {
                    return answer(request, context, permits);
                }
            }
        }
        self.route(request, context.asked)
    }

    fn route_of(&self, method: &Method, path: &str) -> Option<(u32, &RouteOptions)> {
        let number = self.table.route_of(method, path)?;
        Some((number, &self.table.route(number)?.options))
    }

    fn answer_unmatched(&self, request: &Request) -> Response {
        unmatched_response(&self.table.find(request.method(), request.path()), request)
    }

    #[cfg(feature = "static-files")]
    fn normal_form_redirect(&self, path: &str) -> Option<String> {
        self.table.normal_form_redirect(path)
    }
}

impl fmt::Debug for BuiltApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltApp").field("table", &self.table).finish_non_exhaustive()
    }
}

/// Returns the response to a request that no handler answers.
fn unmatched_response(found: &Found<'_>, request: &Request) -> Response {
    let error = match found {
        Found::Options { allow } => return options_response(allow),
        Found::Redirect { path } => {
            let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
            let target = format!("{path}{query}");
            return empty_response(StatusCode::PERMANENT_REDIRECT, "location", &target);
        }
        Found::OtherMethods { allow } => {
            Error::from_status(StatusCode::METHOD_NOT_ALLOWED).with_known_header("allow", allow)
        }
        Found::Connect => {
            Error::new(StatusCode::NOT_IMPLEMENTED, "this server does not support `CONNECT`")
        }
        // A route is found here if middleware has changed the method.
        Found::Nothing | Found::Route(_) => Error::from_status(StatusCode::NOT_FOUND),
    };
    error.into_pending_response()
}

/// The response to `OPTIONS` (RFC 9110, 9.3.7).
fn options_response(allow: &str) -> Response {
    empty_response(StatusCode::NO_CONTENT, "allow", allow)
}

fn empty_response(status: StatusCode, name: &str, value: &str) -> Response {
    let mut response = Response::new(status);
    // The value is a list of methods or a path with its query, without control characters.
    let _ = response.set_header(name, value);
    response
}
