//! The interface between the engine and the program: plan from the head, then call.

pub(crate) mod blocking_stream;
pub(crate) mod body;
pub(crate) mod cancel;
pub(crate) mod early_hints;
pub(crate) mod exchange;
pub(crate) mod file_body;
pub(crate) mod latch;
pub(crate) mod mailbox;
pub(crate) mod monitor;
pub(crate) mod panics;
pub mod pushed;
pub(crate) mod refused;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod status;
pub(crate) mod stopping;
pub(crate) mod stopwatch;
pub mod tcp;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::OnceLock;

use http::Extensions;

use crate::budget::permits::Permits;
use crate::config::ServerConfig;
use crate::execution::key::{Execution, ExecutionKey, NO_NUMBER, Route};
use crate::execution::stuck::report::Stuck;
use crate::service::exchange::Exchange;
use crate::service::monitor::Monitor;
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
    /// refused without it.
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
    /// A proxy carries the connections of many clients, so its own are not counted for a client:
    /// see [`connections_per_client_max`](crate::ServerConfig::connections_per_client_max). It must
    /// not block. `false` by default.
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
    /// Measured are all requests that ran on the pool, waited for a thread, were refused for lack
    /// of one, arrived in several pieces, or lost their event loop, and those whose
    /// [plan](Plan::timed) asks for it. Of the others about one in sixteen is selected:
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

/// How a request is handled: how its content is read, and where its handler runs.
///
/// ```
/// use filoplume_runtime::{Plan, Request, Response};
///
/// fn plan(request: &Request) -> Plan {
///     match request.path() {
///         "/upload" => Plan::new().streamed().content_bytes_max(1 << 30),
///         "/health" => Plan::new().on_loop(),
///         "/gone" => Plan::refuse(Response::new(410)),
///         _ => Plan::new(),
///     }
/// }
/// # let _: fn(&Request) -> Plan = plan;
/// ```
#[derive(Debug, Default)]
#[must_use]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are wishes that do not depend on each other"
)]
pub struct Plan {
    pub(crate) content: Content,
    pub(crate) content_bytes_max: Option<u64>,
    pub(crate) buffered_content_bytes_max: Option<u64>,
    pub(crate) execution: Execution,
    pub(crate) route: Option<u32>,
    pub(crate) permits: Option<Permits>,
    pub(crate) is_vital: bool,
    pub(crate) is_cancellable: bool,
    pub(crate) sends_hints: bool,
    pub(crate) is_timed: bool,
}

/// How the content of a request is read.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// A short content is collected. For a long one the handler starts when the first part is
    /// there.
    #[default]
    Any,
    Buffered,
    Streamed,
    /// A short content is collected. A long one waits in a file until it is complete.
    #[cfg(feature = "spool")]
    Spooled,
    /// The content is not read. This is the response.
    Refused(Box<Response>),
}

impl Plan {
    /// Returns the key under which the execution policy knows a request with this plan.
    #[inline(always)]
    pub(crate) fn route_of(&self, request: &Request) -> Route {
        let key = match self.route {
            Some(number) => ExecutionKey::numbered(number),
            None => ExecutionKey::of_path(request.path()),
        };
        let number = self.route.unwrap_or(NO_NUMBER);
        Route { key, execution: self.execution, is_vital: self.is_vital, number }
    }

    /// Returns the default plan: a short content is collected, a long one is streamed, and the
    /// engine measures whether the handler blocks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a plan that leaves the content unread and answers with `response` at once.
    pub fn refuse(response: Response) -> Self {
        Self { content: Content::Refused(Box::new(response)), ..Self::default() }
    }

    /// Collects the content before the handler runs. A content over the bound is answered with
    /// `413`.
    pub fn buffered(mut self) -> Self {
        self.content = Content::Buffered;
        self
    }

    /// Runs the handler at once on a thread of the pool. The handler reads the content as it
    /// arrives.
    pub fn streamed(mut self) -> Self {
        self.content = Content::Streamed;
        self
    }

    /// Calls the handler when the whole content is there. What is longer than the
    /// [bound](crate::ServerConfig::buffered_content_bytes_max) for memory waits in a
    /// [file](crate::ServerConfig::spool_folder), and the handler reads it from there. So a slow
    /// peer holds no thread, however long its content is. The price is that long contents are
    /// written twice if the handler stores them.
    ///
    /// ```
    /// use filoplume_runtime::Plan;
    ///
    /// let plan = Plan::new().spooled().content_bytes_max(1 << 30);
    /// # let _ = plan;
    /// ```
    #[cfg(feature = "spool")]
    pub fn spooled(mut self) -> Self {
        self.content = Content::Spooled;
        self
    }

    /// Sets the longest content accepted for this request, instead of the server's bound.
    pub fn content_bytes_max(mut self, bytes: u64) -> Self {
        self.content_bytes_max = Some(bytes);
        self
    }

    /// Sets the longest content of this request that is collected before the handler runs, instead
    /// of the [server's bound](crate::ServerConfig::buffered_content_bytes_max). Use it for
    /// handlers that need the whole content: a slow peer then holds no thread.
    pub fn buffered_content_bytes_max(mut self, bytes: u64) -> Self {
        self.buffered_content_bytes_max = Some(bytes);
        self
    }

    /// Runs the handler on the event loop, whatever the engine has measured. It still delays no
    /// other connection for long: if the handler does not return, another thread takes over the
    /// loop.
    pub fn on_loop(mut self) -> Self {
        self.execution = Execution::Inline;
        self
    }

    /// Runs the handler on a thread of the pool, whatever the engine has measured.
    pub fn on_pool(mut self) -> Self {
        self.execution = Execution::Dispatched;
        self
    }

    /// Sets the number of the route. The engine keeps its measurements per route, and the call
    /// finds the number in [`Request::route`]. Without a number the engine uses the path, in which
    /// all segments with a digit count as equal. That costs a little more.
    pub fn route(mut self, number: u32) -> Self {
        self.route = Some(number);
        self
    }

    /// Calls the handler when one of these permits is free, and releases the permit when the
    /// handler has returned. Requests wait in the queue of their route without a thread, for
    /// [`queue_timeout`](crate::ServerConfig::queue_timeout) at most. A request uses one kind of
    /// permit: the last call counts.
    ///
    /// ```
    /// use filoplume_runtime::{Permits, Plan};
    ///
    /// let database = Permits::new("database", 16);
    /// let plan = Plan::new().uses(&database);
    /// # let _ = plan;
    /// ```
    pub fn uses(mut self, permits: &Permits) -> Self {
        self.permits = Some(permits.clone());
        self
    }

    /// Runs the handler even if other routes use all threads. Use it for requests that must be
    /// answered under overload, such as health checks. Eight threads are reserved for them, of
    /// which one counted client gets four. Further ones at the same time are handled like other
    /// requests, and so are requests that [use](Self::uses) permits.
    ///
    /// ```
    /// use filoplume_runtime::Plan;
    ///
    /// let plan = Plan::new().vital();
    /// # let _ = plan;
    /// ```
    pub fn vital(mut self) -> Self {
        self.is_vital = true;
        self
    }

    /// Lets the handler learn that its client has gone: see [`Cancel`](crate::Cancel). The call
    /// finds it in [`Request::cancel`].
    ///
    /// ```
    /// use filoplume_runtime::Plan;
    ///
    /// let plan = Plan::new().cancellable();
    /// # let _ = plan;
    /// ```
    pub fn cancellable(mut self) -> Self {
        self.is_cancellable = true;
        self
    }

    /// Lets the handler send interim responses: see [`EarlyHints`](crate::EarlyHints). The call
    /// finds it in [`Request::early_hints`].
    ///
    /// ```
    /// use filoplume_runtime::Plan;
    ///
    /// let plan = Plan::new().early_hints();
    /// # let _ = plan;
    /// ```
    pub fn early_hints(mut self) -> Self {
        self.sends_hints = true;
        self
    }

    /// Measures this request exactly, whether or not it would be selected as a sample. The service
    /// must [measure](Service::measures). It costs about four system calls.
    ///
    /// ```
    /// use filoplume_runtime::Plan;
    ///
    /// let plan = Plan::new().timed();
    /// # let _ = plan;
    /// ```
    pub fn timed(mut self) -> Self {
        self.is_timed = true;
        self
    }
}

/// Returns a shared empty map, for requests and responses without extensions.
fn no_extensions() -> &'static Extensions {
    static NONE: OnceLock<Extensions> = OnceLock::new();
    NONE.get_or_init(Extensions::new)
}
