//! The way of a refused request through the middleware.

use std::fmt;

use filoplume_runtime::{Refused, Request, Response};
use http::Extensions;

use super::context::Context;
use super::middleware::Layer;

/// The rest of the middleware for a request that the server refuses: see
/// [`Middleware::refused`](super::middleware::Middleware::refused).
///
/// ```
/// use filoplume::middleware::NextRefused;
/// use filoplume::prelude::*;
///
/// /// Counts refusals by what is missing.
/// fn count(request: &Request, next: NextRefused) -> Response {
///     let route = next.context().route().unwrap_or("none");
///     println!("{route}: {}", next.refused().reason());
///     next.run(request)
/// }
/// # let _ = count;
/// ```
pub struct NextRefused<'a> {
    /// The middleware of the app, and that of the route.
    pub(crate) layers: [&'a [Layer]; 2],
    pub(crate) context: Context<'a>,
    pub(crate) refused: &'a Refused<'a>,
    pub(crate) extensions: Extensions,
    /// Renders the response.
    pub(crate) response: &'a dyn Fn() -> Response,
}

impl<'a> NextRefused<'a> {
    /// Returns the response, as the middleware further in has left it. Its status is 503.
    pub fn run(mut self, request: &Request) -> Response {
        for layers in &mut self.layers {
            if let Some((layer, rest)) = layers.split_first() {
                *layers = rest;
                return layer.refused(request, self);
            }
        }
        (self.response)()
    }

    /// Returns the context of the request: its route and state.
    pub fn context(&self) -> Context<'a> {
        self.context
    }

    /// Returns the extensions that middleware further out has added for the middleware further in.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the extensions, to add others. The request has extensions too, but cannot be
    /// changed.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Returns why the request is refused, and where its time went.
    pub fn refused(&self) -> &'a Refused<'a> {
        self.refused
    }
}

impl fmt::Debug for NextRefused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [of_app, of_route] = self.layers;
        write!(f, "{} middlewares", of_app.len() + of_route.len())
    }
}
