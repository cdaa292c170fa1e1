//! What the engine promises to the requests of a route.

use filoplume_runtime::{Plan, Request};

use super::RouteOptions;
#[cfg(feature = "json")]
use crate::core::json_memory::COUNTED_BYTES_MIN;

/// What the engine promises to the requests of a route.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they do not depend on each other")]
pub(super) struct Promises {
    /// They are answered even if other routes occupy all threads.
    pub(super) is_vital: bool,
    /// Their handlers learn that the client has gone.
    is_cancellable: bool,
    /// Their handlers send interim responses.
    sends_hints: bool,
    /// They are measured exactly.
    is_timed: bool,
    /// Their content waits in a file until it is complete.
    #[cfg(feature = "spool")]
    pub(super) is_spooled: bool,
    /// A long content becomes a value whose memory is counted.
    #[cfg(feature = "json")]
    counts_value: bool,
}

impl Promises {
    /// Returns the plan with these promises, except that of a spooled content.
    #[inline]
    pub(super) fn apply(self, plan: Plan) -> Plan {
        let mut plan = plan;
        if self.is_vital {
            plan = plan.vital();
        }
        if self.is_cancellable {
            plan = plan.cancellable();
        }
        if self.sends_hints {
            plan = plan.early_hints();
        }
        if self.is_timed {
            plan = plan.timed();
        }
        plan
    }

    /// Returns whether the memory of the value that the content becomes is counted.
    #[cfg(feature = "json")]
    pub(super) fn counts_value(self, request: &Request) -> bool {
        let is_long = |length| length >= COUNTED_BYTES_MIN as u64;
        self.counts_value && request.content_length().is_none_or(is_long)
    }

    #[cfg(not(feature = "json"))]
    pub(super) const fn counts_value(self, _: &Request) -> bool {
        false
    }
}

impl RouteOptions {
    /// Runs the handler even if other routes occupy all threads: see
    /// [`Route::vital`](crate::Route::vital). A vital route that [uses](Self::uses) permits is a
    /// mistake: it would wait for the requests that hold them.
    pub fn vital(&mut self) -> &mut Self {
        self.promises.is_vital = true;
        self
    }

    /// Lets the handler learn that its client has gone: see [`Cancel`](crate::Cancel). Middleware
    /// that uses [`Request::cancel`](crate::Request::cancel) sets this.
    pub fn cancellable(&mut self) -> &mut Self {
        self.promises.is_cancellable = true;
        self
    }

    /// Calls the handler when the whole content is there, and lets a long one wait in a file: see
    /// [`Route::spooled`](crate::Route::spooled).
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().route("/", post(|text: String| text).spooled());
    /// let error = app.build().unwrap_err();
    /// assert!(format!("{error:?}").contains("collects the content in memory"));
    /// ```
    #[cfg(feature = "spool")]
    #[cfg_attr(docsrs, doc(cfg(feature = "spool")))]
    pub fn spooled(&mut self) -> &mut Self {
        self.promises.is_spooled = true;
        self
    }

    /// Counts the memory of the value that a long content becomes.
    #[cfg(feature = "json")]
    pub(crate) fn count_value(&mut self) {
        self.promises.counts_value = true;
    }

    /// Counts and measures the requests of the app, for [`Observed`](crate::extract::Observed).
    pub(crate) fn observe(&mut self) -> &mut Self {
        self.is_observed = true;
        self
    }

    /// Measures all requests of the route exactly, so that each has a
    /// [`stopwatch`](crate::Request::stopwatch). Requests of the app are counted and measured as
    /// for [`Observed`](crate::extract::Observed).
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::routing::RouteOptions;
    ///
    /// /// Tells which requests had to wait for a thread.
    /// struct Queued;
    ///
    /// impl Middleware for Queued {
    ///     fn handle(&self, request: Request, next: Next) -> Result<Response> {
    ///         if let Some(stopwatch) = request.stopwatch() {
    ///             println!("{} waited {:?}", request.path(), stopwatch.timing().queue);
    ///         }
    ///         Ok(next.run(request))
    ///     }
    ///
    ///     fn configure(&self, options: &mut RouteOptions) {
    ///         options.timed();
    ///     }
    /// }
    ///
    /// let app = App::new().get("/", || "hi").with(Queued);
    /// # app.test().get("/").send().assert_status(200);
    /// ```
    pub fn timed(&mut self) -> &mut Self {
        self.promises.is_timed = true;
        self.observe()
    }

    /// Lets the handler send hints: see [`EarlyHints`](crate::EarlyHints).
    pub fn early_hints(&mut self) -> &mut Self {
        self.promises.sends_hints = true;
        self
    }
}
