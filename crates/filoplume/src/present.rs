//! The one place where errors become what a client reads: problem details (RFC 9457) or HTML.

use filoplume_runtime::{Request, Response};

use crate::app::Core;
use crate::context::Context;
use crate::error::Error;

/// What was asked, as far as it matters to how an error is presented.
#[derive(Clone, Debug)]
pub struct Asked {
    wants_html: bool,
    /// In development only: the request as it came.
    snapshot: Option<Box<Snapshot>>,
}

/// A request as the page for developers shows it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// Presents errors in the program's own way.
pub(crate) type Presenter = Box<dyn Fn(&Error, &Asked) -> Option<Response> + Send + Sync>;

impl Asked {
    #[inline]
    pub(crate) fn of(request: &Request, is_development: bool) -> Self {
        let wants_html = request.header("accept").is_some_and(prefers_html);
        let snapshot = if is_development { Some(Box::new(Snapshot::of(request))) } else { None };
        Self { wants_html, snapshot }
    }

    /// Returns whether the client would rather read HTML than JSON, as browsers say they would.
    pub fn wants_html(&self) -> bool {
        self.wants_html
    }
}

impl Snapshot {
    fn of(request: &Request) -> Self {
        let headers = request.headers().iter();
        Self {
            method: request.method().to_string(),
            target: request.target().to_owned(),
            headers: headers
                .map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned()))
                .collect(),
        }
    }
}

fn prefers_html(accept: &str) -> bool {
    accept.contains("text/html")
}

impl Core {
    /// Gives the response that stands for an error its content.
    #[inline(never)]
    pub(crate) fn present(&self, mut response: Response, asked: &Asked, context: Context<'_>) -> Response {
        let Some(error) = Error::of(&response) else { return response };
        let own = self.settings.presenter.as_ref().and_then(|present| present(error, asked));
        let mut content = own.unwrap_or_else(|| present(error, asked, context));
        let content_type = content.headers().get("content-type").map(<[u8]>::to_vec);
        if let Some(content_type) = content_type {
            // It was a header before.
            let _ = response.set_header("content-type", content_type);
        }
        *response.body_mut() = std::mem::take(content.body_mut());
        response
    }
}

fn present(error: &Error, _asked: &Asked, _context: Context<'_>) -> Response {
    Response::from(error.detail().unwrap_or_default().to_owned())
}
