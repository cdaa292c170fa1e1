//! The probes of an app.

use std::sync::Arc;

use super::App;
use super::beside::Part;
use crate::health::Health;
use crate::routing::Router;

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
    pub fn health(mut self, mut health: Health) -> Self {
        let monitor = Arc::clone(&self.settings.monitor);
        let stopping = self.settings.stopping.clone();
        let (address, path) = (health.address.take(), health.ready_path.clone());
        let (mut routes, checks) = health.add_to(Router::new(), monitor, stopping);
        self.router.mistakes.append(&mut routes.mistakes);
        match address {
            None => self.router = self.router.merge(routes),
            Some(address) => self.add_beside(address, Part::Health, &path, routes),
        }
        self.settings.checks = Some(checks);
        self
    }
}
