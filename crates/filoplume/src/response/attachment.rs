//! File downloads.

use filoplume_runtime::{Response, StatusCode};

use crate::core::error::Result;
use crate::core::response::IntoResponse;
use crate::semantics::conditional::RequestConditions;
use crate::semantics::content_disposition::attachment;

/// A response that browsers save as a file under a name (`Content-Disposition`, RFC 6266).
///
/// The content can be anything that converts into a response: text, bytes, a
/// [`Reader`](super::Reader) or an open file.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::response::{Attachment, Reader};
///
/// let app = App::new()
///     .get("/bytes", || Attachment::new("report.csv", "day,visits\n1,2\n"))
///     .get("/reader", || {
///         Attachment::new("zeros.bin", Reader::sized(std::io::repeat(0), 3))
///     })
///     .get("/file", || {
///         Ok::<_, Error>(Attachment::new(
///             "Übersicht.pdf",
///             std::fs::File::open("report.pdf")?,
///         ))
///     });
/// let client = app.test();
/// let report = client.get("/bytes").send();
/// report.assert_header("content-disposition", r#"attachment; filename="report.csv""#);
/// report
///     .assert_header("content-type", "text/csv; charset=utf-8")
///     .assert_text("day,visits\n1,2\n");
/// client.get("/reader").send().assert_header("content-length", "3");
/// ```
///
/// The name can be untrusted input. Only the last segment of a path is used. Control characters and
/// invisible characters that reorder text are removed, `"<>:|?*` become `_`, and long names are
/// shortened before their extension. Names outside of ASCII are also sent encoded (`filename*`, RFC
/// 8187).
///
/// With the feature `static-files` the content type is [guessed](Self::content_type) from the
/// extension of the name. `X-Content-Type-Options: nosniff` tells browsers not to guess it from the
/// content.
#[doc(alias("download", "Content-Disposition"))]
#[derive(Clone, Debug)]
#[must_use = "a response does nothing until a handler returns it"]
pub struct Attachment<T> {
    name: String,
    content_type: Option<String>,
    content: T,
}

impl<T: IntoResponse> Attachment<T> {
    /// Returns a download of this content under this name.
    pub fn new(name: impl Into<String>, content: T) -> Self {
        Self { name: name.into(), content_type: None, content }
    }

    /// Sets the content type. Default: with the feature `static-files`, the type for the extension
    /// of the name; otherwise the type that the content sets; otherwise `application/octet-stream`.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::response::Attachment;
    ///
    /// let app = App::new().get("/", || {
    ///     Attachment::new("a.dat", "...").content_type("application/x-measures")
    /// });
    /// app.test().get("/").send().assert_header("content-type", "application/x-measures");
    /// ```
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }
}

impl<T: IntoResponse> IntoResponse for Attachment<T> {
    const SAYS_STATUS: bool = T::SAYS_STATUS;
    const CHECKED: () = T::CHECKED;
    const IS_CONDITIONAL: bool = T::IS_CONDITIONAL;
    const KEEPS_HEADERS: bool = false;

    fn into_response(self) -> Result<Response> {
        let Self { name, content_type, content } = self;
        describe(content.into_response()?, &name, content_type)
    }

    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response> {
        let Self { name, content_type, content } = self;
        describe(content.into_conditional_response(conditions)?, &name, content_type)
    }
}

fn describe(mut response: Response, name: &str, content_type: Option<String>) -> Result<Response> {
    if response.status() == StatusCode::NOT_MODIFIED {
        return Ok(response);
    }
    let current = response.headers().get_str("content-type").unwrap_or_default();
    if response.status() == StatusCode::PARTIAL_CONTENT
        && current.starts_with("multipart/byteranges")
    {
        // Its type has the boundary between the parts; each part has its own type.
    } else if let Some(content_type) = content_type.or_else(|| guess(name)) {
        response.set_header("content-type", content_type)?;
    } else if !response.headers().contains("content-type") {
        response.set_header("content-type", "application/octet-stream")?;
    }
    response.set_header("content-disposition", attachment(name))?;
    response.set_header("x-content-type-options", "nosniff")?;
    Ok(response)
}

#[cfg(feature = "static-files")]
fn guess(name: &str) -> Option<String> {
    crate::semantics::file_type::content_type(
        &crate::semantics::content_disposition::harmless_name(name),
    )
}

#[cfg(not(feature = "static-files"))]
fn guess(_: &str) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of a response after it was described.
    fn described(status: u16, current: &str) -> Response {
        let mut response = Response::new(status);
        response.set_header("content-type", current).expect("it is valid");
        describe(response, "a.txt", None).expect("it is valid")
    }

    #[test]
    fn only_parts_keep_their_type() {
        let parts = "multipart/byteranges; boundary=x";
        let rows = [(206, parts, true), (200, parts, false), (206, "text/html", false)];
        for (status, current, is_kept) in rows {
            let response = described(status, current);
            let kept = response.headers().get_str("content-type") == Some(current);
            assert_eq!(kept, is_kept, "{status} {current}");
            assert!(response.headers().contains("content-disposition"), "{status} {current}");
        }
    }

    /// The client has the other headers already.
    #[test]
    fn content_that_the_client_has_is_not_described() {
        let response = described(304, "text/html");
        assert!(!response.headers().contains("content-disposition"));
        assert_eq!(response.headers().get_str("content-type"), Some("text/html"));
    }
}
