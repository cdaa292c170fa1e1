//! The responses to requests that the engine refuses, in the format of the app's other errors.

use std::sync::OnceLock;

use bytes::Bytes;
use filoplume_runtime::{Incomplete, Refused, Request, Response, ResponseBody, StatusCode};
use http::Extensions;

use super::BuiltApp;
use crate::core::ErrorFormat;
use crate::core::asked::Asked;
use crate::core::context::Context;
use crate::core::engine_refusal::EngineRefusal;
use crate::core::error::Error;
use crate::core::refusal::NextRefused;
use crate::error_response::render;

/// The contents of `503` responses. They are rendered when the app is built, so that refusing many
/// requests under load renders nothing.
#[derive(Default)]
pub(crate) struct RefusalContents {
    json: OnceLock<Content>,
    html: OnceLock<Content>,
    text: OnceLock<Content>,
}

struct Content {
    content_type: Option<Vec<u8>>,
    bytes: Bytes,
}

impl BuiltApp {
    /// Answers a request that the engine refuses. Runs on an event loop. The engine adds
    /// `Retry-After`.
    pub(crate) fn refused(&self, request: &Request, refused: &Refused<'_>) -> Response {
        let asked = Asked::of(request, self.settings.is_development);
        let route = request.route().and_then(|number| self.table.route(number));
        let context = Context { router: self, settings: &self.settings, route, asked: &asked };
        let of_route = route.map(|route| &*route.layers).unwrap_or_default();
        NextRefused {
            layers: [&self.layers, of_route],
            context,
            refused,
            extensions: Extensions::new(),
            response: &|| self.render_refusal(refused, context),
        }
        .run(request)
    }

    /// Tells the middleware of a request that the engine has refused before it was complete. Runs
    /// on an event loop.
    pub(crate) fn incomplete(&self, incomplete: &Incomplete<'_>) {
        let request = incomplete.request();
        let asked = match request {
            Some(request) => Asked::of(request, false),
            None => Asked::preferring(ErrorFormat::Text),
        };
        let route = request.and_then(Request::route).and_then(|number| self.table.route(number));
        let context = Context { router: self, settings: &self.settings, route, asked: &asked };
        let of_route = route.map(|route| &*route.layers).unwrap_or_default();
        for layer in self.layers.iter().chain(of_route) {
            layer.incomplete(incomplete, context);
        }
    }

    fn render_refusal(&self, refused: &Refused<'_>, context: Context<'_>) -> Response {
        if self.settings.is_development {
            let error =
                EngineRefusal { reason: refused.reason(), because: refused.because().to_string() };
            let error = Error::from_status(StatusCode::SERVICE_UNAVAILABLE).with_source(error);
            return render(error.into_pending_response(), context, self.table.routes());
        }
        let content = self.refusal_content(context.asked.format());
        let mut response = Response::new(StatusCode::SERVICE_UNAVAILABLE.as_u16());
        if let Some(content_type) = &content.content_type {
            // The value was taken from a response, so it is a valid header value.
            let _ = response.set_header("content-type", content_type);
        }
        let _ = response.set_header("vary", "accept");
        *response.body_mut() = ResponseBody::Bytes(content.bytes.clone());
        response
    }

    /// Renders the contents ahead of time. Rendering may be slow, because the app may replace the
    /// rendering of errors, and an event loop must not wait for that.
    pub(super) fn prepare_refusals(&self) {
        for format in [ErrorFormat::Json, ErrorFormat::Html, ErrorFormat::Text] {
            self.refusal_content(format);
        }
    }

    fn refusal_content(&self, format: ErrorFormat) -> &Content {
        let RefusalContents { json, html, text } = &self.refusal_contents;
        let content = match format {
            ErrorFormat::Json => json,
            ErrorFormat::Html => html,
            ErrorFormat::Text => text,
        };
        content.get_or_init(|| self.make_refusal_content(format))
    }

    #[cold]
    fn make_refusal_content(&self, format: ErrorFormat) -> Content {
        let asked = Asked::preferring(format);
        let context =
            Context { router: self, settings: &self.settings, route: None, asked: &asked };
        let error = Error::from_status(StatusCode::SERVICE_UNAVAILABLE);
        let mut response = render(error.into_pending_response(), context, self.table.routes());
        let content_type = response.headers().get("content-type").map(<[u8]>::to_vec);
        match std::mem::take(response.body_mut()) {
            ResponseBody::Bytes(bytes) => Content { content_type, bytes },
            // The content of a reader can be sent only once.
            _ => Content { content_type: None, bytes: Bytes::new() },
        }
    }
}
