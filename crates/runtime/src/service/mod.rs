//! The contract between the engine and what runs on it: plan from the head, then call.

pub(crate) mod blocking_stream;
pub(crate) mod body;
pub(crate) mod panics;
pub(crate) mod refused;
pub(crate) mod request;
pub(crate) mod response;
pub mod tcp;

use std::fmt;
use std::io;
use std::sync::OnceLock;

use http::Extensions;

use crate::budget::permits::Permits;
use crate::config::ServerConfig;
use crate::execution::key::{Execution, ExecutionKey, Route};
use crate::service::refused::Refused;
use crate::service::request::Request;
use crate::service::response::Response;

/// What answers requests.
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
///             "/ping" => Plan::new().inline(),
///             _ => Plan::refuse(Response::new(404)),
///         }
///     }
///
///     fn call(&self, mut request: Request) -> Response {
///         let mut response = Response::default();
///         match std::io::copy(request.body_mut(), &mut std::io::sink()) {
///             Ok(length) => response.send_text(format!("{length} bytes")),
///             Err(_) => response.status(400),
///         };
///         response
///     }
/// }
/// ```
pub trait Service: Send + Sync + 'static {
    /// Decides what becomes of a request whose head is complete and whose content was not read.
    /// Runs on the event loop: it must not block. What it puts into the request's extensions is
    /// there when [`call`](Self::call) gets it.
    fn plan(&self, request: &mut Request) -> Plan {
        let _ = request;
        Plan::default()
    }

    /// Returns whether [`plan`](Self::plan) has anything to say. A service without a plan of its
    /// own, as every closure is, saves a call a request by saying `false`.
    fn plans(&self) -> bool {
        true
    }

    /// Returns what a route is called where people read it, such as `GET /users/{id}`: in
    /// [`Metrics::routes`](crate::Metrics::routes). `None` by default; then its number is shown.
    fn route_name(&self, route: u32) -> Option<String> {
        let _ = route;
        None
    }

    /// Returns the configuration that the service wants to be served with. Called once, when the
    /// server starts. A configuration that was given to the [builder](crate::ServerBuilder::config)
    /// replaces it.
    fn config(&self) -> Option<ServerConfig> {
        None
    }

    /// Returns what the client is told in place of an empty `503`, if the engine refuses a request
    /// because no thread or permit would be free in time, or no memory. The status and
    /// `Retry-After` are the engine's, whatever the response says, and a body from a reader is left
    /// out. `None` by default.
    ///
    /// Runs on the event loop, under overload, perhaps for every request: it must not block, and
    /// should not compute. A panic is contained. Requests that are malformed or late are refused
    /// without it.
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

    /// Is told that a response was broken off because the reader of its body failed or ended early.
    /// The status was sent before that, so the peer learns it from the connection, which is closed.
    /// `route` is what it [is called](Self::route_name). Writes a warning to the log unless the
    /// service has more to say.
    fn body_failed(&self, route: Option<&str>, error: &io::Error) {
        warn_of_failed_body(route, error);
    }

    /// Answers the request. May block for as long as it likes: nobody else waits for it.
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

/// A service over HTTP, and whether it plans.
pub(crate) struct Site {
    pub(crate) service: Box<dyn Service>,
    pub(crate) plans: bool,
}

impl Site {
    pub(crate) fn new(service: impl Service) -> Self {
        let plans = service.plans();
        Self { service: Box::new(service), plans }
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("plans", &self.plans).finish_non_exhaustive()
    }
}

/// What becomes of a request: how its content is taken, and where its handler runs.
///
/// ```
/// use filoplume_runtime::{Plan, Request, Response};
///
/// fn plan(request: &Request) -> Plan {
///     match request.path() {
///         "/upload" => Plan::new().streamed().content_bytes_max(1 << 30),
///         "/health" => Plan::new().inline(),
///         "/gone" => Plan::refuse(Response::new(410)),
///         _ => Plan::new(),
///     }
/// }
/// # let _: fn(&Request) -> Plan = plan;
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Plan {
    pub(crate) content: Content,
    pub(crate) content_bytes_max: Option<u64>,
    pub(crate) buffered_content_bytes_max: Option<u64>,
    pub(crate) execution: Execution,
    pub(crate) route: Option<u32>,
    pub(crate) permits: Option<Permits>,
    pub(crate) is_vital: bool,
}

/// How the content of a request is taken.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// Collected if it is short; if it is long the handler starts when some of it is there.
    #[default]
    Any,
    Buffered,
    Streamed,
    /// Not at all: this is the answer.
    Refused(Box<Response>),
}

impl Plan {
    /// The route of a request with this plan.
    #[inline(always)]
    pub(crate) fn route_of(&self, request: &Request) -> Route {
        let key = match self.route {
            Some(number) => ExecutionKey::numbered(number),
            None => ExecutionKey::of_path(request.path()),
        };
        Route { key, execution: self.execution, is_vital: self.is_vital }
    }

    /// Returns the plan that suits most: a short content is collected, a long one streamed, and
    /// the engine learns whether the handler blocks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the plan not to read the content, and to answer with `response` at once.
    pub fn refuse(response: Response) -> Self {
        Self { content: Content::Refused(Box::new(response)), ..Self::default() }
    }

    /// Collects the content before the handler runs; one over the bound is answered `413`.
    pub fn buffered(mut self) -> Self {
        self.content = Content::Buffered;
        self
    }

    /// Runs the handler at once, on a thread of the pool, and lets it read the content as it
    /// arrives.
    pub fn streamed(mut self) -> Self {
        self.content = Content::Streamed;
        self
    }

    /// Sets the longest content for this request instead of the server's bound.
    pub fn content_bytes_max(mut self, bytes: u64) -> Self {
        self.content_bytes_max = Some(bytes);
        self
    }

    /// Sets the longest content of this request that is collected before the handler runs, instead
    /// of the [server's bound](crate::ServerConfig::buffered_content_bytes_max): for handlers that
    /// want all of it. A slow peer holds no thread then.
    pub fn buffered_content_bytes_max(mut self, bytes: u64) -> Self {
        self.buffered_content_bytes_max = Some(bytes);
        self
    }

    /// Runs the handler on the event loop whatever was learned. It still stalls nobody: a loop is
    /// taken from a handler that does not return.
    pub fn inline(mut self) -> Self {
        self.execution = Execution::Inline;
        self
    }

    /// Runs the handler on a thread of the pool whatever was learned.
    pub fn dispatched(mut self) -> Self {
        self.execution = Execution::Dispatched;
        self
    }

    /// Names the route for which the engine learns, and which the call finds in [`Request::route`].
    /// Without a number the engine goes by the path, where segments with a digit count as one,
    /// which costs a little more.
    pub fn route(mut self, number: u32) -> Self {
        self.route = Some(number);
        self
    }

    /// Calls the handler when one of these permits is free, and gives it back when the handler has
    /// returned. Requests wait in the line of their route without a thread, for
    /// [`queue_timeout`](crate::ServerConfig::queue_timeout) at most. A request uses one kind of
    /// permits: the last call counts.
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

    /// Runs the handler even if other routes have all threads, for what must be answered then, such
    /// as whether the server is alive. Eight threads are kept for such requests; more of them at
    /// once are taken like others, and so is one that [uses](Self::uses) permits.
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
}

/// What nobody has put anything into.
fn no_extensions() -> &'static Extensions {
    static NONE: OnceLock<Extensions> = OnceLock::new();
    NONE.get_or_init(Extensions::new)
}
