//! A deadline that handlers can check.

use std::fmt;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, Response, StatusCode};

use crate::core::context::Context;
use crate::core::error::{Error, Result};
use crate::core::extract::FromRequest;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::extract::{Extension, ExtensionRejection};

/// Gives each request a time budget. Handlers take a [`TimeLeft`] to see how much of it is left.
///
/// A handler is a plain function on a thread. Rust cannot stop it from outside without leaving
/// locks held and work half done. So **this does not end handlers**. It sets a deadline, and code
/// that may take long checks it: between two steps with [`TimeLeft::check`], or as the timeout of
/// its own query or request with [`TimeLeft::remaining`]. A handler that never checks is not
/// interrupted, and the client waits for it. Slow *clients* are limited by the server's timeouts,
/// see [`ServerConfig`](crate::ServerConfig).
///
/// ```
/// use filoplume::middleware::TimeLeft;
/// use filoplume::prelude::*;
/// use std::time::Duration;
///
/// fn report(time: TimeLeft) -> Result<String> {
///     let mut lines = 0;
///     for _month in 1..=12 {
///         time.check()?; // 503 if the time is over
///         // database.query(.., timeout = time.remaining())
///         lines += 1;
///     }
///     Ok(format!("{lines} lines"))
/// }
///
/// let app = App::new()
///     .get("/report", report)
///     .with(middleware::TimeoutBudget::new(Duration::from_secs(5)));
/// app.test().get("/report").send().assert_text("12 lines");
/// ```
///
/// The time starts when the request reaches this middleware. Time that the request waited before,
/// in the server's queue or at a proxy, is counted only if [`already_spent`](Self::already_spent)
/// returns it. If there are two budgets, the one that ends first counts.
#[doc(alias("TimeoutLayer"))]
pub struct TimeoutBudget {
    duration: Duration,
    status: StatusCode,
    refuses_late: bool,
    spent: Option<Spent>,
}

/// Returns how much time was spent on a request before it got here.
type Spent = Box<dyn Fn(&Request) -> Option<Duration> + Send + Sync>;

/// The time that is left to answer a request, from [`TimeoutBudget`]. It is `Copy` and can be
/// passed on. If a handler takes it without a budget, the app does not start.
///
/// ```
/// use filoplume::middleware::{TimeLeft, TimeoutBudget};
/// use filoplume::prelude::*;
/// use std::time::Duration;
///
/// let app = App::new()
///     .get("/", |time: TimeLeft| -> Result<String> {
///         time.check()?;
///         Ok(format!("{} s at most", time.remaining().as_secs() + 1))
///     })
///     .with(TimeoutBudget::new(Duration::from_secs(5)));
/// app.test().get("/").send().assert_text("5 s at most");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TimeLeft {
    /// `None` if the deadline is later than the clock can express.
    deadline: Option<Instant>,
    status: StatusCode,
}

impl TimeoutBudget {
    /// Returns middleware that gives each request this much time.
    pub fn new(duration: Duration) -> Self {
        Self { duration, status: StatusCode::SERVICE_UNAVAILABLE, refuses_late: false, spent: None }
    }

    /// Answers `504` instead of `503` when the time is over, for a server that waits for other
    /// servers (RFC 9110, 15.6.5).
    #[must_use]
    pub fn as_gateway(mut self) -> Self {
        self.status = StatusCode::GATEWAY_TIMEOUT;
        self
    }

    /// Replaces a response that is ready too late with a `503`. The work has been done by then, and
    /// its effects stay. This is for clients that must not use a late response. Default: no.
    #[must_use]
    pub fn refuse_late(mut self, refuses_late: bool) -> Self {
        self.refuses_late = refuses_late;
        self
    }

    /// Sets how much of the time was spent before the request got here, for example from a header
    /// with its start time that a trusted proxy sets. If the time is already over, the request is
    /// refused without calling the handler.
    #[must_use]
    pub fn already_spent(
        mut self,
        spent: impl Fn(&Request) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.spent = Some(Box::new(spent));
        self
    }

    fn time_left(&self, request: &Request, now: Instant) -> TimeLeft {
        let spent = self.spent.as_ref().and_then(|spent| spent(request)).unwrap_or_default();
        let mut deadline = now.checked_add(self.duration.saturating_sub(spent));
        if let Some(TimeLeft { deadline: Some(outer), .. }) = TimeLeft::of(request) {
            deadline = Some(deadline.map_or(outer, |deadline| deadline.min(outer)));
        }
        TimeLeft { deadline, status: self.status }
    }
}

impl Middleware for TimeoutBudget {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let time = self.time_left(&request, Instant::now());
        time.check()?;
        request.extensions_mut().insert(time);
        let response = next.run(request);
        // An error response is kept even if it is late, because it says more than that.
        if self.refuses_late && Error::of(&response).is_none() {
            time.check()?;
        }
        Ok(response)
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<TimeLeft>();
        if self.duration.is_zero() {
            options.mistake("TimeoutBudget: a duration of zero leaves no time for any request");
        }
    }
}

impl fmt::Debug for TimeoutBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeoutBudget").field("duration", &self.duration).finish_non_exhaustive()
    }
}

impl TimeLeft {
    /// Returns the time that is left for a request, or `None` if no budget was set. For middleware
    /// and extractors.
    ///
    /// ```
    /// use filoplume::middleware::{TimeLeft, TimeoutBudget};
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let app = App::new()
    ///     .get("/", || "hi")
    ///     .with(TimeoutBudget::new(Duration::from_secs(5)))
    ///     .with(|request: Request, next: Next| {
    ///         let time = TimeLeft::of(&request).map(|time| time.remaining());
    ///         assert!(time.is_some_and(|time| time <= Duration::from_secs(5)));
    ///         next.run(request)
    ///     });
    /// app.test().get("/").send().assert_status(200);
    /// ```
    pub fn of(request: &Request) -> Option<Self> {
        request.extensions().get().copied()
    }

    /// Returns how much time is left; zero if it is over.
    pub fn remaining(&self) -> Duration {
        match self.deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        }
    }

    /// Returns whether the time is over.
    pub fn is_over(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Returns an error if the time is over.
    ///
    /// # Errors
    ///
    /// A `503`, or `504` [as a gateway](TimeoutBudget::as_gateway), if nothing is left.
    pub fn check(&self) -> Result<()> {
        if self.is_over() {
            return Err(Error::new(self.status, "there was not enough time to answer"));
        }
        Ok(())
    }
}

impl FromRequest for TimeLeft {
    type Rejection = ExtensionRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, ExtensionRejection> {
        Extension::from_request(request, context).map(|Extension(time)| time)
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>(
            "it takes a `TimeLeft`, and requests have no deadline: add \
             `.with(middleware::TimeoutBudget::new(..))` to the app",
        );
    }
}
