//! Requests whose method middleware changes.
//!
//! A plan says what a request needs before it is called: permits, memory, a thread. It is made from
//! the head, before any middleware runs. Middleware that changes methods by a rule
//! [plans](PlansMethod) what it will do. For all other changes, the permits of the new route are
//! taken when the route is known.

use std::fmt;
use std::time::Duration;

use filoplume_runtime::{Method, Permits, Plan, Request, Response};

use super::app_router::AppRouter;
use super::context::Context;
use super::error::Error;

/// How long a thread waits for a permit. This is the default of
/// [`queue_timeout`](filoplume_runtime::ServerConfig::queue_timeout).
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Middleware of the app that changes the method of some requests, depending on their heads. All
/// code for this is behind this trait, so that programs without such middleware do not contain it.
pub(crate) trait PlansMethod: fmt::Debug + Send + Sync {
    /// Returns the plan for a request. `plan` is the one for the method that the client sent.
    fn plan(&self, request: &mut Request, plan: Plan, router: &dyn AppRouter) -> Plan;

    /// Called when the middleware of the app has run. Lets the request be routed again if it was
    /// planned for another method, and that method was not set.
    fn settle(&self, request: &mut Request) {
        let planned = request.extensions().get::<PlannedMethod>();
        if planned.is_some_and(|planned| planned.0 != *request.method()) {
            let method = request.method().clone();
            // Removes the number of the route.
            request.set_method(method);
        }
    }
}

/// The method that a request was planned for, if the client sent another one.
#[derive(Clone)]
pub(crate) struct PlannedMethod(pub(crate) Method);

/// The permits that a request was planned with, if they are not those of the planned route.
#[derive(Clone)]
pub(crate) struct PlannedPermits(pub(crate) Permits);

/// Answers a request of a route with permits: see [`answer_with_permit`].
pub(crate) type AnswerWithPermit = fn(Request, Context<'_>, &Permits) -> Response;

/// Takes a permit of the route, unless the plan has taken one, and answers the request. The context
/// is that of the app's middleware, so its route is the one that was planned. This thread waits,
/// and the permit counts for no client, because only the engine knows which one it is.
pub(crate) fn answer_with_permit(
    request: Request,
    context: Context<'_>,
    permits: &Permits,
) -> Response {
    let of_route = context.route.and_then(|route| route.options.permits());
    let of_plan = request.extensions().get().map(|PlannedPermits(permits)| permits);
    if of_plan.or(of_route) == Some(permits) {
        return context.router.route(request, context.asked);
    }
    let Some(_permit) = permits.take(PERMIT_TIMEOUT) else {
        let name = permits.name();
        return context.pending(Error::unavailable("the server is busy").with_source(format!(
            "no permit \"{name}\" was free in time for a request whose method was changed"
        )));
    };
    // A slow peer must not keep the permit from others.
    let scarce = permits.clone();
    request.press_content_when(move || scarce.available() == 0);
    context.router.route(request, context.asked)
}
