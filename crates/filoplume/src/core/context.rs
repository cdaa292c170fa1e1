//! The context in which a request is answered.

use std::fmt;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use filoplume_runtime::{Request, Response, StatusCode};

use super::app_router::AppRouter;
use super::asked::Asked;
use super::captures::Captures;
use super::error::Error;
use super::request_id::RequestId;
use super::route::CompiledRoute;
use super::settings::Settings;
use super::states::States;
use crate::client::ClientAddr;

/// The context of a request: the app, the route and its state.
///
/// Extractors receive it along with the request. Middleware gets it from
/// [`Next::context`](crate::Next::context).
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::{Context, FromRequest};
///
/// /// The pattern that matched, such as for counters.
/// struct Pattern(String);
///
/// impl FromRequest for Pattern {
///     type Rejection = Error;
///
///     fn from_request(_: &mut Request, context: &Context<'_>) -> Result<Self> {
///         Ok(Self(context.route().unwrap_or("none").to_owned()))
///     }
/// }
///
/// let app = App::new().get("/users/{id}", |Pattern(pattern): Pattern| pattern);
/// app.test().get("/users/17").send().assert_text("/users/{id}");
/// ```
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub(crate) router: &'a dyn AppRouter,
    pub(crate) settings: &'a Settings,
    pub(crate) route: Option<&'a CompiledRoute>,
    pub(crate) asked: &'a Asked,
}

impl<'a> Context<'a> {
    /// Returns the pattern of the route, such as `/users/{id}`; `None` if no route matched.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app =
    ///     App::new().get("/users/{id}", || "ada").with(|request: Request, next: Next| {
    ///         let route = next.context().route().unwrap_or("none");
    ///         let mut response = next.run(request);
    ///         response.set_header("x-route", route)?;
    ///         Ok::<_, Error>(response)
    ///     });
    /// let client = app.test();
    /// client.get("/users/17").send().assert_header("x-route", "/users/{id}");
    /// client.get("/nowhere").send().assert_header("x-route", "none");
    /// ```
    pub fn route(&self) -> Option<&'a str> {
        self.route.map(|route| &*route.pattern)
    }

    /// Returns a state that was added to the app or to a router of the route. If several states
    /// have this type, returns the state of the innermost router.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// struct Closed(bool);
    ///
    /// let app = App::new().get("/", || "hi").state(Closed(true)).with(
    ///     |request: Request, next: Next| match next.context().state::<Closed>() {
    ///         Some(Closed(true)) => Err(Error::unavailable("closed today")),
    ///         _ => Ok(next.run(request)),
    ///     },
    /// );
    /// app.test().get("/").send().assert_status(503);
    /// ```
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.states().get::<T>()
    }

    /// Returns whether the app runs in development mode, which shows errors with their causes.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "hi").with(|request: Request, next: Next| {
    ///     let caching =
    ///         if next.context().is_development() { "no-store" } else { "max-age=60" };
    ///     let mut response = next.run(request);
    ///     response.set_header("cache-control", caching)?;
    ///     Ok::<_, Error>(response)
    /// });
    /// app.test().get("/").send().assert_header("cache-control", "max-age=60");
    /// ```
    pub fn is_development(&self) -> bool {
        self.settings.is_development
    }

    /// Returns the names and values of the captures in the request's path, in the order of the
    /// pattern. The values are still percent-encoded.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/{tenant}/notes", || "all notes").with(
    ///     |request: Request, next: Next| {
    ///         let context = next.context();
    ///         match context.captures(request.path()).as_slice() {
    ///             [("tenant", "acme"), ..] => Ok(next.run(request)),
    ///             _ => Err(Error::not_found("no such tenant")),
    ///         }
    ///     },
    /// );
    /// let client = app.test();
    /// client.get("/acme/notes").send().assert_status(200);
    /// client.get("/other/notes").send().assert_status(404);
    /// ```
    pub fn captures<'p>(&'p self, path: &'p str) -> Vec<(&'p str, &'p str)> {
        self.captures_in(path).iter().collect()
    }

    /// Returns the captures of the route in a path that matches it.
    #[inline]
    pub(crate) fn captures_in<'p>(&'p self, path: &'p str) -> Captures<'p> {
        let captures = self.route.map(|route| route.captures.as_slice()).unwrap_or_default();
        Captures::new(captures, path)
    }

    /// Returns the ID of the request. `None` unless [`RequestIds`](crate::middleware::RequestIds)
    /// is further out, or has already run further in.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let audit = |request: Request, next: Next| -> Result<Response> {
    ///     let id = next.context().request_id().map(|id| id.to_string());
    ///     println!("{id:?} asks for {}", request.path());
    ///     Ok(next.run(request))
    /// };
    /// let ids = middleware::RequestIds::new();
    /// let app = App::new().get("/", || "hi").with(ids).with(audit);
    /// app.test().get("/").send().assert_status(200);
    /// ```
    pub fn request_id(&self) -> Option<&'a RequestId> {
        self.asked.request_id()
    }

    /// Returns the address of the client, behind the proxies that the app trusts. See
    /// [`ClientAddr`].
    ///
    /// ```
    /// use filoplume::extract::Proxies;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", || "hi")
    ///     .trust_proxies(Proxies::loopback().x_forwarded_proto())
    ///     .with(|request: Request, next: Next| {
    ///         if next.context().client(&request).is_https() {
    ///             return Ok(next.run(request));
    ///         }
    ///         Redirect::permanent(format!("https://example.org{}", request.target()))
    ///             .into_response()
    ///     });
    /// let client = app.test();
    /// client.get("/").header("x-forwarded-proto", "https").send().assert_text("hi");
    /// client
    ///     .get("/")
    ///     .send()
    ///     .assert_status(308)
    ///     .assert_header("location", "https://example.org/");
    /// ```
    pub fn client(&self, request: &Request) -> ClientAddr {
        self.settings.proxies.client(request)
    }

    /// Returns the IP address of the client, behind the proxies that the app trusts. `None` if the
    /// connection is a Unix socket and no proxy sent an address.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new().get("/", || "secret").with(|request: Request, next: Next| {
    ///     match next.context().client_ip(&request) {
    ///         Some(ip) if ip.is_loopback() => Ok(next.run(request)),
    ///         _ => Err(Error::forbidden("from this machine only")),
    ///     }
    /// });
    /// # app.test().get("/").send().assert_status(200);
    /// ```
    pub fn client_ip(&self, request: &Request) -> Option<IpAddr> {
        self.settings.proxies.client_ip(request)
    }

    /// Returns the maximum length in bytes of the content that the route accepts. `None` if only
    /// the server's limit applies.
    ///
    /// ```
    /// use filoplume::prelude::*;
    ///
    /// let app =
    ///     App::new().post("/", |text: String| text).with(|request: Request, next: Next| {
    ///         assert_eq!(next.context().content_bytes_max(), Some(2 * 1024 * 1024));
    ///         next.run(request)
    ///     });
    /// app.test().post("/").body("hi").send().assert_text("hi");
    /// ```
    pub fn content_bytes_max(&self) -> Option<u64> {
        self.route.and_then(|route| route.options.bytes_max())
    }

    /// Returns the server's maximum length of a content, if the app has set it.
    #[cfg(feature = "compression")]
    pub(crate) fn server_content_bytes_max(&self) -> Option<u64> {
        self.route.and_then(|route| route.options.server_bytes_max())
    }

    /// Calls the handler of the route. A panic becomes a response, so that middleware processes it
    /// like any other.
    pub(crate) fn handle(self, request: Request) -> Response {
        let Some(route) = self.route else {
            return self.pending(Error::from_status(StatusCode::NOT_FOUND));
        };
        match catch_unwind(AssertUnwindSafe(|| route.endpoint.call(request, &self))) {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => self.pending(error),
            Err(panic) => self.panicked(&*panic),
        }
    }

    /// Answers a request whose content is longer than its route accepts.
    #[cold]
    pub(crate) fn content_too_long(self) -> Response {
        let max = self.content_bytes_max().unwrap_or(u64::MAX);
        let detail = format!("the content is longer than the {max} bytes that this route accepts");
        self.pending(Error::new(StatusCode::PAYLOAD_TOO_LARGE, detail))
    }

    fn states(&self) -> &'a States {
        match self.route {
            Some(route) => &route.states,
            None => &self.settings.states,
        }
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("route", &self.route()).finish_non_exhaustive()
    }
}
