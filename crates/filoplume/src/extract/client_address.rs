//! The address of the client, as a handler parameter.

use std::convert::Infallible;

use filoplume_runtime::Request;

use crate::client::ClientAddr;
use crate::core::context::Context;
use crate::core::extract::FromRequest;

impl FromRequest for ClientAddr {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, context: &Context<'_>) -> Result<Self, Infallible> {
        Ok(context.client(request))
    }
}
