//! The position of a request in a trace.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;

use filoplume_runtime::Request;

use crate::core::context::Context;
use crate::core::extract::FromRequest;
use crate::core::options::RouteOptions;
use crate::extract::{Extension, ExtensionRejection};
use crate::middleware::random_id::random_id;

/// The values of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) is_sampled: bool,
}

/// The position of a request in a trace, from [`Tracing`](super::Tracing). If a handler takes it
/// without that middleware, the app does not start.
///
/// [`headers`](Self::headers) are for outgoing requests, so that they belong to the same trace:
///
/// ```
/// use filoplume::middleware::{TraceContext, Tracing};
/// use filoplume::prelude::*;
///
/// fn stock(trace: TraceContext) -> Result<String> {
///     let mut call = ureq::get("http://stock.internal/apples");
///     for (name, value) in trace.headers() {
///         call = call.header(name, value);
///     }
/// #   assert_eq!(call.headers_ref().unwrap()["traceparent"], trace.traceparent());
/// #   return Ok("12".to_owned());
///     Ok(call.call()?.body_mut().read_to_string()?)
/// }
///
/// let app = App::new().get("/stock", stock).with(Tracing::new());
/// app.test().get("/stock").send().assert_text("12");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: TraceId,
    span_id: SpanId,
    parent_id: Option<SpanId>,
    is_sampled: bool,
    state: Option<Arc<str>>,
}

/// The ID of a trace. It is displayed as 32 hexadecimal digits, and is never zero.
///
/// ```
/// use filoplume::middleware::{TraceContext, Tracing};
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |trace: TraceContext| trace.trace_id().to_string())
///     .with(Tracing::new());
/// assert_eq!(app.test().get("/").send().text().len(), 32);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

/// The ID of a span, which is one operation of a trace. It is displayed as 16 hexadecimal digits,
/// and is never zero.
///
/// ```
/// use filoplume::middleware::{TraceContext, Tracing};
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |trace: TraceContext| trace.span_id().to_string())
///     .with(Tracing::new());
/// assert_eq!(app.test().get("/").send().text().len(), 16);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(NonZeroU64);

impl TraceContext {
    /// Begins a trace.
    pub(super) fn begin(is_sampled: bool) -> Self {
        Self {
            trace_id: TraceId::random(),
            span_id: SpanId::random(),
            parent_id: None,
            is_sampled,
            state: None,
        }
    }

    /// Continues the trace of a caller.
    pub(super) fn continued(parent: Parent, is_sampled: bool, state: Option<String>) -> Self {
        Self {
            trace_id: parent.trace_id,
            span_id: SpanId::random(),
            parent_id: Some(parent.span_id),
            is_sampled,
            state: state.map(Into::into),
        }
    }

    /// Returns the ID of the trace.
    pub fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// Returns the ID of this request's span.
    pub fn span_id(&self) -> SpanId {
        self.span_id
    }

    /// Returns the ID of the caller's span; `None` if the trace began here.
    pub fn parent_id(&self) -> Option<SpanId> {
        self.parent_id
    }

    /// Returns whether the spans of this trace are exported.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Returns the value of the header `traceparent` for outgoing requests, in version 00.
    ///
    /// ```
    /// use filoplume::middleware::{Incoming, TraceContext, Tracing};
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", |trace: TraceContext| trace.traceparent())
    ///     .with(Tracing::new().incoming(Incoming::Trust));
    /// let response = app
    ///     .test()
    ///     .get("/")
    ///     .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    ///     .send();
    /// let parent = response.text();
    /// assert!(parent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
    /// assert!(!parent.contains("00f067aa0ba902b7"), "the parent of what follows is this request");
    /// ```
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{}", self.trace_id, self.span_id, self.flags())
    }

    /// Returns the value of the header `tracestate` for outgoing requests, if there is one: data of
    /// tracing systems that the caller has sent.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the headers for outgoing requests: `traceparent`, and `tracestate` if there is one.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let state = self.state.as_deref().map(|state| ("tracestate", state.to_owned()));
        std::iter::once(("traceparent", self.traceparent())).chain(state)
    }

    /// Returns the flags of `traceparent`.
    pub(super) fn flags(&self) -> &'static str {
        if self.is_sampled { "01" } else { "00" }
    }
}

impl FromRequest for TraceContext {
    type Rejection = ExtensionRejection;

    fn from_request(
        request: &mut Request,
        context: &Context<'_>,
    ) -> Result<Self, ExtensionRejection> {
        Extension::from_request(request, context).map(|Extension(trace)| trace)
    }

    fn configure(options: &mut RouteOptions) {
        options.require::<Self>(
            "it takes a `TraceContext`, and requests have none: add \
             `.with(middleware::Tracing::new())` to the app",
        );
    }
}

impl TraceId {
    pub(super) fn new(id: u128) -> Option<Self> {
        NonZeroU128::new(id).map(Self)
    }

    fn random() -> Self {
        Self(NonZeroU128::new(random_id()).unwrap_or(NonZeroU128::MIN))
    }

    /// Returns the ID as a number.
    pub fn get(self) -> u128 {
        self.0.get()
    }
}

impl SpanId {
    pub(super) fn new(id: u64) -> Option<Self> {
        NonZeroU64::new(id).map(Self)
    }

    #[allow(clippy::cast_possible_truncation, reason = "half of the digits are enough")]
    fn random() -> Self {
        Self(NonZeroU64::new(random_id() as u64).unwrap_or(NonZeroU64::MIN))
    }

    /// Returns the ID as a number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
