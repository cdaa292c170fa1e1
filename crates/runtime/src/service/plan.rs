//! The plan of a request, made from its head.

use crate::budget::permits::Permits;
use crate::execution::key::{Execution, ExecutionKey, NO_NUMBER, Route};
use crate::service::request::Request;
use crate::service::response::Response;

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
    pub(crate) holds_memory: bool,
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
    /// must [measure](crate::Service::measures). It costs about four system calls.
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

    /// Lets the handler count memory that it needs for a request with a content: see
    /// [`Request::hold_memory`]. Also tells its client to [`Request::compute_in_turn`].
    pub fn holds_memory(mut self) -> Self {
        self.holds_memory = true;
        self
    }
}
