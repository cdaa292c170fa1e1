//! The news that the client has gone, as a handler parameter.

use std::convert::Infallible;

use filoplume_runtime::{Cancel, Request};

use crate::core::context::Context;
use crate::core::extract::FromRequest;
use crate::core::options::RouteOptions;

/// Tells the handler that its client has gone. Requests of other routes are not watched.
impl FromRequest for Cancel {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(request.cancel())
    }

    fn configure(options: &mut RouteOptions) {
        options.cancellable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_takes_it_can_be_cancelled() {
        let mut options = RouteOptions::new();
        assert!(format!("{options:?}").contains("is_cancellable: false"));
        Cancel::configure(&mut options);
        assert!(format!("{options:?}").contains("is_cancellable: true"));
    }
}
