//! The request that a handler receives.

mod convert;
mod times;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use filoplume_http1::{Framing, Headers, RequestHead, Version};
use http::{Extensions, Method};

use crate::budget::account::Account;
use crate::budget::permits::Permits;
use crate::execution::routes::RouteSource;
use crate::service::body::{Body, StreamReturn};
use crate::service::cancel::Cancel;
use crate::service::early_hints::{EarlyHints, InterimWriter};
use crate::service::latch::Latch;
use crate::service::no_extensions;
use crate::service::stopwatch::Stopwatch;
use crate::transport::Peer;
#[cfg(feature = "tls")]
use crate::transport::tls_info::TlsInfo;

/// A request: its head, and its content in memory or as a reader.
///
/// ```
/// use filoplume_runtime::{Request, Response};
///
/// fn handle(request: Request) -> Response {
///     match (request.method().as_str(), request.path()) {
///         ("GET", "/") => Response::from("Hello!"),
///         ("POST", "/length") => {
///             Response::from(format!("{:?} bytes", request.body().len()))
///         }
///         _ => Response::new(404),
///     }
/// }
/// ```
pub struct Request {
    head: RequestHead,
    body: Body,
    peer: Peer,
    #[cfg(feature = "tls")]
    tls: Option<Arc<TlsInfo>>,
    /// The route number of the plan.
    route: Option<u32>,
    /// Fields that few requests use. They are boxed together, because all requests are moved.
    rare: Option<Box<Rare>>,
}

#[derive(Default)]
struct Rare {
    /// The permits that the plan requires.
    permits: Option<Permits>,
    /// Set when the client has gone, if the plan asks for it.
    cancel: Option<Arc<Latch>>,
    /// The writer of interim responses, if the plan asks for them.
    interim: Option<Arc<InterimWriter>>,
    /// Whether the plan asks for a measurement.
    is_timed: bool,
    /// Started when the handler is called, if it is measured exactly.
    stopwatch: Option<Stopwatch>,
    /// The content that arrives while the handler runs.
    stream: Option<Arc<StreamReturn>>,
    /// How long it waited for a thread or a permit.
    queued: Duration,
    /// The account to charge for memory that the handling takes, if the plan asks for it.
    account: Option<Arc<Account>>,
    extensions: Extensions,
}

impl Request {
    #[inline]
    pub(crate) fn new(head: RequestHead, peer: Peer) -> Self {
        Self {
            head,
            body: Body::default(),
            peer,
            #[cfg(feature = "tls")]
            tls: None,
            route: None,
            rare: None,
        }
    }

    /// Sets the peer of a request that was not read from its connection by the engine.
    pub(crate) fn set_peer(&mut self, peer: Peer) {
        self.peer = peer;
    }

    #[cfg(feature = "tls")]
    #[inline]
    pub(crate) fn set_tls(&mut self, tls: Option<Arc<TlsInfo>>) {
        self.tls = tls;
    }

    /// Returns the TLS session of the connection: its version, the name that the client asked for,
    /// and the client's certificate. `None` if the connection came without TLS, or from a proxy
    /// that has removed it.
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.tls.as_deref()
    }

    pub(crate) fn set_body(&mut self, body: Body) {
        self.body = body;
    }

    #[inline]
    pub(crate) fn set_route(&mut self, route: Option<u32>) {
        self.route = route;
    }

    /// Returns the permits that must be free before the handler is called.
    #[inline]
    pub(crate) fn permits(&self) -> Option<&Permits> {
        self.rare.as_ref()?.permits.as_ref()
    }

    #[cold]
    pub(crate) fn set_permits(&mut self, permits: Option<Permits>) {
        self.rare.get_or_insert_default().permits = permits;
    }

    /// Returns whether it has fields that few requests use.
    #[inline]
    pub(crate) fn has_rare(&self) -> bool {
        self.rare.is_some()
    }

    /// Returns the latch that is set when the client has gone.
    #[inline]
    pub(crate) fn cancel_latch(&self) -> Option<&Arc<Latch>> {
        self.rare.as_ref()?.cancel.as_ref()
    }

    #[inline]
    pub(crate) fn interim_writer(&self) -> Option<&Arc<InterimWriter>> {
        self.rare.as_ref()?.interim.as_ref()
    }

    #[cold]
    pub(crate) fn allow_hints(&mut self) {
        // A client of HTTP/1.0 does not know interim responses (RFC 9110, section 15.2).
        if self.version() == Version::Http11 {
            self.rare.get_or_insert_default().interim = Some(Arc::default());
        }
    }

    /// Sets the content that arrives while the handler runs. If the request holds a permit, its
    /// peer must keep the pressed pace while others wait for one.
    #[cold]
    pub(crate) fn set_stream(&mut self, body: Body, stream: &Arc<StreamReturn>) {
        self.body = body;
        if let Some(permits) = self.permits().cloned() {
            // The permit is released when the handler returns, and the response begins then.
            let response = Arc::downgrade(stream);
            stream.press_when(move || {
                let has_permit =
                    response.upgrade().is_some_and(|stream| !stream.has_begun_response());
                has_permit && permits.are_waited_for()
            });
        }
        self.rare.get_or_insert_default().stream = Some(Arc::clone(stream));
    }

    /// Requires a faster pace of the peer whenever `is_scarce` returns `true`, until the content
    /// has arrived. It is for code that holds something for the time of the handler, such as a
    /// place among a few, and lets others wait for it: without this, a slow peer keeps it for as
    /// long as its content lasts.
    ///
    /// The pace is the one that is required when threads are scarce: 64 KiB per second, with a
    /// pause of a second at most. A read of a slower content fails with `TimedOut`. If the content
    /// is in memory or in a file, there is no peer to wait for, and `is_scarce` is never called.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// fn import(request: Request, waiting: &Arc<AtomicUsize>) -> Response {
    ///     let waiting = Arc::clone(waiting);
    ///     request.press_content_when(move || waiting.load(Ordering::Relaxed) > 0);
    ///     // .. reads the content ..
    ///     Response::from("imported")
    /// }
    /// # let request = Request::try_from(http::Request::new(Vec::new()))?;
    /// # assert_eq!(import(request, &Arc::default()).status(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn press_content_when(&self, is_scarce: impl Fn() -> bool + Send + Sync + 'static) {
        if let Some(stream) = self.rare.as_ref().and_then(|rare| rare.stream.as_ref()) {
            stream.press_when(is_scarce);
        }
    }

    #[cold]
    pub(crate) fn set_account(&mut self, account: &Arc<Account>) {
        self.rare.get_or_insert_default().account = Some(Arc::clone(account));
    }

    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.rare.as_ref()?.account.as_ref()
    }

    #[cold]
    pub(crate) fn make_cancellable(&mut self) {
        self.rare.get_or_insert_default().cancel = Some(Arc::new(Latch::new()));
    }

    /// Returns the memory that the request takes and that is not charged to the budget yet.
    pub(crate) fn uncharged_bytes(&self) -> usize {
        self.head.memory() + self.body.uncharged_bytes()
    }

    pub(crate) fn head(&self) -> &RequestHead {
        &self.head
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        self.head.method()
    }

    /// Replaces the method, for example with the value of `X-HTTP-Method-Override`. The number that
    /// the plan gave to the [route](Self::route) is removed, because the plan was made for the old
    /// method. Whatever else the plan asked for stays as it is: the request holds the permit of the
    /// old plan, and nothing that a plan for the new method would ask for. How the content ends,
    /// and whether the response has a content, still depends on the method that the peer sent.
    pub fn set_method(&mut self, method: Method) {
        self.head.set_method(method);
        self.route = None;
    }

    /// Returns the target as it was sent (RFC 9112, section 3.2).
    pub fn target(&self) -> &str {
        self.head.target()
    }

    /// Returns the path, still percent-encoded.
    pub fn path(&self) -> &str {
        self.head.path()
    }

    /// Returns the query without its `?`, still percent-encoded.
    pub fn query(&self) -> Option<&str> {
        self.head.query()
    }

    /// Returns the value of the first query parameter of that name, still percent-encoded.
    pub fn query_value(&self, name: &str) -> Option<&str> {
        let pairs = self.query()?.split('&');
        pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    /// Returns the host and port of the request (RFC 9112, section 3.3).
    pub fn authority(&self) -> Option<&str> {
        self.head.authority()
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.head.version()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &Headers {
        self.head.headers()
    }

    /// Returns the headers for changes. They do not change the framing of the content, which is
    /// already decided.
    pub fn headers_mut(&mut self) -> &mut Headers {
        self.head.headers_mut()
    }

    /// Returns the value of the first header of that name if it is UTF-8. The case of the name is
    /// ignored.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers().get_str(name)
    }

    /// Returns the protocol that the peer asks to upgrade to (RFC 9110, section 7.8).
    pub fn wants_upgrade(&self) -> Option<&str> {
        self.head.wants_upgrade()
    }

    /// Returns whether the client reads trailers of the response: `TE: trailers` (RFC 9110, section
    /// 10.1.4).
    pub fn accepts_trailers(&self) -> bool {
        let members =
            self.headers().get_all("te").filter_map(|value| std::str::from_utf8(value).ok());
        members
            .flat_map(|value| value.split(','))
            .any(|member| member.trim().eq_ignore_ascii_case("trailers"))
    }

    /// Returns the announced length of the content: 0 if there is none, `None` if it is chunked or
    /// was [replaced by a reader](Body::from_reader). It is known before the content is read, for
    /// example in [`Service::plan`](crate::Service::plan).
    pub fn content_length(&self) -> Option<u64> {
        match self.head.framing() {
            Framing::Empty => Some(0),
            Framing::Length(_) if self.body.is_from_reader() => None,
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }

    /// Returns whether content came with the request, and something has read a part of it or taken
    /// it. Bytes that were put back with [`Body::unread`] do not count, and neither does a content
    /// that was replaced.
    ///
    /// ```
    /// use filoplume_runtime::Request;
    /// use std::io::Read;
    ///
    /// let mut request = Request::try_from(http::Request::new(b"milk".to_vec()))?;
    /// let mut text = String::new();
    /// request.body_mut().read_to_string(&mut text)?;
    /// assert!(request.content_was_read());
    /// request.body_mut().unread(text.as_bytes());
    /// assert!(!request.content_was_read());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn content_was_read(&self) -> bool {
        let is_announced = !matches!(self.head.framing(), Framing::Empty | Framing::Length(0));
        self.body.was_read() || (is_announced && self.body.is_default())
    }

    /// Returns the content.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Returns the content for reading.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Takes the whole request and leaves a `GET /` without headers and content in its place.
    pub fn take(&mut self) -> Self {
        let empty = Self::new(RequestHead::empty(), self.peer);
        std::mem::replace(self, empty)
    }

    /// Returns the content and drops the rest.
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Returns the sender of the request: the peer of the socket, or the client that a proxy named
    /// in a [PROXY header](crate::ServerBuilder::proxy_protocol).
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the number that the plan gave to the route. With it a [`Service`](crate::Service)
    /// need not look the route up again in its call. Unlike a value in the
    /// [extensions](Self::extensions) it costs no allocation.
    ///
    /// ```
    /// use filoplume_runtime::{Plan, Request, Response, Service};
    ///
    /// struct Pages;
    ///
    /// impl Service for Pages {
    ///     fn plan(&self, request: &mut Request) -> Plan {
    ///         match request.path() {
    ///             "/" => Plan::new().route(0),
    ///             "/about" => Plan::new().route(1),
    ///             _ => Plan::refuse(Response::new(404)),
    ///         }
    ///     }
    ///
    ///     fn call(&self, request: Request) -> Response {
    ///         Response::from(if request.route() == Some(1) { "about us" } else { "welcome" })
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn route(&self) -> Option<u32> {
        self.route
    }

    /// Returns a handle that tells whether the client has gone. The request's
    /// [plan](crate::Plan::cancellable) must have asked for it. Otherwise the handle never reports
    /// that.
    ///
    /// ```
    /// use filoplume_runtime::{Plan, Request, Response, Service};
    /// use std::time::Duration;
    ///
    /// struct LongPoll;
    ///
    /// impl Service for LongPoll {
    ///     fn plan(&self, _: &mut Request) -> Plan {
    ///         Plan::new().cancellable()
    ///     }
    ///
    ///     fn call(&self, request: Request) -> Response {
    ///         let has_left = request.cancel().wait_timeout(Duration::from_secs(30));
    ///         Response::from(if has_left { "" } else { "no news" })
    ///     }
    /// }
    /// ```
    pub fn cancel(&self) -> Cancel {
        Cancel::new(match self.cancel_latch() {
            Some(latch) => Arc::clone(latch),
            None => Arc::new(Latch::new()),
        })
    }

    /// Returns a handle for interim responses. The [plan](crate::Plan::early_hints) must have asked
    /// for it. Otherwise nothing is sent.
    ///
    /// ```
    /// use filoplume_runtime::{Request, Response};
    ///
    /// fn handle(request: Request) -> Response {
    ///     let _ = request.early_hints().send(&["</style.css>; rel=preload; as=style"]);
    ///     Response::from("the page")
    /// }
    /// # let _service: Box<dyn filoplume_runtime::Service> = Box::new(handle);
    /// ```
    pub fn early_hints(&self) -> EarlyHints {
        EarlyHints::new(self.interim_writer().cloned())
    }

    /// Returns values that are attached to the request, by type. The first insertion allocates.
    pub fn extensions(&self) -> &Extensions {
        match &self.rare {
            Some(rare) => &rare.extensions,
            None => no_extensions(),
        }
    }

    /// Returns the attached values for changes.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.rare.get_or_insert_default().extensions
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", self.method())
            .field("target", &self.target())
            .field("headers", self.headers())
            .field("body", &self.body)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl RouteSource for Request {
    fn route(&self) -> Option<u32> {
        self.route()
    }

    fn path(&self) -> &str {
        self.path()
    }
}
