//! A field of a multipart form.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

use bytes::Bytes;
use filoplume_runtime::{Body, Headers};

use super::parser::Parser;
use super::rejection::MultipartRejection;
use crate::disk::File;

/// A field of a [`Multipart`](super::Multipart): a text or a file. Its content is read as it
/// arrives.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::testing::MultipartForm;
///
/// fn upload(mut form: Multipart) -> Result<String> {
///     let Some(field) = form.next_field()? else {
///         return Err(Error::bad_request("an empty form"));
///     };
///     let told = format!(
///         "{}: {:?}, {:?}",
///         field.name(),
///         field.file_name(),
///         field.content_type()
///     );
///     Ok(format!("{told}, {} bytes", field.bytes()?.len()))
/// }
///
/// let form = MultipartForm::new().file("photo", "cat.png", "image/png", b"meow");
/// let answer = App::new().post("/", upload).test().post("/").multipart(form).send();
/// answer.assert_text(r#"photo: Some("cat.png"), Some("image/png"), 4 bytes"#);
/// ```
pub struct Field<'a> {
    parser: &'a mut Parser<Body>,
}

impl<'a> Field<'a> {
    pub(super) fn new(parser: &'a mut Parser<Body>) -> Self {
        Self { parser }
    }

    /// Returns the name. Several fields can have the same name.
    pub fn name(&self) -> &str {
        &self.parser.head.name
    }

    /// Returns the name of the file without folders and control characters. Returns `None` if
    /// nothing is left, as for a file input without a selected file.
    ///
    /// The client chooses the name. It can be `.htaccess`, or the name of an existing file. You can
    /// display and store it, but save files under names of your own.
    pub fn file_name(&self) -> Option<&str> {
        self.parser.head.file_name.as_deref()
    }

    /// Returns whether the field is a file, even one without a name.
    pub fn is_file(&self) -> bool {
        self.parser.head.is_file
    }

    /// Returns the content type that the client sent, such as `image/png`.
    pub fn content_type(&self) -> Option<&str> {
        self.headers().get_str("content-type")
    }

    /// Returns all headers of the field.
    pub fn headers(&self) -> &Headers {
        &self.parser.head.headers
    }

    /// Returns the rest of the content in memory.
    ///
    /// # Errors
    ///
    /// If it is longer than [`memory_bytes_max`](super::MultipartLimits::memory_bytes_max), or the
    /// form is malformed.
    pub fn bytes(self) -> Result<Bytes, MultipartRejection> {
        self.collect().map(Into::into)
    }

    /// Returns the rest of the content as text.
    ///
    /// # Errors
    ///
    /// Like those of [`bytes`](Self::bytes). It also fails if the content is not UTF-8.
    pub fn text(self) -> Result<String, MultipartRejection> {
        let field = self.name().to_owned();
        String::from_utf8(self.collect()?).map_err(|error| MultipartRejection::NotUtf8 {
            field,
            at: error.utf8_error().valid_up_to(),
        })
    }

    /// Writes the rest of the content to a new file, and returns its length. An existing file is
    /// not overwritten. If writing fails, the new file is removed.
    ///
    /// ```
    /// use filoplume::prelude::*;
    /// use filoplume::testing::MultipartForm;
    ///
    /// # let uploads = tempfile::tempdir()?;
    /// # let folder = uploads.path().to_owned();
    /// let app = App::new().post("/", move |mut form: Multipart| -> Result<String> {
    ///     let Some(field) = form.next_field()? else {
    ///         return Err(Error::bad_request("no file"));
    ///     };
    ///     let length = field.save_to(folder.join("17.upload"))?; // a name of our own
    ///     Ok(format!("{length} bytes are kept"))
    /// });
    /// let form = MultipartForm::new().file("photo", "cat.png", "image/png", b"meow");
    /// app.test().post("/").multipart(form).send().assert_text("4 bytes are kept");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the file exists (`io::ErrorKind::AlreadyExists`) or cannot be written, or if the form is
    /// malformed or too long. `?` distinguishes these: errors of the client get their own status,
    /// others, such as a full disk or a file that exists, are a `500`.
    pub fn save_to(mut self, path: impl AsRef<Path>) -> io::Result<u64> {
        let path = path.as_ref();
        let mut file = File::create_new(path).map_err(|error| at(path, "create", &error))?;
        let saved = self.copy_to(&mut file, path);
        if saved.is_err() {
            drop(file);
            // The handler receives the error of the upload, so this one is only logged.
            if let Err(error) = fs::remove_file(path) {
                let path = path.display();
                tracing::warn!(%path, %error, "an incomplete upload could not be removed");
            }
        }
        saved
    }

    fn copy_to(&mut self, file: &mut File, path: &Path) -> io::Result<u64> {
        let not_written = |error| at(path, "write", &error);
        let mut length = 0;
        loop {
            let count = match self.fill_buf()? {
                [] => break,
                content => {
                    file.write_all(content).map_err(not_written)?;
                    content.len()
                }
            };
            self.consume(count);
            length += count as u64;
        }
        file.flush().map_err(not_written)?;
        Ok(length)
    }

    fn collect(self) -> Result<Vec<u8>, MultipartRejection> {
        let bytes_max = self.parser.limits.memory_bytes_max;
        let mut collected = Vec::new();
        loop {
            let content = self.parser.content()?;
            if content.is_empty() {
                return Ok(collected);
            }
            if (collected.len() + content.len()) as u64 > bytes_max {
                return Err(MultipartRejection::FieldTooLong {
                    field: self.name().to_owned(),
                    bytes_max,
                });
            }
            collected.extend_from_slice(content);
            let count = content.len();
            self.parser.consume(count);
        }
    }
}

/// Adds the path to an error. The system's message does not contain it.
fn at(path: &Path, verb: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", path.display()))
}

impl Read for Field<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

/// Reads the content without copying it, and by lines.
impl BufRead for Field<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.parser.content().map_err(MultipartRejection::into_io)
    }

    fn consume(&mut self, count: usize) {
        self.parser.consume(count);
    }
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field")
            .field("name", &self.name())
            .field("file_name", &self.file_name())
            .field("content_type", &self.content_type())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::super::MultipartLimits;
    use super::*;

    #[test]
    fn a_read_of_nothing_does_not_wait_for_content() {
        let form = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n123";
        let body = Body::from(form.as_bytes().to_vec());
        let mut parser = Parser::new(body, "b", MultipartLimits::new());
        assert!(parser.next_part().unwrap());
        let mut field = Field::new(&mut parser);
        assert_eq!(field.read(&mut [0; 9]).unwrap(), 3);
        assert_eq!(field.read(&mut []).unwrap(), 0);
        assert!(field.read(&mut [0]).is_err(), "the form ends early");
    }
}
