//! What the engine promises to the requests of a route.

use filoplume_runtime::Plan;

use super::RouteOptions;

/// What the engine promises to the requests of a route.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promises {
    /// They are answered although other routes occupy all threads.
    pub(super) is_vital: bool,
    /// Their handlers learn that the client has gone.
    is_cancellable: bool,
    /// Their handlers send interim responses.
    sends_hints: bool,
}

impl Promises {
    /// Returns the plan with these promises.
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
        plan
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

    /// Counts and measures the requests of the app, for [`Observed`](crate::extract::Observed).
    pub(crate) fn observe(&mut self) -> &mut Self {
        self.is_observed = true;
        self
    }

    /// Lets the handler send hints: see [`EarlyHints`](crate::EarlyHints).
    pub fn early_hints(&mut self) -> &mut Self {
        self.promises.sends_hints = true;
        self
    }
}
