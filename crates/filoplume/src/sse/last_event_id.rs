//! The last event that a client has received.

use std::convert::Infallible;

use filoplume_runtime::Request;

use crate::core::context::Context;
use crate::core::extract::FromRequest;

/// The ID of the last event that a client has received, if it connects again: the header
/// `Last-Event-ID`. It comes from the client and may be anything.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::sse::LastEventId;
///
/// let app = App::new()
///     .get("/", |LastEventId(id): LastEventId| id.unwrap_or_else(|| "none".to_owned()));
/// let client = app.test();
/// client.get("/").header("last-event-id", "17").send().assert_text("17");
/// client.get("/").send().assert_text("none");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastEventId(pub Option<String>);

impl FromRequest for LastEventId {
    type Rejection = Infallible;

    fn from_request(request: &mut Request, _: &Context<'_>) -> Result<Self, Infallible> {
        Ok(Self(request.header("last-event-id").map(str::to_owned)))
    }
}
