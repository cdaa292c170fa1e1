//! A client for tests: it calls an app and keeps its cookies.

use std::net::{Ipv4Addr, SocketAddr};

use filoplume_runtime::{Method, Peer, ServerConfig, Service, answer_in_process};
use parking_lot::Mutex;

use super::cookies::CookieJar;
use super::request::{DEFAULT_HOST, TestRequest};
use crate::app::App;
use crate::routing::Router;
use crate::serve::AppService;

/// Calls an app in process. Created by [`App::test`] and [`Router::test`].
///
/// It keeps cookies as a browser does, and sends them back. It ignores those that browsers refuse,
/// such as one with `SameSite=None` and without `Secure`, or with the `Domain` of another host. The
/// host is `localhost`, unless the request has a header `host`.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/login", || ([("set-cookie", "user=ada; Path=/; HttpOnly")], "welcome"))
///     .get("/me", |request: Request| {
///         request.header("cookie").unwrap_or("nobody").to_owned()
///     });
/// let client = app.test();
/// client.get("/me").send().assert_text("nobody");
/// client.get("/login").send();
/// client.get("/me").send().assert_text("user=ada");
/// ```
#[derive(Debug)]
pub struct TestClient {
    service: AppService,
    config: ServerConfig,
    peer: Peer,
    /// `None` if cookies are not kept.
    jar: Option<Mutex<CookieJar>>,
}

/// As when a server stops: threads of the program learn that the app ends, and its hooks run.
impl Drop for TestClient {
    fn drop(&mut self) {
        self.service.end();
    }
}

impl App {
    /// Returns a client that calls this app in process. See [`testing`](crate::testing). When it is
    /// dropped, [`stopping`](Self::stopping) says so and the hooks of
    /// [`on_shutdown`](Self::on_shutdown) run, as if a server had stopped.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", || "hi").test();
    /// client.get("/").send().assert_status(200).assert_text("hi");
    /// ```
    ///
    /// # Panics
    ///
    /// If the app has mistakes; the message lists them.
    #[doc(alias("test_client", "oneshot", "supertest"))]
    #[track_caller]
    pub fn test(self) -> TestClient {
        // A console with an address of its own is left out.
        match self.into_built() {
            Ok(app) => TestClient::new(AppService::new(app)),
            Err(error) => panic!("{error:?}"),
        }
    }
}

impl Router {
    /// Returns a client that calls the routes of this router in process, at their own patterns. It
    /// is short for `App::new().merge(router).test()`, so that a router can be tested where it is
    /// written. What the router takes from its app, such as a state, has to be given to it.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// fn users() -> Router {
    ///     Router::new().get("/{id}", |Path(id): Path<u32>| format!("user {id}"))
    /// }
    ///
    /// users().test().get("/17").send().assert_text("user 17");
    /// ```
    ///
    /// # Panics
    ///
    /// If the router has mistakes; the message lists them.
    #[doc(alias("test_client", "oneshot"))]
    #[track_caller]
    pub fn test(self) -> TestClient {
        App::new().merge(self).test()
    }
}

macro_rules! methods {
    ($($name:ident $method:ident),+) => {
        $(
            #[doc = concat!("Begins a `", stringify!($method), "` request.")]
            pub fn $name(&self, target: &str) -> TestRequest<'_> {
                self.request(Method::$method, target)
            }
        )+
    };
}

impl TestClient {
    fn new(service: AppService) -> Self {
        let config = service.config().unwrap_or_default();
        let peer = Peer::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 49152)));
        Self { service, config, peer, jar: Some(Mutex::default()) }
    }

    methods!(get GET, post POST, put PUT, patch PATCH, delete DELETE, head HEAD, options OPTIONS);

    /// Starts a request with any method.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", || "hi").test();
    /// client.request(Method::TRACE, "/").send().assert_status(405);
    /// ```
    pub fn request(&self, method: Method, target: &str) -> TestRequest<'_> {
        TestRequest::new(self, method, target)
    }

    /// Does not keep cookies, so that requests are independent.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", |cookies: Cookies| cookies.get("seen").unwrap_or("never".to_owned()))
    ///     .post("/", |cookies: Cookies| cookies.set("seen", "today"));
    /// let client = app.test().without_cookies();
    /// client.post("/").send();
    /// client.get("/").send().assert_text("never");
    /// ```
    #[must_use]
    pub fn without_cookies(mut self) -> Self {
        self.jar = None;
        self
    }

    /// Sets the peer that requests come from, such as `Peer::Unix`. Default: `127.0.0.1`, over TCP.
    ///
    /// ```
    /// use filoplume::Peer;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", |peer: Peer| peer.to_string());
    /// app.test().peer(Peer::Unix).get("/").send().assert_text("unix");
    /// ```
    #[must_use]
    pub fn peer(mut self, peer: Peer) -> Self {
        self.peer = peer;
        self
    }

    /// Returns the value of a cookie that the app has set.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client =
    ///     App::new().post("/theme", |cookies: Cookies| cookies.set("theme", "dark")).test();
    /// client.post("/theme").send();
    /// assert_eq!(client.cookie("theme").as_deref(), Some("dark"));
    /// ```
    pub fn cookie(&self, name: &str) -> Option<String> {
        let jar = self.jar.as_ref()?.lock();
        jar.value(name).map(str::to_owned)
    }

    /// Adds a cookie as if the app had set it, for all paths.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", |cookies: Cookies| cookies.get("theme")).test();
    /// client.set_cookie("theme", "dark");
    /// client.get("/").send().assert_text("dark");
    /// client.clear_cookies();
    /// client.get("/").send().assert_status(404);
    /// ```
    pub fn set_cookie(&self, name: &str, value: &str) {
        if let Some(jar) = &self.jar {
            jar.lock().store(&format!("{name}={value}; Path=/; Secure"), "/", DEFAULT_HOST);
        }
    }

    /// Removes all cookies.
    pub fn clear_cookies(&self) {
        if let Some(jar) = &self.jar {
            jar.lock().clear();
        }
    }

    /// Returns the output of the app for a peer that sends these bytes and then ends. For tests of
    /// the protocol, such as pipelined or malformed requests.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let client = App::new().get("/", || "hi").test();
    /// let answer = client.raw(b"GET / HTTP/1.1\r\n\r\n");
    /// assert!(answer.starts_with(b"HTTP/1.1 400 "), "HTTP/1.1 requires a Host");
    /// ```
    pub fn raw(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.raw_from(self.peer, bytes.as_ref())
    }

    pub(super) fn raw_from(&self, peer: Peer, bytes: &[u8]) -> Vec<u8> {
        answer_in_process(&self.service, peer, bytes, &self.config)
    }

    /// Returns the peer of requests that do not set one.
    pub(super) fn default_peer(&self) -> Peer {
        self.peer
    }

    /// Returns the names and values of the cookies for a path.
    pub(super) fn cookies_for(&self, path: &str) -> Vec<(String, String)> {
        self.jar.as_ref().map(|jar| jar.lock().cookies_for(path)).unwrap_or_default()
    }

    /// Stores the cookies that a response to a request for `path` at `host` sets.
    pub(super) fn keep_cookies<'c>(
        &self,
        path: &str,
        host: &str,
        set_cookies: impl Iterator<Item = &'c str>,
    ) {
        if let Some(jar) = &self.jar {
            let mut jar = jar.lock();
            set_cookies.for_each(|set_cookie| jar.store(set_cookie, path, host));
        }
    }
}
