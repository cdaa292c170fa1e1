//! The console: a page that shows what an app does at this moment, and the feed behind it.
//!
//! A viewer costs a connection. While somebody looks, one thread makes a snapshot per second, for
//! all viewers together; otherwise nothing runs.

mod feed;
mod json;
mod local;
mod pages;
mod snapshot;

use std::fmt;
use std::sync::Arc;

use self::feed::Feed;
use self::local::{HOSTS, only_this_machine};
use crate::core::middleware::{Layer, Middleware, layer};
use crate::extract::Basic;
use crate::middleware::{AllowedHosts, BasicAuth};
use crate::observe::Observer;
use crate::routing::Router;

/// A live view of an app for those who operate it: requests, routes and where they run, what
/// handlers wait for, limits, and recent slow, failed and refused requests.
/// [`App::console`](crate::App::console) adds it to an app.
///
/// It cannot be made without a decision on who may see it:
///
/// ```
/// use filoplume::Console;
/// use filoplume::middleware::{BearerAuth, secrets_match};
/// use filoplume::prelude::*;
///
/// // One user with a password. A browser asks for it.
/// let console = Console::with_password("admin", "sesame");
/// // Any middleware that refuses strangers.
/// let console = Console::behind(BearerAuth::new(|token| secrets_match(token, "t0ken")));
/// // During development: only browsers on this machine.
/// let console = Console::local();
/// # App::new().console("/console", console).test();
/// ```
///
/// The page shows patterns of routes, names of threads, IDs of requests, addresses of the services
/// for which handlers wait, and errors of health checks. There are no paths, queries, headers or
/// contents. The address of a client is there only while the thread of a handler reads from this
/// client or writes to it. Passwords and tokens are sent in plain text, so use TLS beyond this
/// machine.
///
/// Up to 16 viewers see it at once; further ones get a `503`. A snapshot is made once per second,
/// and at once if a route moves between the event loops and the pool. All viewers share it. A
/// viewer that reads too slowly misses snapshots, and gets the newest when it has caught up.
#[must_use = "it does nothing until it is given to `App::console`"]
pub struct Console {
    /// Who may see it. There is at least one layer, the outermost first.
    layers: Vec<Layer>,
    pub(crate) address: Option<String>,
    pub(crate) mistake: Option<String>,
}

impl Console {
    /// Returns a console for one user, by basic authentication. Both values are compared in
    /// constant time. With an empty password the app does not start.
    ///
    /// ```
    /// use filoplume::Console;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().console("/console", Console::with_password("admin", "sesame"));
    /// let client = app.test();
    /// client.get("/console").send().assert_status(401);
    /// client.get("/console").basic("admin", "sesame").send().assert_contains("<title>Console");
    /// ```
    #[track_caller]
    pub fn with_password(user: impl Into<String>, password: impl Into<String>) -> Self {
        let password = password.into();
        let mistake = password.is_empty().then(|| {
            "the password of the console is empty: everybody would see it; is the variable set \
             from which it comes?"
                .to_owned()
        });
        let auth = match &mistake {
            None => BasicAuth::user(user, password),
            // `BasicAuth::user` would report the same mistake again.
            Some(_) => BasicAuth::new(|_: &Basic| false),
        };
        Self { mistake, ..Self::behind(auth.realm("console")) }
    }

    /// Returns a console behind a middleware that decides who may see it, such as
    /// [`BasicAuth`], [`BearerAuth`](crate::middleware::BearerAuth), or a closure that looks at the
    /// session. It guards the page and the feed. A middleware that lets everybody pass shows the
    /// console to everybody.
    ///
    /// A browser sends cookies and the credentials of basic authentication along with the feed,
    /// but no bearer tokens.
    ///
    /// ```
    /// use filoplume::Console;
    /// use filoplume::prelude::*;
    ///
    /// let console = Console::behind(|request: Request, next: Next| {
    ///     match next.context().client_ip(&request) {
    ///         Some(ip) if ip.is_loopback() => Ok(next.run(request)),
    ///         _ => Err(Error::forbidden("ask on the machine itself")),
    ///     }
    /// });
    /// App::new().console("/console", console).test().get("/console").send().assert_status(200);
    /// ```
    #[track_caller]
    pub fn behind(middleware: impl Middleware) -> Self {
        Self { layers: vec![layer(middleware)], address: None, mistake: None }
    }

    /// Returns a console for browsers on this machine, without a password. It is for development.
    ///
    /// A request must come from a loopback address, name `localhost`, `127.0.0.1` or `[::1]` as its
    /// host, so that no web site can read the console through a name of its own (DNS rebinding),
    /// and have no `Origin` of another site, whatever the app's
    /// [`Cors`](crate::middleware::Cors) allows, and no field that a proxy adds, such as
    /// `x-forwarded-for`. Not every proxy adds one: behind a proxy on the same machine, use
    /// [`with_password`](Self::with_password).
    ///
    /// ```
    /// use filoplume::Console;
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().console("/console", Console::local()).test();
    /// client.get("/console").header("host", "localhost:5000").send().assert_status(200);
    /// client.get("/console").header("host", "evil.example").send().assert_status(421);
    /// ```
    pub fn local() -> Self {
        Self::behind(AllowedHosts::new(HOSTS)).with(only_this_machine)
    }

    /// Adds middleware inside of that which was given before, such as a second check.
    ///
    /// ```
    /// use filoplume::Console;
    /// use filoplume::middleware::{BasicAuth, RateLimit};
    /// use filoplume::prelude::*;
    ///
    /// // Slows down those who guess passwords.
    /// let console = Console::behind(RateLimit::per_minute(60))
    ///     .with(BasicAuth::user("admin", "sesame"));
    /// App::new().console("/console", console).test().get("/console").send().assert_status(401);
    /// ```
    #[track_caller]
    pub fn with(mut self, middleware: impl Middleware) -> Self {
        self.layers.push(layer(middleware));
        self
    }

    /// Serves the console on an address of its own, such as `127.0.0.1:9000`, and not on those of
    /// the app. So it can stay out of reach of the app's clients, and it works while the app's
    /// connections and threads are used up. Port 0 selects a free port. The middleware of the app
    /// does not apply to it; the states of the app do.
    ///
    /// [`App::listen`](crate::App::listen), [`App::start`](crate::App::start) and those like them
    /// bind the address. It is served until the app has stopped, so that a shutdown can be watched.
    /// [`RunningApp::console_addr`](crate::RunningApp::console_addr) returns the address.
    ///
    /// ```
    /// use filoplume::Console;
    /// use filoplume::prelude::*;
    ///
    /// let console = Console::with_password("admin", "sesame").address("127.0.0.1:0");
    /// let app = App::new().get("/", || "hi").console("/console", console).start("127.0.0.1:0")?;
    /// assert_ne!(app.console_addr(), Some(app.local_addr()));
    /// app.shutdown();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Returns the routes of the console below `prefix`, with its middleware.
    #[track_caller]
    pub(crate) fn into_router(self, prefix: &str, observer: Arc<Observer>) -> Router {
        let mut router = pages::routes(prefix, Feed::new(observer));
        router.layers.extend(self.layers);
        Router::new().nest(prefix, router)
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("middleware", &self.layers.len())
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn further_middleware_of_a_console_runs_inside_of_the_first() {
        let answer = |status| move |_: Request, _: Next<'_>| Response::new(status);
        let outer = answer(StatusCode::FORBIDDEN);
        let console = Console::behind(outer).with(answer(StatusCode::CONFLICT));
        App::new().console("/console", console).test().get("/console").send().assert_status(403);
    }
}
