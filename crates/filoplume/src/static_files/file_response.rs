//! A file as the result of a handler.

use std::error::Error as StdError;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Seek};
use std::path::Path;

use filoplume_runtime::{Headers, Method, Response};

use super::content::{Found, Source, Stored};
use super::folder::{Folder, Symlinks, found, is_not_found, open_path};
use super::path::FilePath;
use super::send::send;
use super::untrusted::OCTETS;
use crate::core::error::{Error, Result};
use crate::core::response::IntoResponse;
use crate::disk::File;
use crate::semantics::conditional::RequestConditions;
use crate::semantics::content_disposition::{attachment, harmless_name};
use crate::semantics::file_type;

/// A file that a handler returns, with the features of [`StaticFiles`](crate::StaticFiles).
///
/// ```
/// # use filoplume::prelude::*;
/// # let folder = tempfile::tempdir()?;
/// # let reports = folder.path().to_owned();
/// # std::fs::write(reports.join("17.csv"), "day,visits\n1,2\n")?;
/// let report = move |Path(id): Path<u32>| -> Result<FileResponse> {
///     // A missing file is a `404`.
///     let file = FileResponse::open(reports.join(format!("{id}.csv")))?;
///     Ok(file.attachment(format!("Übersicht {id}.csv")))
/// };
///
/// let client = App::new().get("/reports/{id}", report).test();
/// let whole = client.get("/reports/17").send();
/// whole.assert_text("day,visits\n1,2\n").assert_header("content-type", "text/csv; charset=utf-8");
/// let part = client.get("/reports/17").header("range", "bytes=0-2").send();
/// part.assert_status(206).assert_text("day");
/// client.get("/reports/17").header("if-none-match", "*").send().assert_status(304);
/// client.get("/reports/18").send().assert_status(404);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Responses to `GET` and `HEAD` have an `ETag`, a `Last-Modified`, a `Content-Type` that is
/// derived from the extension, and `X-Content-Type-Options: nosniff`. Conditions and ranges are
/// evaluated (RFC 9110, 13 and 14), so the status may become `206`, `304`, `412` or `416`. The
/// handler needs no parameter for that: if it returns a `FileResponse`, the framework keeps the
/// conditions of the request. The `FileResponse` may be in a `Result` or an `Option`, or have
/// headers in a tuple. The file is sent whole if the handler turns it into a [`Response`], if it
/// adds a status, and if the method is another one.
///
/// A short file is sent from memory. A long one is streamed in constant memory.
#[doc(alias("sendFile", "send_file", "ServeFile", "NamedFile"))]
#[must_use = "a response does nothing until a handler returns it"]
pub struct FileResponse {
    stored: Stored,
    /// The file name, which determines the type.
    name: String,
    content_type: Option<String>,
    attachment: Option<String>,
}

impl FileResponse {
    /// Opens a file at a path that the program chose. Symbolic links are followed, wherever they
    /// lead.
    ///
    /// Do not use this for a path that contains input of a client, which could be
    /// `reports/../../etc/passwd`. Use [`open_in`](Self::open_in) for that.
    ///
    /// # Errors
    ///
    /// A `404` if there is no such file, or if it is a folder, a FIFO, a socket or a device. A
    /// `500` if it cannot be opened for another reason, such as missing permissions.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match open_path(path) {
            Ok(file) => Self::of(file, &path.to_string_lossy()),
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                Err(not_found(path, "it is a folder"))
            }
            Err(error) if is_not_found(&error) => Err(not_found(path, &error.to_string())),
            Err(error) => Err(Error::internal(CannotSend::new(path, &error.to_string()))),
        }
    }

    /// Opens a file in a folder. The name may come from a client. It is a relative path below the
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
    /// A `404` for every path that [`StaticFiles`](crate::StaticFiles) does not serve: missing
    /// files, paths that are not files, names with `..`, hidden files, and symbolic links that
    /// leave the folder. A `500` if the folder does not exist.
    pub fn open_in(folder: impl AsRef<Path>, name: &str) -> Result<Self> {
        let path = folder.as_ref();
        let folder = Folder::open(path, Symlinks::Inside)
            .map_err(|error| Error::internal(CannotSend::new(path, &error.to_string())))?;
        let Some(file) = FilePath::parse_plain(name) else {
            return Err(not_found(Path::new(name), "the name leaves the folder, or is hidden"));
        };
        match folder.find(&file.text)? {
            Found::File(stored) => Ok(Self::new(stored, name)),
            Found::Folder => Err(not_found(&path.join(name), "it is a folder")),
            Found::Nothing => {
                Err(not_found(&path.join(name), "there is no such file in the folder"))
            }
        }
    }

    /// Returns a response with an open file. The whole file is sent, whatever its current position.
    /// The name determines the type.
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
    /// A `404` if it is not a file, such as a folder. A `500` if its metadata cannot be read.
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
            Found::Folder => Err(not_found(Path::new(name), "it is a folder")),
            Found::Nothing => Err(not_found(Path::new(name), "it is a FIFO, a socket or a device")),
        }
    }

    fn new(stored: Stored, name: &str) -> Self {
        Self { stored, name: name.to_owned(), content_type: None, attachment: None }
    }

    /// Makes browsers save the file under this name instead of showing it (`Content-Disposition`,
    /// RFC 6266). The name may come from anywhere, as for an
    /// [`Attachment`](crate::response::Attachment). If its extension is known, it also determines
    /// the type.
    pub fn attachment(mut self, name: impl Into<String>) -> Self {
        self.attachment = Some(name.into());
        self
    }

    /// Sets the type. Default: derived from the extension, or `application/octet-stream`.
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

    /// Returns the length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.stored.length
    }

    /// Returns whether the file is empty.
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
    const KEEPS_HEADERS: bool = false;

    /// Returns a response with the whole file.
    fn into_response(self) -> Result<Response> {
        self.respond(&Method::GET, &Headers::new(), false)
    }

    fn into_conditional_response(self, conditions: &RequestConditions) -> Result<Response> {
        let method = conditions.method();
        // For other methods, conditions are about the resource that they change, and not about this
        // file.
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

/// The path is for the log and for development mode. The client does not see it.
fn not_found(path: &Path, reason: &str) -> Error {
    Error::not_found("the file is not there").with_source(CannotSend::new(path, reason))
}

/// The reason why a file cannot be sent.
#[derive(Debug)]
struct CannotSend(String);

impl CannotSend {
    fn new(path: &Path, reason: &str) -> Self {
        Self(format!("the file \"{}\" cannot be sent: {reason}", path.display()))
    }
}

impl fmt::Display for CannotSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for CannotSend {}
