//! Distributed tracing: W3C Trace Context, and a span for each request.

mod context;
mod parse;
mod span;

use filoplume_runtime::{Request, Response, note_trace_id};

pub use self::context::{SpanId, TraceContext, TraceId};
use crate::core::error::Result;
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::core::refusal::NextRefused;
use crate::middleware::catch_panic::run_catching_panics;
use crate::middleware::random_id::random_id;

/// Gives each request a position in a trace, and a span of `tracing` around its handler.
///
/// ```
/// use filoplume::middleware::TraceContext;
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |trace: TraceContext| {
///         // tracing::info!("this event belongs to the span of the request");
///         trace.trace_id().to_string()
///     })
///     .with(middleware::RequestIds::new())
///     .with(middleware::Tracing::new())
///     .with(middleware::Logger::new());
/// app.test().get("/").send().assert_status(200);
/// ```
///
/// Handlers take the position as a [`TraceContext`], which has the headers for outgoing requests.
/// The [`Logger`](super::Logger) logs the trace's ID.
///
/// The span has the target `filoplume::trace`, the level `INFO`, and the fields of OpenTelemetry's
/// semantic conventions: `http.request.method`, `http.route`, `http.response.status_code`,
/// `url.scheme`, `client.address`, `network.protocol.version`, `error.type`, and those that say
/// what the span is: `otel.name`, `otel.kind`, `otel.status_code`, `trace_id`, `span_id`,
/// `parent_span_id`, `trace_flags`. `request_id` is the ID from
/// [`RequestIds`](super::RequestIds). The query and the headers are not recorded, and the path
/// [only if wanted](Self::record_path): they often contain secrets. The span ends when the handler
/// has answered; a streamed body is sent after that.
///
/// The span begins when the handler is called. If the request waited for a free thread or a permit
/// before, `filoplume.queued_us` tells for how many microseconds.
///
/// A request that the server refuses with a `503`, because it is overloaded, has a span too. It has
/// no duration. `filoplume.refusal` is the reason, and `filoplume.refusal.because` names the limit
/// and what occupies the resource, as the log does.
///
/// The crate `filoplume-otlp` exports the spans. Without a subscriber there are no spans, only the
/// IDs.
#[derive(Clone, Debug)]
pub struct Tracing {
    incoming: Incoming,
    sample_ratio: f64,
    records_path: bool,
}

/// What [`Tracing`] does with the headers `traceparent` and `tracestate` of a request.
///
/// A proxy usually passes these headers on as it got them from the client. So trust them only if no
/// stranger can reach the server, or if the proxy removes or sets them.
///
/// ```
/// use filoplume::middleware::{Incoming, Tracing};
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || "hi").with(Tracing::new().incoming(Incoming::Continue));
/// app.test().get("/").send().assert_status(200);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Incoming {
    /// They are ignored: every request begins a trace.
    #[default]
    Ignore,
    /// The trace is continued, and [the own ratio](Tracing::sample_ratio) decides whether it is
    /// sampled. For browsers that take part in a trace: a client can choose the ID of its trace,
    /// and cannot make the server export more than its share. `tracestate` is not passed on.
    Continue,
    /// The trace is continued, and the caller decides whether it is sampled. `tracestate` is passed
    /// on.
    Trust,
}

impl Tracing {
    /// Returns middleware that begins a trace for each request, and samples all of them.
    pub fn new() -> Self {
        Self { incoming: Incoming::Ignore, sample_ratio: 1.0, records_path: false }
    }

    /// Sets what is done with the trace of the caller. Default: it is ignored.
    ///
    /// ```
    /// use filoplume::middleware::{Incoming, TraceContext, Tracing};
    /// use filoplume::prelude::*;
    ///
    /// let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    /// for (incoming, is_continued) in
    ///     [(Incoming::Ignore, false), (Incoming::Continue, true), (Incoming::Trust, true)]
    /// {
    ///     let response = App::new()
    ///         .get("/", |trace: TraceContext| trace.trace_id().to_string())
    ///         .with(Tracing::new().incoming(incoming))
    ///         .test()
    ///         .get("/")
    ///         .header("traceparent", &format!("00-{trace_id}-00f067aa0ba902b7-01"))
    ///         .send();
    ///     assert_eq!(response.text() == trace_id, is_continued);
    /// }
    /// ```
    #[must_use]
    pub fn incoming(mut self, incoming: Incoming) -> Self {
        self.incoming = incoming;
        self
    }

    /// Sets the share of traces that are sampled, from 0 to 1. It decides about traces that begin
    /// here, and about others unless the caller [is trusted](Incoming::Trust). Default: 1, all.
    ///
    /// ```
    /// use filoplume::middleware::{TraceContext, Tracing};
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", |trace: TraceContext| trace.is_sampled().to_string())
    ///     .with(Tracing::new().sample_ratio(0.0));
    /// app.test().get("/").send().assert_text("false");
    /// ```
    #[must_use]
    pub fn sample_ratio(mut self, ratio: f64) -> Self {
        self.sample_ratio = ratio;
        self
    }

    /// Records the path of the request as `url.path`, without its query. Paths often contain
    /// secrets, such as the token in `/reset/{token}`. Default: no.
    #[must_use]
    pub fn record_path(mut self, records_path: bool) -> Self {
        self.records_path = records_path;
        self
    }

    fn trace_of(&self, request: &Request) -> TraceContext {
        let parent = match self.incoming {
            Incoming::Ignore => None,
            Incoming::Continue | Incoming::Trust => {
                let mut fields = request.headers().get_all("traceparent");
                // With two of them, neither is known to be the caller's.
                match (fields.next(), fields.next()) {
                    (Some(field), None) => parse::parse_parent(field),
                    _ => None,
                }
            }
        };
        match parent {
            None => TraceContext::begin(self.samples()),
            Some(parent) if self.incoming == Incoming::Trust => {
                let state = parse::parse_state(request.headers().get_all("tracestate"));
                TraceContext::continued(parent, parent.is_sampled, state)
            }
            // The ID of the trace does not decide, because the client has chosen it.
            Some(parent) => TraceContext::continued(parent, self.samples(), None),
        }
    }

    /// Decides whether a trace is sampled.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "53 random bits are a number from 0 to 1"
    )]
    fn samples(&self) -> bool {
        let random = (random_id() as u64 >> 11) as f64 / (1u64 << 53) as f64;
        random < self.sample_ratio
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Self::new()
    }
}

impl Middleware for Tracing {
    fn handle(&self, mut request: Request, next: Next<'_>) -> Result<Response> {
        let trace = self.trace_of(&request);
        let context = next.context();
        let has_id = context.request_id().is_some();
        let span = span::open(&trace, &request, context, self.records_path);
        request.extensions_mut().insert(trace.clone());
        // Noted for a report if the handler does not return.
        let noted = note_trace_id(trace.trace_id().get());
        let mut response = span.in_scope(|| run_catching_panics(request, next));
        drop(noted);
        span::record_response(&span, &response);
        if let Some(id) = context.request_id().filter(|_| !has_id) {
            span.record("request_id", id.as_str());
        }
        // For an outer logger.
        response.extensions_mut().insert(trace);
        Ok(response)
    }

    fn refused(&self, request: &Request, mut next: NextRefused<'_>) -> Response {
        let trace = self.trace_of(request);
        next.extensions_mut().insert(trace.clone());
        let context = next.context();
        let span = span::open(&trace, request, context, self.records_path);
        let refused = next.refused();
        let mut response = span.in_scope(|| next.run(request));
        span::record_refusal(&span, refused);
        span::record_response(&span, &response);
        response.extensions_mut().insert(trace);
        response
    }

    fn configure(&self, options: &mut RouteOptions) {
        options.provide::<TraceContext>();
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            options.mistake(format!(
                "Tracing: the ratio of sampled traces is {}, and must be from 0 to 1",
                self.sample_ratio
            ));
        }
    }
}

#[cfg(test)]
mod tests;
