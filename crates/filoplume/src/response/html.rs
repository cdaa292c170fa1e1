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

/// The text of a page.
///
/// It replaces `Into<Bytes>` in the bound of [`Html`], so that the compiler's message is about
/// pages.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the text of `Html`: write it as a `String`, or return \
               `Json(value)` in place of `Html(Json(value))`",
    label = "neither text nor bytes",
    note = "a page is `Html(format!(..))`, `Html(\"<h1>..\")` or the result of \
            `templates.render(..)`; a number is written as `Html(number.to_string())`"
)]
pub trait PageText: Into<Bytes> {}

#[diagnostic::do_not_recommend]
impl<T: Into<Bytes>> PageText for T {}

impl<T: PageText> IntoResponse for Html<T> {
    const SAYS_STATUS: bool = false;

    fn into_response(self) -> Result<Response> {
        let mut response = Response::default();
        response.set_html(self.0);
        Ok(response)
    }
}
