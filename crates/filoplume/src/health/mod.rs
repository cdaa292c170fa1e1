//! Whether an app is alive and ready, for load balancers and supervisors.

mod checks;
mod readiness;
mod report;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use filoplume_runtime::{Monitor, Response, Stopping};
use parking_lot::Mutex;

use self::checks::{Check, Checks, Purpose};
use self::readiness::Readiness;
use self::report::{Verdict, response};
use crate::core::error::{Error, Result};
use crate::observe::CheckResults;
use crate::routing::{Route, Router, get};

/// The time for which the result of a check is used. Each load balancer probes every second or two.
/// With this time, several of them together cost one run of a check per second.
const CACHE_FOR: Duration = Duration::from_secs(1);

/// Answers the probes of load balancers and supervisors: whether an app is alive, and whether it is
/// ready for requests. [`App::health`](crate::App::health) adds it to an app.
///
/// ```
/// use filoplume::prelude::*;
/// use std::time::Duration;
///
/// # struct Pool;
/// # impl Pool {
/// #     fn get(&self) -> Result<(), std::io::Error> { Ok(()) }
/// # }
/// # let pool = Pool;
/// let health =
///     Health::new().check("database", Duration::from_secs(1), move || pool.get().map(drop));
/// let client = App::new().get("/", || "hi").health(health).test();
/// client.get("/live").send().assert_status(200).assert_contains("alive");
/// client.get("/ready").send().assert_status(200).assert_contains("database");
/// ```
///
/// **`/live`** says `200` as long as the process answers. A supervisor restarts a process that does
/// not, so add a [`live_check`](Self::live_check) only for what a restart repairs.
///
/// **`/ready`** says `200` if all checks pass. It says `503` until each of them has passed once,
/// when one fails or exceeds its deadline, and as soon as the server begins to stop.
/// A load balancer sends no further requests then, so that none fails if the server has a
/// [`lame_duck`](crate::ServerConfig::lame_duck) time.
///
/// Both are [vital](Route::vital): they are answered while other requests wait for a thread. The
/// content is JSON with the names, states and durations of the checks. Errors are not in it but in
/// the log, once for each change.
///
/// Checks are plain blocking closures, and run on threads of their own. They run when a probe asks:
/// all at once, and only those whose last result is older than [`cache_for`](Self::cache_for). The
/// probe waits for them until their deadlines. A check that is still running then is reported as
/// `late` until it ends, and is not started again before it ends: one that hangs holds one thread,
/// and delays no later probe. If the probe of the load balancer has a time-out, choose shorter
/// deadlines.
#[must_use = "it does nothing until it is given to `App::health`"]
pub struct Health {
    checks: Vec<Check>,
    cache_for: Duration,
    overloaded_at: Option<usize>,
    live_path: String,
    pub(crate) ready_path: String,
    pub(crate) address: Option<String>,
}

impl Health {
    /// Returns probes at `/live` and `/ready`, without checks.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().health(Health::new()).test();
    /// client.get("/ready").send().assert_status(200).assert_text("{\"status\":\"ready\"}\n");
    /// ```
    pub fn new() -> Self {
        Self {
            checks: Vec::new(),
            cache_for: CACHE_FOR,
            overloaded_at: None,
            live_path: "/live".to_owned(),
            ready_path: "/ready".to_owned(),
            address: None,
        }
    }

    /// Adds a check without which the instance is not ready, such as the database that every
    /// request needs.
    ///
    /// If all instances need the same database, none of them is ready without it, and the load
    /// balancer answers all requests with an error of its own. Use
    /// [`optional_check`](Self::optional_check) for what an instance can do without.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let health = Health::new().check("database", Duration::from_secs(1), || {
    ///     Err::<(), _>(Error::unavailable("the password of the database is wrong"))
    /// });
    /// let response = App::new().health(health).test().get("/ready").send();
    /// response.assert_status(503).assert_contains("\"name\":\"database\",\"status\":\"failed\"");
    /// assert!(!response.text().contains("password"));
    /// ```
    pub fn check<E: Into<Error>>(
        self,
        name: impl Into<String>,
        deadline: Duration,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.add(Purpose::Ready, name, deadline, check)
    }

    /// Adds a check whose result is shown at `/ready` and logged, and changes nothing else.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let health = Health::new().optional_check("mail", Duration::from_secs(1), || {
    ///     Err::<(), _>(Error::unavailable("connection refused"))
    /// });
    /// let response = App::new().health(health).test().get("/ready").send();
    /// response.assert_status(200).assert_contains("\"status\":\"failed\"");
    /// ```
    pub fn optional_check<E: Into<Error>>(
        self,
        name: impl Into<String>,
        deadline: Duration,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.add(Purpose::Shown, name, deadline, check)
    }

    /// Adds a check without which the process is not alive, and not ready either. A supervisor such
    /// as Kubernetes ends a process that is not alive and starts another, which interrupts all
    /// requests and does not bring back a database. So check only what is in the process, such as a
    /// thread that must not end.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let worker = std::thread::spawn(|| std::thread::park());
    /// let health = Health::new().live_check("worker", Duration::from_secs(1), move || {
    ///     if worker.is_finished() { Err(Error::unavailable("it has ended")) } else { Ok(()) }
    /// });
    /// App::new().health(health).test().get("/live").send().assert_status(200);
    /// ```
    pub fn live_check<E: Into<Error>>(
        self,
        name: impl Into<String>,
        deadline: Duration,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.add(Purpose::Live, name, deadline, check)
    }

    /// Sets the time for which the result of a check is used before a probe runs it again. Default:
    /// 1 second, so that many probes cost one run per second.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use std::time::Duration;
    ///
    /// let health = Health::new().cache_for(Duration::from_secs(5));
    /// # drop(health);
    /// ```
    pub fn cache_for(mut self, time: Duration) -> Self {
        self.cache_for = time;
        self
    }

    /// Says `503` at `/ready` while this many requests wait for a thread or a
    /// [permit](crate::Permits) at the moment of the probe, so that a load balancer sends the next
    /// ones to other instances. Default: never. If all instances are overloaded, a load balancer
    /// that knows no ready one answers everything with an error, so leave it at the default unless
    /// there are spare instances. Liveness does not change.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let health = Health::new().overloaded_at(100);
    /// App::new().health(health).test().get("/ready").send().assert_status(200);
    /// ```
    pub fn overloaded_at(mut self, waiting: usize) -> Self {
        self.overloaded_at = Some(waiting.max(1));
        self
    }

    /// Sets the path that says whether the process is alive. Default: `/live`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().health(Health::new().live_path("/healthz")).test();
    /// client.get("/healthz").send().assert_status(200);
    /// client.get("/live").send().assert_status(404);
    /// ```
    pub fn live_path(mut self, path: impl Into<String>) -> Self {
        self.live_path = path.into();
        self
    }

    /// Sets the path that says whether the instance is ready. Default: `/ready`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().health(Health::new().ready_path("/readyz")).test();
    /// client.get("/readyz").send().assert_status(200);
    /// ```
    pub fn ready_path(mut self, path: impl Into<String>) -> Self {
        self.ready_path = path.into();
        self
    }

    /// Answers the probes on an address of their own, such as `127.0.0.1:9000`, and not on those of
    /// the app. So they stay out of reach of the app's clients, and are answered while the app's
    /// connections are used up. Port 0 selects a free port. The middleware of the app does not
    /// apply to them. [Metrics](crate::App::metrics_on) and a console can have the same address.
    ///
    /// [`App::listen`](crate::App::listen), [`App::start`](crate::App::start) and those like them
    /// bind the address. It is served until the app has stopped, so `/ready` says `503` while
    /// requests are finished. [`RunningApp::health_addr`](crate::RunningApp::health_addr) returns
    /// the address. An answer at this address does not show that the addresses of the app can be
    /// reached. If a load balancer should check that, leave the probes on the addresses of the app.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let health = Health::new().address("127.0.0.1:0");
    /// let app = App::new().get("/", || "hi").health(health).start("127.0.0.1:0")?;
    /// assert_ne!(app.health_addr(), Some(app.local_addr()));
    /// app.shutdown();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    fn add<E: Into<Error>>(
        mut self,
        purpose: Purpose,
        name: impl Into<String>,
        deadline: Duration,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        let run = Box::new(move || check().map_err(Into::into));
        self.checks.push(Check { name: name.into(), deadline, purpose, run });
        self
    }

    /// Adds the routes to a router. Returns it with the checks, for the metrics and the console.
    #[track_caller]
    pub(crate) fn add_to(
        self,
        mut router: Router,
        monitor: Arc<OnceLock<Monitor>>,
        stopping: Stopping,
    ) -> (Router, Arc<dyn CheckResults>) {
        let mut names = HashSet::new();
        for check in &self.checks {
            if !names.insert(&check.name) {
                let mistake = format!("two health checks have the name \"{}\"", check.name);
                router.mistakes.push(mistake);
            }
            if check.deadline.is_zero() {
                router.mistakes.push(format!(
                    "the health check \"{}\" has a deadline of zero, so it would always be late",
                    check.name
                ));
            }
        }
        let has_live_checks = self.checks.iter().any(|check| check.purpose == Purpose::Live);
        let has_checks = !self.checks.is_empty();
        let checks = Arc::new(Checks::new(self.checks, self.cache_for));
        let live = {
            let checks = Arc::clone(&checks);
            move || is_live(&checks)
        };
        let overloaded_at = self.overloaded_at;
        let log = Mutex::default();
        let readiness = Arc::new(Readiness { checks, stopping, overloaded_at, monitor, log });
        let asked = Arc::clone(&readiness);
        let ready = move || asked.probe();
        let router = router
            .route(&self.live_path, probe(get(live), has_live_checks))
            .route(&self.ready_path, probe(get(ready), has_checks));
        (router, readiness)
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.checks.iter().map(|check| &*check.name).collect();
        f.debug_struct("Health")
            .field("live_path", &self.live_path)
            .field("ready_path", &self.ready_path)
            .field("address", &self.address)
            .field("checks", &names)
            .finish_non_exhaustive()
    }
}

/// A route that waits for checks never runs on an event loop.
fn probe(route: Route, has_checks: bool) -> Route {
    if has_checks { route.vital().on_pool() } else { route.vital() }
}

fn is_live(checks: &Arc<Checks>) -> Response {
    let findings = checks.probe(|purpose| purpose == Purpose::Live);
    response(Verdict::of(&findings, Verdict::Alive), &findings)
}
