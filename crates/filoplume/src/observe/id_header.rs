//! The name of the header with which a response carries the ID of its request.

use filoplume_runtime::Response;
use http::HeaderName;

/// The header that has the request's ID, as an extension of a response in which it is not
/// [`DEFAULT`](Self::DEFAULT).
#[derive(Clone)]
pub(crate) struct RequestIdHeader(pub(crate) HeaderName);

impl RequestIdHeader {
    pub(crate) const DEFAULT: &str = "x-request-id";

    /// Returns the ID of the request from its response, if it has one.
    pub(crate) fn id_of(response: &Response) -> Option<String> {
        let renamed = response.extensions().get::<Self>();
        let name = renamed.map_or(Self::DEFAULT, |Self(name)| name.as_str());
        String::from_utf8(response.headers().get(name)?.to_vec()).ok()
    }
}
