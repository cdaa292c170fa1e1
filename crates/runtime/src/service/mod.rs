//! The interface between the engine and the program: plan from the head, then call.

pub(crate) mod blocking_stream;
pub(crate) mod body;
pub(crate) mod cancel;
pub(crate) mod early_hints;
pub(crate) mod exchange;
pub(crate) mod file_body;
pub(crate) mod held_memory;
pub(crate) mod incomplete;
pub(crate) mod latch;
pub(crate) mod mailbox;
pub(crate) mod monitor;
pub(crate) mod panics;
pub(crate) mod plan;
pub mod pushed;
pub(crate) mod refused;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod status;
pub(crate) mod stopping;
pub(crate) mod stopwatch;
pub mod tcp;
pub(crate) mod turn;
pub(crate) mod upgrade;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;

use http::Extensions;

use crate::config::ServerConfig;
use crate::execution::stuck::report::Stuck;
use crate::service::exchange::Exchange;
use crate::service::incomplete::Incomplete;
use crate::service::monitor::Monitor;
pub(crate) use crate::service::plan::Content;
pub use crate::service::plan::Plan;
use crate::service::refused::Refused;
use crate::service::request::Request;
use crate::service::response::Response;
use crate::service::stopping::Stopping;

/// A handler of requests.
///
/// Every `Fn(Request) -> impl Into<Response>` is a service. Frameworks implement the trait to
/// decide from the head alone, before any content is read.
///
/// ```
/// use filoplume_runtime::{Plan, Request, Response, Service};
///
/// struct Uploads;
///
/// impl Service for Uploads {
///     fn plan(&self, request: &mut Request) -> Plan {
///         match request.path() {
///             "/upload" => Plan::new().streamed(),
///             "/ping" => Plan::new().on_loop(),
///             _ => Plan::refuse(Response::new(404)),
///         }
///     }
///
///     fn call(&self, mut request: Request) -> Response {
///         let mut response = Response::default();
///         match std::io::copy(request.body_mut(), &mut std::io::sink()) {
///             Ok(length) => response.set_text(format!("{length} bytes")),
///             Err(_) => response.set_status(400),
///         };
///         response
///     }
/// }
/// ```
pub trait Service: Send + Sync + 'static {
    /// Decides how to handle a request from its head, before any content is read. Runs on the event
    /// loop, so it must not block. Extensions that it adds to the request are available to
    /// [`call`](Self::call).
    fn plan(&self, request: &mut Request) -> Plan {
        let _ = request;
        Plan::default()
    }

    /// Returns whether [`plan`](Self::plan) is implemented. A service without a plan of its own,
    /// such as a closure, returns `false` and saves one call per request.
    fn plans(&self) -> bool {
        true
    }

    /// Returns the display name of a route, such as `GET /users/{id}`, for
    /// [`Metrics::routes`](crate::Metrics::routes). With `None`, the default, the route's number is
    /// shown.
    fn route_name(&self, route: u32) -> Option<String> {
        let _ = route;
        None
    }

    /// Returns the configuration to serve this service with. Called once, when the server starts. A
    /// configuration that is given to the [builder](crate::ServerBuilder::config) replaces it.
    fn config(&self) -> Option<ServerConfig> {
        None
    }

    /// Returns the response to send in place of an empty `503` when the engine refuses a request
    /// because no thread, permit or memory is available in time. The engine sets the status and
    /// `Retry-After`, whatever the response contains. A body from a reader is dropped. `None` by
    /// default.
    ///
    /// Runs on the event loop, under overload, possibly for every request: it must not block and
    /// should be cheap. A panic is contained. Malformed requests and requests that time out are
    /// refused without it: see [`incomplete`](Self::incomplete).
    ///
    /// ```
    /// use filoplume_runtime::{Refused, Request, Response, Service};
    ///
    /// struct Shop;
    ///
    /// impl Service for Shop {
    ///     fn call(&self, _: Request) -> Response {
    ///         Response::from("sold")
    ///     }
    ///
    ///     fn refused(&self, _: &Request, _: &Refused<'_>) -> Option<Response> {
    ///         Some(Response::from("The shop is crowded: please come back later."))
    ///     }
    /// }
    /// ```
    fn refused(&self, request: &Request, refused: &Refused<'_>) -> Option<Response> {
        let _ = (request, refused);
        None
    }

    /// Called when the engine has refused a request by itself before it was complete: it is
    /// malformed, exceeds a limit, did not arrive in time, or came without TLS to an address that
    /// expects it. No handler sees it, so this is where it can be logged. Does nothing by default.
    ///
    /// Runs on the event loop, possibly for each connection of a flood: it must not block and
    /// should be cheap. A panic is contained.
    fn incomplete(&self, incomplete: &Incomplete<'_>) {
        let _ = incomplete;
    }

    /// Called when a response was cut short because the reader of its body failed or ended early.
    /// The status was sent before that, so the peer notices only that the connection is closed.
    /// `route` is the [name of the route](Self::route_name). The default writes a warning to the
    /// log.
    fn body_failed(&self, route: Option<&str>, error: &io::Error) {
        warn_of_failed_body(route, error);
    }

    /// Called when a handler has been running for longer than its route ever did, once per call,
    /// and again when that call ends. The default writes a warning to the log. Runs on a thread of
    /// its own, and may block: until it returns, nothing else is reported. A panic is contained.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response, Service, Stuck};
    ///
    /// struct Shop;
    ///
    /// impl Service for Shop {
    ///     fn call(&self, _: Request) -> Response {
    ///         Response::from("sold")
    ///     }
    ///
    ///     fn stuck(&self, stuck: &Stuck) {
    ///         eprintln!("{stuck}");
    ///     }
    /// }
    /// ```
    fn stuck(&self, stuck: &Stuck) {
        stuck.warn();
    }

    /// Returns whether this address belongs to a proxy that the service trusts to name its clients.
    /// A proxy carries the connections of many clients, so its connections are not counted for a
    /// client: see [`connections_per_client_max`](crate::ServerConfig::connections_per_client_max).
    /// It must not block. `false` by default.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response, Service};
    /// use std::net::IpAddr;
    ///
    /// struct Site {
    ///     edges: Vec<IpAddr>,
    /// }
    ///
    /// impl Service for Site {
    ///     fn call(&self, _: Request) -> Response {
    ///         Response::from("Hello!")
    ///     }
    ///
    ///     fn is_proxy(&self, address: IpAddr) -> bool {
    ///         self.edges.contains(&address.to_canonical())
    ///     }
    /// }
    /// ```
    fn is_proxy(&self, address: IpAddr) -> bool {
        let _ = address;
        false
    }

    /// Returns the client of a request that came from a [proxy](Self::is_proxy) or over a Unix
    /// socket, if the service trusts what the request says. What the request holds then counts for
    /// this client: threads, permits, memory and the like, of which each client leaves some to
    /// others. It is called for each such request and must not block. `None` by default: the
    /// request counts for nobody.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response, Service};
    /// use std::net::IpAddr;
    ///
    /// struct Site;
    ///
    /// impl Service for Site {
    ///     fn call(&self, _: Request) -> Response {
    ///         Response::from("Hello!")
    ///     }
    ///
    ///     fn is_proxy(&self, address: IpAddr) -> bool {
    ///         address.is_loopback()
    ///     }
    ///
    ///     /// The proxy on this machine sets the header, and removes that of the client.
    ///     fn client(&self, request: &Request) -> Option<IpAddr> {
    ///         request.header("x-real-ip")?.parse().ok()
    ///     }
    /// }
    /// ```
    fn client(&self, request: &Request) -> Option<IpAddr> {
        let _ = request;
        None
    }

    /// Returns the service's own token, which is set when its server begins to stop. It is for
    /// services that pass it on to handlers. Called once, when the server starts.
    /// [`Server::stopping`](crate::Server::stopping) is the server's token. `None` by default.
    fn stopping(&self) -> Option<Stopping> {
        None
    }

    /// Called once, before the server accepts its first connection. The monitor reads the metrics
    /// of the server later on. Does nothing by default.
    fn started(&self, monitor: &Monitor) {
        let _ = monitor;
    }

    /// Called when the server has stopped, before [`Server::serve`](crate::Server::serve) and
    /// [`Server::wait`](crate::Server::wait) return. Requests are finished, except those that
    /// exceeded the [drain timeout](crate::ServerConfig::drain_timeout). It may block. Does nothing
    /// by default.
    fn stopped(&self) {}

    /// Returns whether the engine calls [`answered`](Self::answered) and
    /// [`completed`](Self::completed) for the exchanges that it measures. Called once, when the
    /// server starts. `false` by default: then nothing is measured for them.
    ///
    /// The engine measures all requests that ran on the pool, waited for a thread, were refused for
    /// lack of one, arrived in several pieces, or lost their event loop, and those whose
    /// [plan](Plan::timed) asks for it. Of the others it selects about one in sixteen:
    /// [`Exchange::stands_for`] says how many requests it stands for. Requests that the program
    /// [pulls](crate::Incoming) are not measured.
    fn measures(&self) -> bool {
        false
    }

    /// Called for a measured exchange when its response is known and not yet sent. It may change
    /// the response. What it stores in [`Exchange::note`] is there in
    /// [`completed`](Self::completed).
    ///
    /// Runs where the handler ran: it must not block. A panic is contained.
    fn answered(&self, response: &mut Response, exchange: &mut Exchange) {
        let _ = (response, exchange);
    }

    /// Called for a measured exchange when its response was written, or its connection has failed.
    ///
    /// Runs on the event loop or on a thread of the pool: it must not block. A panic is contained.
    fn completed(&self, exchange: &Exchange) {
        let _ = exchange;
    }

    /// Handles the request and returns its response. It may block for as long as it likes without
    /// delaying other requests.
    fn call(&self, request: Request) -> Response;
}

pub(crate) fn warn_of_failed_body(route: Option<&str>, error: &io::Error) {
    tracing::warn!(route, %error, "the reader of a response body failed");
}

impl<F, R> Service for F
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Into<Response>,
{
    fn plans(&self) -> bool {
        false
    }

    #[inline]
    fn call(&self, request: Request) -> Response {
        self(request).into()
    }
}

/// An HTTP service, with the results of [`Service::plans`] and [`Service::measures`].
pub(crate) struct Site {
    pub(crate) service: Box<dyn Service>,
    pub(crate) plans: bool,
    pub(crate) measures: bool,
}

impl Site {
    pub(crate) fn new(service: impl Service) -> Self {
        let (plans, measures) = (service.plans(), service.measures());
        Self { service: Box::new(service), plans, measures }
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("plans", &self.plans).finish_non_exhaustive()
    }
}

/// Returns a shared empty map, for requests and responses without extensions.
fn no_extensions() -> &'static Extensions {
    static NONE: OnceLock<Extensions> = OnceLock::new();
    NONE.get_or_init(Extensions::new)
}
