//! The innermost span of a thread, for calls to other services.

use tracing::{Dispatch, dispatcher};
use tracing_subscriber::Registry;
use tracing_subscriber::registry::{LookupSpan, SpanData};

use crate::span::OpenSpan;

/// Returns the value of the header `traceparent` for a call to another service. With it, the
/// innermost span that this thread has entered becomes the parent of the spans of that service.
/// Returns `None` if there is no such span, or no [`OtlpLayer`](crate::OtlpLayer) over a
/// `Registry`.
///
/// In a handler, `filoplume::middleware::TraceContext` names the span of the request instead, and
/// needs no exporter.
///
/// ```
/// use filoplume_otlp::Otlp;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let (layer, exporter) = Otlp::new().start()?;
/// let subscriber = tracing_subscriber::registry().with(layer);
/// tracing::subscriber::with_default(subscriber, || {
///     let call = tracing::info_span!("GET", otel.kind = "client", server.address = "stock");
///     let _entered = call.enter();
///     let mut request = ureq::get("http://stock.internal/apples");
///     if let Some(parent) = filoplume_otlp::traceparent() {
///         request = request.header("traceparent", parent);
///     }
///     # assert!(request.headers_ref().unwrap().contains_key("traceparent"));
/// });
/// # drop(exporter);
/// # Ok::<(), filoplume_otlp::OtlpError>(())
/// ```
pub fn traceparent() -> Option<String> {
    dispatcher::get_default(of_dispatch)
}

fn of_dispatch(dispatch: &Dispatch) -> Option<String> {
    let registry: &Registry = dispatch.downcast_ref()?;
    let mut id = dispatch.current_span().id().cloned();
    // A span above the level has no `OpenSpan`, so its nearest ancestor that has one is used.
    while let Some(current) = id {
        let span = registry.span_data(&current)?;
        if let Some(open) = span.extensions().get::<OpenSpan>() {
            let flags = if open.recording.is_some() { "01" } else { "00" };
            return Some(format!("00-{:032x}-{:016x}-{flags}", open.trace_id, open.span_id));
        }
        id = span.parent().cloned();
    }
    None
}
