//! The probes of an app.

use std::sync::Arc;

use super::App;
use crate::health::Health;

impl App {
    /// Answers the probes of load balancers and supervisors, at `/live` and `/ready`. [`Health`]
    /// has the checks that decide whether the app is ready.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "hi").health(Health::new());
    /// app.test().get("/ready").send().assert_status(200);
    /// ```
    #[track_caller]
    pub fn health(mut self, health: Health) -> Self {
        let monitor = Arc::clone(&self.settings.monitor);
        let stopping = self.settings.stopping.clone();
        let (router, checks) = health.add_to(self.router, monitor, stopping);
        self.router = router;
        self.settings.checks = Some(checks);
        self
    }
}
