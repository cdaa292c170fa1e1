//! Uploads and downloads of any size, in constant memory.
//!
//! `upload [ADDRESS [FOLDER]]`; then open <http://127.0.0.1:5000>, or:
//!
//! ```sh
//! curl -F file=@film.mp4 http://127.0.0.1:5000/files
//! curl -T film.mp4 http://127.0.0.1:5000/files/film.mp4
//! curl http://127.0.0.1:5000/files
//! curl -C - -O http://127.0.0.1:5000/files/1-film.mp4
//! ```
//!
//! Without a folder, the files are kept in a temporary one until the program ends.

use std::fs;
use std::io;
use std::path::{self, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use filoplume::extract::Multipart;
use filoplume::prelude::*;
use serde::Serialize;
use uuid::Uuid;

/// The longest upload, a form with all of its files. Only the disk has to hold it.
const UPLOAD_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;

/// The most files that are kept. Without a limit, empty files alone could fill the disk.
const FILES_MAX: usize = 1000;

/// The longest name that is kept, in bytes. Most file systems allow 255, with the number before it.
const NAME_BYTES_MAX: usize = 100;

/// How the name of a file ends that has not arrived completely.
const PARTIAL: &str = ".partial";

/// The age from which such a file counts as left by a crash. An upload that takes as long would end
/// with an error.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(24 * 3600);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let temporary = tempfile::tempdir()?;
    let folder = arguments.next().map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    app(folder)?.listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app(folder: PathBuf) -> Result<App> {
    let uploads = Uploads::open(folder)?;
    Ok(App::new()
        .get("/", || Html(include_str!("upload.html")))
        .route("/files", get(list).post(upload).content_bytes_max(UPLOAD_BYTES_MAX))
        .route("/files/{name}", get(download).put(upload_raw).content_bytes_max(UPLOAD_BYTES_MAX))
        .state(uploads))
}

/// The folder with the files.
///
/// A file has a hidden name until it has arrived completely. Then its name consists of a number, so
/// that no upload replaces another one, and of the client's name with only safe characters. Several
/// instances may use one folder.
#[derive(Clone)]
struct Uploads {
    folder: Arc<PathBuf>,
    /// The number of the last upload.
    last: Arc<AtomicU64>,
}

#[derive(Serialize)]
struct Stored {
    name: String,
    bytes: u64,
}

impl Uploads {
    fn open(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        let uploads = Self { folder: Arc::new(folder), last: Arc::default() };
        uploads.remove_interrupted()?;
        let number = |file: &Stored| file.name.split('-').next()?.parse().ok();
        let last = uploads.list()?.iter().filter_map(number).max();
        uploads.last.store(last.unwrap_or(0), Ordering::Relaxed);
        Ok(uploads)
    }

    /// Removes what a crash has left, and no upload of another process that uses the folder.
    fn remove_interrupted(&self) -> io::Result<()> {
        for entry in fs::read_dir(&*self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Another process may have completed or removed the file meanwhile.
            let written = entry.metadata().and_then(|metadata| metadata.modified());
            let age = written.ok().and_then(|written| written.elapsed().ok());
            let is_partial = name.starts_with('.') && name.ends_with(PARTIAL);
            if is_partial && age.is_some_and(|age| age > INTERRUPTED_AFTER) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// Returns the files that have arrived completely.
    fn list(&self) -> io::Result<Vec<Stored>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&*self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // A file may have been removed meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() && !name.starts_with('.') {
                files.push(Stored { name, bytes: metadata.len() });
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    /// Stores a file. `write` copies its content to the path that it is given.
    fn store(
        &self,
        client_name: &str,
        write: impl FnOnce(&PathBuf) -> io::Result<u64>,
    ) -> Result<Stored> {
        if self.list()?.len() >= FILES_MAX {
            return Err(Error::new(StatusCode::INSUFFICIENT_STORAGE, "the folder is full"));
        }
        let partial = self.folder.join(format!(".{}{PARTIAL}", Uuid::new_v4()));
        let bytes = write(&partial)?;
        let named = self.name(&partial, &safe_name(client_name));
        fs::remove_file(&partial)?;
        let name = named?;
        Ok(Stored { name, bytes })
    }

    /// Gives a file a second name: the first number that is free, and the client's name.
    fn name(&self, partial: &path::Path, client_name: &str) -> io::Result<String> {
        loop {
            let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            let name = format!("{number}-{client_name}");
            match fs::hard_link(partial, self.folder.join(&name)) {
                Ok(()) => return Ok(name),
                // Another process has used the number. A link never replaces a file.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns a client's name with `_` in place of characters that are unsafe in a file system, shell
/// or page.
fn safe_name(client_name: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name: String = client_name
        .chars()
        .map(|c| if is_safe(c) { c } else { '_' })
        // A name that is too long loses its beginning, because the end has the extension.
        .rev()
        .take(NAME_BYTES_MAX)
        .collect();
    name.chars().rev().collect()
}

fn list(State(uploads): State<Uploads>) -> Result<Json<Vec<Stored>>> {
    Ok(Json(uploads.list()?))
}

/// Saves the files of a form. Each is written to the disk while it arrives.
fn upload(
    State(uploads): State<Uploads>,
    mut form: Multipart,
) -> Result<(StatusCode, Json<Vec<Stored>>)> {
    let mut stored = Vec::new();
    while let Some(field) = form.next_field()? {
        // Text fields, and file inputs without a selected file, are skipped.
        let Some(name) = field.file_name().map(str::to_owned) else { continue };
        stored.push(uploads.store(&name, |path| field.save_to(path))?);
    }
    Ok((StatusCode::CREATED, Json(stored)))
}

/// Saves the content of a request as a file.
fn upload_raw(
    State(uploads): State<Uploads>,
    Path(name): Path<String>,
    mut body: Body,
) -> Result<(StatusCode, Json<Stored>)> {
    let stored = uploads.store(&name, |path| body.save_to(path))?;
    Ok((StatusCode::CREATED, Json(stored)))
}

/// Sends a file, or the ranges of it that the client asks for. Browsers save it and never show it,
/// because an uploaded page must not run in the name of this site.
fn download(State(uploads): State<Uploads>, Path(name): Path<String>) -> Result<FileResponse> {
    Ok(FileResponse::open_in(&*uploads.folder, &name)?.attachment(name))
}
