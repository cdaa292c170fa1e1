//! HTML.

use bytes::Bytes;
use filoplume_runtime::Response;

use crate::core::error::Result;
use crate::core::response::IntoResponse;

/// Text that is sent as `text/html; charset=utf-8`. It is not escaped: escape untrusted values
/// yourself, or use templates.
///
/// ```
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || Html("<h1>Hello</h1>"));
/// app.test().get("/").send().assert_header("content-type", "text/html; charset=utf-8");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a response does nothing until it is returned"]
pub struct Html<T>(pub T);

impl<T: Into<Bytes>> IntoResponse for Html<T> {
    const SAYS_STATUS: bool = false;

    fn into_response(self) -> Result<Response> {
        let mut response = Response::default();
        response.set_html(self.0);
        Ok(response)
    }
}
