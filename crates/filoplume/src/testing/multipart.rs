//! Forms with files, as browsers send them.

use std::fmt;

/// A form with fields and files (RFC 7578), for
/// [`TestRequest::multipart`](super::TestRequest::multipart).
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::testing::MultipartForm;
///
/// let client = App::new().post("/", |text: String| text).test();
/// let form = MultipartForm::new().text("title", "a cat").file(
///     "photo",
///     "cat.png",
///     "image/png",
///     b"meow",
/// );
/// client.post("/").multipart(form).send().assert_contains("filename=\"cat.png\"");
/// ```
#[derive(Clone, Default)]
#[must_use = "a form does nothing until it is sent"]
pub struct MultipartForm {
    body: Vec<u8>,
}

/// A text that no test sends by accident.
const BOUNDARY: &str = "filoplume-test-boundary-7c1f0e6d";

impl MultipartForm {
    /// Returns an empty form.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text field.
    pub fn text(self, name: &str, value: &str) -> Self {
        self.part(&format!("form-data; name=\"{}\"", quoted(name)), None, value.as_bytes())
    }

    /// Adds a file.
    pub fn file(
        self,
        name: &str,
        file_name: &str,
        content_type: &str,
        content: impl AsRef<[u8]>,
    ) -> Self {
        let disposition =
            format!("form-data; name=\"{}\"; filename=\"{}\"", quoted(name), quoted(file_name));
        self.part(&disposition, Some(content_type), content.as_ref())
    }

    fn part(mut self, disposition: &str, content_type: Option<&str>, content: &[u8]) -> Self {
        let head = format!("--{BOUNDARY}\r\ncontent-disposition: {disposition}\r\n");
        self.body.extend_from_slice(head.as_bytes());
        if let Some(content_type) = content_type {
            self.body.extend_from_slice(format!("content-type: {content_type}\r\n").as_bytes());
        }
        self.body.extend_from_slice(b"\r\n");
        self.body.extend_from_slice(content);
        self.body.extend_from_slice(b"\r\n");
        self
    }

    /// Returns the content and its type.
    pub(super) fn finish(mut self) -> (Vec<u8>, String) {
        self.body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        (self.body, format!("multipart/form-data; boundary={BOUNDARY}"))
    }
}

impl fmt::Debug for MultipartForm {
    // Fields are not printed: a password may be among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultipartForm").field("bytes", &self.body.len()).finish()
    }
}

/// Escapes quotes and line ends of a name as the HTML standard does.
fn quoted(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
