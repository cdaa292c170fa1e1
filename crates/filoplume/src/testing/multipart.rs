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
    /// The names of the parts, and the parts with their heads.
    parts: Vec<(String, Vec<u8>)>,
}

/// A text that no test sends by accident.
const BOUNDARY: &str = "filoplume-test-boundary-7c1f0e6d";

impl MultipartForm {
    /// Returns an empty form.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text field.
    pub fn text(mut self, name: &str, value: &str) -> Self {
        self.insert_text(self.parts.len(), name, value);
        self
    }

    /// Adds a file.
    pub fn file(
        mut self,
        name: &str,
        file_name: &str,
        content_type: &str,
        content: impl AsRef<[u8]>,
    ) -> Self {
        let disposition =
            format!("form-data; name=\"{}\"; filename=\"{}\"", quoted(name), quoted(file_name));
        let part = part(&disposition, Some(content_type), content.as_ref());
        self.parts.push((name.to_owned(), part));
        self
    }

    fn insert_text(&mut self, index: usize, name: &str, value: &str) {
        let disposition = format!("form-data; name=\"{}\"", quoted(name));
        self.parts.insert(index, (name.to_owned(), part(&disposition, None, value.as_bytes())));
    }

    /// Adds a text field after all fields with these names, and before all others.
    #[cfg(feature = "sessions")]
    pub(super) fn insert_text_after(&mut self, names: &[String], name: &str, value: &str) {
        let before = self.parts.iter().rposition(|(part, _)| names.contains(part));
        self.insert_text(before.map_or(0, |index| index + 1), name, value);
    }

    /// Returns the content.
    pub(super) fn content(&self) -> Vec<u8> {
        let mut content: Vec<u8> = self.parts.iter().flat_map(|(_, part)| part).copied().collect();
        content.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        content
    }

    /// Returns the type of the content.
    pub(super) fn content_type() -> String {
        format!("multipart/form-data; boundary={BOUNDARY}")
    }
}

fn part(disposition: &str, content_type: Option<&str>, content: &[u8]) -> Vec<u8> {
    let mut part = format!("--{BOUNDARY}\r\ncontent-disposition: {disposition}\r\n").into_bytes();
    if let Some(content_type) = content_type {
        part.extend_from_slice(format!("content-type: {content_type}\r\n").as_bytes());
    }
    part.extend_from_slice(b"\r\n");
    part.extend_from_slice(content);
    part.extend_from_slice(b"\r\n");
    part
}

impl fmt::Debug for MultipartForm {
    // Fields are not printed: a password may be among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultipartForm").field("parts", &self.parts.len()).finish()
    }
}

/// Escapes quotes and line ends of a name as the HTML standard does.
fn quoted(text: &str) -> String {
    text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
