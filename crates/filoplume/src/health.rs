//! Handlers for the health checks of load balancers.

use filoplume_runtime::{Response, Stopping};

/// Answers `200` while the server serves, and `503` as soon as it begins to stop. A load balancer
/// that asks for it stops sending requests to a server that is about to stop, if the server has a
/// [`lame_duck`](crate::ServerConfig::lame_duck) time. Make its route
/// [vital](crate::Route::vital), so that it is answered under overload as well.
///
/// An app that depends on more than itself calls it from a handler of its own, after its checks.
///
/// ```
/// use filoplume::{health, prelude::*};
///
/// let app = App::new().route("/ready", get(health::readiness).vital());
/// app.test().get("/ready").send().assert_status(200).assert_text("ready\n");
/// ```
#[allow(clippy::needless_pass_by_value, reason = "extractors are owned")]
pub fn readiness(stopping: Stopping) -> Response {
    let (status, text) =
        if stopping.is_stopping() { (503, "stopping\n") } else { (200, "ready\n") };
    let mut response = Response::new(status);
    response.set_text(text);
    // Both the name and the value are valid.
    let _ = response.set_header("cache-control", "no-store");
    response
}
