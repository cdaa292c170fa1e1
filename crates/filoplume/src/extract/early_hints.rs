//! Interim responses, as a handler parameter.

use std::convert::Infallible;

use filoplume_runtime::{EarlyHints, Request};

use crate::core::context::Context;
use crate::core::extract::FromRequest;
use crate::core::options::RouteOptions;

/// Sends hints to the browser while the handler works. Other routes cannot send hints.
impl FromRequest for EarlyHints {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(request.early_hints())
    }

    fn configure(options: &mut RouteOptions) {
        options.early_hints();
    }
}
