//! One file as what a handler returns.

use std::error::Error as StdError;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Seek};
use std::path::Path;

use filoplume_runtime::{Headers, Method, Response};

use super::content::{Found, Source, Stored};
use super::folder::{Folder, Symlinks, found, is_nothing, open_path};
use super::path::FilePath;
use super::send::send;
use super::untrusted::OCTETS;
use crate::core::error::{Error, Result};
use crate::core::response::IntoResponse;
use crate::disk::File;
use crate::semantics::conditional::RequestConditions;
use crate::semantics::content_disposition::{attachment, harmless_name};
use crate::semantics::file_type;

/// A file that a handler returns, answered as those of [`StaticFiles`](crate::StaticFiles) are.
///
/// ```
/// # use filoplume::prelude::*;
/// # let folder = tempfile::tempdir()?;
/// # let reports = folder.path().to_owned();
/// # std::fs::write(reports.join("17.csv"), "day,visits\n1,2\n")?;
/// let report = move |Path(id): Path<u32>| -> Result<FileResponse> {
///     let file = FileResponse::open(reports.join(format!("{id}.csv")))?;        // 404 if there is none
///     Ok(file.attachment(format!("Übersicht {id}.csv")))
/// };
///
/// let client = App::new().get("/reports/{id}", report).test();
/// let whole = client.get("/reports/17").send();
/// whole.assert_text("day,visits\n1,2\n").assert_header("content-type", "text/csv; charset=utf-8");
/// client.get("/reports/17").header("range", "bytes=0-2").send().assert_status(206).assert_text("day");
/// client.get("/reports/17").header("if-none-match", "*").send().assert_status(304);
/// client.get("/reports/18").send().assert_status(404);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `GET` and `HEAD` are answered with an `ETag`, a `Last-Modified`, a `Content-Type` by the ending
/// of the name, and `X-Content-Type-Options: nosniff`; conditions and ranges are evaluated (RFC
/// 9110, 13 and 14), so it may become a `206`, `304`, `412` or `416`. The handler needs no
/// parameter for that: the framework keeps the conditions of requests whose handler returns a
/// `FileResponse`, be it in a `Result`, an `Option`, or behind headers. What a handler makes a
/// [`Response`] of itself, or sends with a status of its own, is sent whole, and so is the answer
/// to another method.
///
/// A short file is sent from memory, a long one while it is read, in constant memory.
#[must_use = "a response does nothing until a handler returns it"]
pub struct FileResponse {
    stored: Stored,
    /// What the file is called, for its type.
    name: String,
    content_type: Option<String>,
    attachment: Option<String>,
}

impl FileResponse {
    /// Opens a file at a path of the program's own. Symbolic links are followed, wherever they
    /// lead.
    ///
    /// A path that is made of what a client sent may lead anywhere, such as
    /// `reports/../../etc/passwd`: then it is [`open_in`](Self::open_in) that should be called.
    ///
    /// # Errors
    ///
    /// A `404` if there is no such file, or if it is a folder, a FIFO, a socket or a device. A
    /// `500` if it cannot be opened for another reason, such as that it may not be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match open_path(path) {
            Ok(file) => Self::of(file, &path.to_string_lossy()),
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                Err(no_file(path, "it is a folder"))
            }
            Err(error) if is_nothing(&error) => Err(no_file(path, &error.to_string())),
            Err(error) => Err(Error::internal(NoFile::new(path, &error.to_string()))),
        }
    }

    /// Opens a file of a folder, whose name may come from a client. It is a plain path below the
    /// folder, such as `2026/may.csv`.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let folder = tempfile::tempdir()?;
    /// # let uploads = folder.path().join("uploads");
    /// # std::fs::create_dir(&uploads)?;
    /// # std::fs::write(uploads.join("cat.png"), "meow")?;
    /// # std::fs::write(folder.path().join("secret"), "secret")?;
    /// let app = App::new().get("/uploads/{name}", move |Path(name): Path<String>| {
    ///     FileResponse::open_in(&uploads, &name)
    /// });
    /// let client = app.test();
    /// client.get("/uploads/cat.png").send().assert_text("meow");
    /// client.get("/uploads/..%2Fsecret").send().assert_status(404);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A `404` for all that [`StaticFiles`](crate::StaticFiles) does not serve: what is not there,
    /// what is no file, names with `..`, hidden files, and symbolic links that leave the folder. A
    /// `500` if there is no such folder.
    pub fn open_in(folder: impl AsRef<Path>, name: &str) -> Result<Self> {
        let path = folder.as_ref();
        let folder = Folder::open(path, Symlinks::Inside)
            .map_err(|error| Error::internal(NoFile::new(path, &error.to_string())))?;
        let Some(file) = FilePath::of_name(name) else {
            return Err(no_file(Path::new(name), "the name leaves the folder, or is hidden"));
        };
        match folder.find(&file.text)? {
            Found::File(stored) => Ok(Self::new(stored, name)),
            Found::Folder => Err(no_file(&path.join(name), "it is a folder")),
            Found::Nothing => Err(no_file(&path.join(name), "there is no such file in the folder")),
        }
    }

    /// Returns the response of a file that is open. All of it is sent, wherever it was read to. The
    /// name says what type it has.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("17.upload");
    /// # std::fs::write(&path, "<svg/>")?;
    /// let app = App::new().get("/", move || {
    ///     FileResponse::from_file(std::fs::File::open(&path)?, "drawing.svg")
    /// });
    /// app.test().get("/").send().assert_header("content-type", "image/svg+xml");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A `404` if it is no file, such as a folder. A `500` if the system says nothing about it.
    #[allow(
        unused_qualifications,
        clippy::useless_conversion,
        reason = "files of unit tests have another type"
    )]
    pub fn from_file(mut file: fs::File, name: &str) -> Result<Self> {
        file.rewind()?;
        Self::of(file.into(), name)
    }

    fn of(file: File, name: &str) -> Result<Self> {
        let metadata = file.metadata()?;
        match found(file, &metadata, name) {
            Found::File(stored) => Ok(Self::new(stored, name)),
            Found::Folder => Err(no_file(Path::new(name), "it is a folder")),
            Found::Nothing => Err(no_file(Path::new(name), "it is a FIFO, a socket or a device")),
        }
    }

    fn new(stored: Stored, name: &str) -> Self {
        Self { stored, name: name.to_owned(), content_type: None, attachment: None }
    }

    /// Has browsers save the file under this name, instead of showing it (`Content-Disposition`,
    /// RFC 6266). The name may come from anywhere, as that of an
    /// [`Attachment`](crate::response::Attachment) may, and says what type the file has if its
    /// ending is known.
    pub fn attachment(mut self, name: impl Into<String>) -> Self {
        self.attachment = Some(name.into());
        self
    }

    /// Sets the type. Default: by the ending of the name, else `application/octet-stream`.
    ///
    /// ```
    /// # use filoplume::prelude::*;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("17.dat");
    /// # std::fs::write(&path, "...")?;
    /// let measures = move || -> Result<FileResponse> {
    ///     Ok(FileResponse::open(&path)?.content_type("application/x-measures"))
    /// };
    /// let client = App::new().get("/", measures).test();
    /// client.get("/").send().assert_header("content-type", "application/x-measures");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Returns how many bytes the file has.
    pub fn len(&self) -> u64 {
        self.stored.length
    }

    /// Returns whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the response to a request with this method and these headers.
    fn respond(self, method: &Method, headers: &Headers, accepts_ranges: bool) -> Result<Response> {
        let of_download = self.attachment.as_deref().map(harmless_name);
        let guess = |name: &str| file_type::content_type(name);
        let content_type = self.content_type.or_else(|| of_download.as_deref().and_then(guess));
        let content_type =
            content_type.or_else(|| guess(&self.name)).unwrap_or_else(|| OCTETS.to_owned());
        let mut response = Response::default();
        response.set_header("content-type", &content_type)?;
        response.set_header("x-content-type-options", "nosniff")?;
        if accepts_ranges {
            response.set_header("accept-ranges", "bytes")?;
        }
        if let Some(etag) = self.stored.validators.etag_value() {
            response.set_header("etag", etag)?;
        }
        if let Some(date) = self.stored.validators.last_modified_value() {
            response.set_header("last-modified", date)?;
        }
        if let Some(name) = &self.attachment {
            response.set_header("content-disposition", attachment(name))?;
        }
        send(response, method, headers, self.stored, &content_type)
    }
}

impl IntoResponse for FileResponse {
    const IS_CONDITIONAL: bool = true;

    /// All of the file.
    fn into_response(self) -> Result<Response> {
        self.respond(&Method::GET, &Headers::new(), false)
    }

    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response> {
        let method = conditions.method();
        // Conditions of others are about what they change, which is not this file.
        if [Method::GET, Method::HEAD].contains(method) {
            self.respond(method, conditions.headers(), true)
        } else {
            self.into_response()
        }
    }
}

impl fmt::Debug for FileResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileResponse")
            .field("name", &self.name)
            .field("length", &self.stored.length)
            .field("attachment", &self.attachment)
            .finish_non_exhaustive()
    }
}

/// The path is for the log and for developers, not for the client.
fn no_file(path: &Path, reason: &str) -> Error {
    Error::not_found("the file is not there").with_source(NoFile::new(path, reason))
}

/// Why a file cannot be sent.
#[derive(Debug)]
struct NoFile(String);

impl NoFile {
    fn new(path: &Path, reason: &str) -> Self {
        Self(format!("the file \"{}\" cannot be sent: {reason}", path.display()))
    }
}

impl fmt::Display for NoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for NoFile {}
