//! The news that the server stops, as a handler parameter.

use std::convert::Infallible;

use filoplume_runtime::{Request, Stopping};

use crate::core::context::Context;
use crate::core::extract::FromRequest;

/// Tells the handler that the server has begun to stop.
impl FromRequest for Stopping {
    type Rejection = Infallible;

    fn from_request(_: &mut Request, context: &Context<'_>) -> Result<Self, Infallible> {
        Ok(context.settings.stopping.clone())
    }
}
