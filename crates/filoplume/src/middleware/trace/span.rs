//! The span of a request, with the field names of OpenTelemetry's semantic conventions.

use std::fmt;
use std::time::Duration;

use filoplume_runtime::{Refused, Request, Response, Version};
use tracing::Span;
use tracing::field::{Empty, display};

use super::context::TraceContext;
use crate::core::context::Context;
use crate::core::error::Error;
use crate::core::panics::Panicked;
use crate::middleware::RequestId;

/// Methods that are recorded by their names. Others are made up by clients, and recorded as
/// `_OTHER`, as the conventions demand.
const METHODS: &[&str] =
    &["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];

/// What the conventions call a method that is not known.
const OTHER_METHOD: &str = "_OTHER";

/// Opens the span of a request. The fields are computed only if a subscriber wants the span.
pub(super) fn open(
    trace: &TraceContext,
    request: &Request,
    context: Context<'_>,
    records_path: bool,
) -> Span {
    tracing::info_span!(
        target: "filoplume::trace",
        "request",
        otel.name = %Name { method: method_of(request), route: context.route() },
        otel.kind = "server",
        otel.status_code = Empty,
        trace_id = %trace.trace_id(),
        span_id = %trace.span_id(),
        parent_span_id = trace.parent_id().map(display),
        trace_flags = trace.flags(),
        trace_state = trace.tracestate(),
        http.request.method = method_of(request),
        http.route = context.route(),
        http.response.status_code = Empty,
        url.scheme = context.client(request).scheme(),
        url.path = records_path.then(|| request.path()),
        client.address = context.client_ip(request).map(display),
        network.protocol.version = version_of(request.version()),
        request_id = context.request_id().map(RequestId::as_str),
        filoplume.queued_us = queued_us(request.queued()),
        filoplume.refusal = Empty,
        filoplume.refusal.because = Empty,
        error.type = Empty,
    )
}

pub(super) const fn version_of(version: Version) -> &'static str {
    match version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
    }
}

/// Returns a wait in microseconds. None if there was none.
fn queued_us(queued: Duration) -> Option<u64> {
    (!queued.is_zero()).then(|| u64::try_from(queued.as_micros()).unwrap_or(u64::MAX))
}

/// Records why the server refuses a request, and how long it waited before.
pub(super) fn record_refusal(span: &Span, refused: &Refused<'_>) {
    if span.is_disabled() {
        return;
    }
    span.record("filoplume.refusal", display(refused.reason()));
    span.record("filoplume.refusal.because", display(refused.because()));
    let queued = refused.timing().and_then(|timing| queued_us(timing.queue));
    span.record("filoplume.queued_us", queued);
}

/// Records what the response tells: its status, and whether the request failed. A response with a
/// status below 500 is no failure of the server.
pub(super) fn record_response(span: &Span, response: &Response) {
    if span.is_disabled() {
        return;
    }
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        let panicked = Error::of(response).and_then(Error::downcast_ref::<Panicked>);
        let error = if panicked.is_some() { "panic" } else { status.as_str() };
        span.record("error.type", error);
        span.record("otel.status_code", "ERROR");
    }
}

fn method_of(request: &Request) -> &'static str {
    let name = request.method().as_str();
    METHODS.iter().find(|method| **method == name).copied().unwrap_or(OTHER_METHOD)
}

/// The name of the span: `GET /users/{id}`. It contains nothing that a client can choose, so that
/// there are few names.
struct Name<'a> {
    method: &'static str,
    route: Option<&'a str>,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The conventions replace a method that is not known.
        f.write_str(if self.method == OTHER_METHOD { "HTTP" } else { self.method })?;
        self.route.map_or(Ok(()), |route| write!(f, " {route}"))
    }
}
