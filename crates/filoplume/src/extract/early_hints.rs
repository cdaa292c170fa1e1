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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_takes_them_sends_interim_responses() {
        let mut options = RouteOptions::new();
        assert!(format!("{options:?}").contains("sends_hints: false"));
        EarlyHints::configure(&mut options);
        assert!(format!("{options:?}").contains("sends_hints: true"));
    }
}
