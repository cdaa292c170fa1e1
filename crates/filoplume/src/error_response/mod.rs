//! Renders errors: as problem details (RFC 9457), HTML, or plain text. This is the only place that
//! does so.

mod development;
mod hints;
mod html;
mod problem;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use filoplume_runtime::{Response, StatusCode, note_caught_panic};

use self::development::Findings;
use crate::core::ErrorFormat;
use crate::core::context::Context;
use crate::core::error::Error;
use crate::core::route::CompiledRoute;
use crate::log::Throttle;
use crate::semantics::vary::add_vary;

/// The contents of an error response, independent of the format.
struct Report<'a> {
    status: StatusCode,
    title: Cow<'a, str>,
    error: &'a Error,
    /// In development mode only.
    findings: Option<Findings<'a>>,
}

/// Adds the content to a response that carries an error. The status and the headers stay, no matter
/// where they were set.
#[inline(never)]
pub(crate) fn render(
    mut response: Response,
    context: Context<'_>,
    routes: &[CompiledRoute],
) -> Response {
    let status = response.status();
    // Middleware may have changed the response, for example into a redirect to a login. Such a
    // response has no content.
    if !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let Some(error) = Error::of(&response) else { return response };
    let own = context.settings.presenter.as_ref().and_then(|present| {
        let presented = catch_unwind(AssertUnwindSafe(|| present(error, context.asked)));
        // The panic hook has printed the location. Changes that middleware made to the response are
        // kept.
        presented.unwrap_or_else(|_| {
            static LOG: Throttle = Throttle::new();
            if let Some(left_out) = LOG.admit() {
                let left_out = left_out.field();
                tracing::error!(left_out, "the closure of `present_errors` panicked");
            }
            note_caught_panic();
            None
        })
    });
    let mut content = own.unwrap_or_else(|| content_of(error, &response, context, routes));
    let content_type = content.headers().get("content-type").map(<[u8]>::to_vec);
    if let Some(content_type) = content_type {
        // The value was a valid header value before.
        let _ = response.set_header("content-type", content_type);
    }
    if context.settings.is_development {
        let _ = response.set_header("cache-control", "no-store");
    }
    // The content depends on `Accept` (RFC 9110, 12.5.5).
    add_vary(response.headers_mut(), "accept");
    *response.body_mut() = std::mem::take(content.body_mut());
    response
}

fn content_of(
    error: &Error,
    response: &Response,
    context: Context<'_>,
    routes: &[CompiledRoute],
) -> Response {
    let status = response.status();
    let title = match error.title() {
        Some(title) => Cow::Borrowed(title),
        // Without a problem type, the title is the name of the status (RFC 9457, 4.2.1).
        None => status.canonical_reason().map_or_else(|| nameless(status), Cow::Borrowed),
    };
    let snapshot = context.asked.snapshot();
    let findings =
        snapshot.map(|snapshot| Findings::of(error, response, snapshot, context.route, routes));
    let report = Report { status, title, error, findings };
    let mut content = Response::default();
    match context.asked.format() {
        ErrorFormat::Html => content.set_html(html::page(&report)),
        ErrorFormat::Json => {
            content.set_json(problem::details(&report));
            let _ = content.set_header("content-type", "application/problem+json");
            &mut content
        }
        ErrorFormat::Text => content.set_text(problem::text(&report)),
    };
    content
}

/// The title for unregistered status codes.
fn nameless(status: StatusCode) -> Cow<'static, str> {
    Cow::Borrowed(if status.is_client_error() { "Client Error" } else { "Server Error" })
}
