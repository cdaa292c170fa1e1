//! The one place where errors become what a client reads: problem details (RFC 9457), HTML, or plain text.

mod development;
mod hints;
mod html;
mod problem;

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use filoplume_runtime::{Method, Request, Response, StatusCode, note_caught_panic};

use self::development::{Findings, Snapshot};
use crate::app::Core;
use crate::core::context::Context;
use crate::core::error::Error;
pub(crate) use crate::core::panics::{Panicked, note_places_of_panics};
use crate::semantics::accept::{Accept, Format};

/// What was asked, as far as it matters to how an error is presented.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().present_errors(|error, asked| {
///     let page = Html(format!("<h1>{}</h1>", error.status_code()));
///     if asked.wants_html() { page.into_response().ok() } else { None }
/// });
/// let client = app.test();
/// client.get("/nowhere").header("accept", "text/html").send().assert_text("<h1>404 Not Found</h1>");
/// client.get("/nowhere").send().assert_header("content-type", "application/problem+json");
/// ```
#[derive(Clone)]
pub struct Asked {
    method: Method,
    accept: Accept,
    /// In development only: the request as it came.
    snapshot: Option<Box<Snapshot>>,
}

/// Presents errors in the program's own way.
pub(crate) type Presenter = Box<dyn Fn(&Error, &Asked) -> Option<Response> + Send + Sync>;

impl Asked {
    /// Remembers of a request what an error page needs. On the way of every request: nothing is decided here.
    #[inline(always)]
    pub(crate) fn of(request: &Request, is_development: bool) -> Self {
        let snapshot = if is_development { Some(Box::new(Snapshot::of(request))) } else { None };
        Self { method: request.method().clone(), accept: Accept::of(request.headers()), snapshot }
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns whether the client would rather read HTML than JSON or plain text, as browsers say they would.
    pub fn wants_html(&self) -> bool {
        self.accept.format() == Format::Html
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked")
            .field("method", &self.method)
            .field("format", &self.accept.format())
            .finish_non_exhaustive()
    }
}

/// All that is said of an error, whatever the form.
struct Report<'a> {
    status: StatusCode,
    title: Cow<'a, str>,
    error: &'a Error,
    /// What only developers may see.
    findings: Option<Findings<'a>>,
}

impl Core {
    /// Gives the response that stands for an error its content. Its status and headers stay, whoever set them.
    #[inline(never)]
    pub(crate) fn present(&self, mut response: Response, context: Context<'_>) -> Response {
        let status = response.status_code();
        // Middleware may have made something else of it, such as a redirect to a login: that has no content.
        if !(status.is_client_error() || status.is_server_error()) {
            return response;
        }
        let Some(error) = Error::of(&response) else { return response };
        let own = self.settings.presenter.as_ref().and_then(|present| {
            let presented = catch_unwind(AssertUnwindSafe(|| present(error, context.asked)));
            // The panic hook has said where; what middleware did to the response is not lost for that.
            presented.unwrap_or_else(|_| {
                tracing::error!("what presents errors panicked");
                note_caught_panic();
                None
            })
        });
        let mut content = own.unwrap_or_else(|| present(error, &response, context));
        let content_type = content.headers().get("content-type").map(<[u8]>::to_vec);
        if let Some(content_type) = content_type {
            // It was a header before.
            let _ = response.set_header("content-type", content_type);
        }
        if self.settings.is_development {
            let _ = response.set_header("cache-control", "no-store");
        }
        vary_on_accept(&mut response);
        *response.body_mut() = std::mem::take(content.body_mut());
        response
    }
}

fn present(error: &Error, response: &Response, context: Context<'_>) -> Response {
    let status = response.status_code();
    let title = match error.title() {
        Some(title) => Cow::Borrowed(title),
        // RFC 9457, 4.2.1: without a type of its own the title is that of the status.
        None => status.canonical_reason().map_or_else(|| nameless(status), Cow::Borrowed),
    };
    let snapshot = context.asked.snapshot.as_deref();
    let findings = snapshot.map(|snapshot| Findings::of(error, response, snapshot, context));
    let report = Report { status, title, error, findings };
    let mut content = Response::default();
    match context.asked.accept.format() {
        Format::Html => content.send_html(html::page(&report)),
        Format::Json => {
            content.send_json(problem::details(&report));
            let _ = content.set_header("content-type", "application/problem+json");
            &mut content
        }
        Format::Text => content.send_text(problem::text(&report)),
    };
    content
}

/// For codes that nobody registered.
fn nameless(status: StatusCode) -> Cow<'static, str> {
    Cow::Borrowed(if status.is_client_error() { "Client Error" } else { "Server Error" })
}

/// Tells caches that another `Accept` gets another content (RFC 9110, 12.5.5).
fn vary_on_accept(response: &mut Response) {
    let names = response.headers().get_all("vary").flat_map(|value| value.split(|&byte| byte == b','));
    let is_said =
        names.map(<[u8]>::trim_ascii).any(|name| name == b"*" || name.eq_ignore_ascii_case(b"accept"));
    if !is_said {
        let _ = response.add_header("vary", "accept");
    }
}
