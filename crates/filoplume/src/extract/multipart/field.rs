//! One field of a form.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;

use bytes::Bytes;
use filoplume_runtime::{Body, Headers};

use super::parser::Parser;
use super::rejection::MultipartRejection;
use crate::disk::File;

/// One field of a [`Multipart`](super::Multipart): a text or a file. Its content is read as it
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

    /// Returns the name. Several fields may have the same.
    pub fn name(&self) -> &str {
        &self.parser.head.name
    }

    /// Returns the name of the file, as the client calls it: without folders and control
    /// characters, and `None` if nothing is left, as for a file that was not chosen.
    ///
    /// It is still the client's choice, and may be `.htaccess`, or the name of what is there
    /// already: show it and keep it, but save files under names of your own.
    pub fn file_name(&self) -> Option<&str> {
        self.parser.head.file_name.as_deref()
    }

    /// Returns whether it is a file, be it without a name.
    pub fn is_file(&self) -> bool {
        self.parser.head.is_file
    }

    /// Returns what the client believes the content to be, such as `image/png`.
    pub fn content_type(&self) -> Option<&str> {
        self.headers().get_str("content-type")
    }

    /// Returns all headers of the field.
    pub fn headers(&self) -> &Headers {
        &self.parser.head.headers
    }

    /// Returns the rest of the content, collected in memory.
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
    /// As of [`bytes`](Self::bytes), and if it is not UTF-8.
    pub fn text(self) -> Result<String, MultipartRejection> {
        let field = self.name().to_owned();
        String::from_utf8(self.collect()?).map_err(|error| MultipartRejection::NotUtf8 {
            field,
            at: error.utf8_error().valid_up_to(),
        })
    }

    /// Writes the rest of the content to a new file, and returns its length. A file that is there
    /// already is not overwritten; one that could not be finished is removed.
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
    /// If the file is there already or cannot be written, or the form is malformed or too long. `?`
    /// tells these apart: what is the client's fault is answered as such, the rest, such as a full
    /// disk, with `500`.
    pub fn save_to(mut self, path: impl AsRef<Path>) -> io::Result<u64> {
        let path = path.as_ref();
        let mut file = File::create_new(path)?;
        let saved = self.copy_to(&mut file);
        if saved.is_err() {
            drop(file);
            // The first error is the one to tell the handler.
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(path = %path.display(), %error, "half of an upload could not be removed");
            }
        }
        saved
    }

    fn copy_to(&mut self, writer: &mut impl Write) -> io::Result<u64> {
        let mut length = 0;
        loop {
            let count = match self.fill_buf()? {
                [] => break,
                content => {
                    writer.write_all(content)?;
                    content.len()
                }
            };
            self.consume(count);
            length += count as u64;
        }
        writer.flush()?;
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

/// Content can be looked at where it lies, and read by lines.
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
