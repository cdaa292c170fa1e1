//! Files that users upload. Their contents are in a folder that all instances share, and the rest
//! is in the database.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use diesel::prelude::*;
use filoplume::Result;
use filoplume::prelude::*;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::accounts::User;
use crate::database::Transaction;
use crate::schema::files;

/// The longest upload.
const UPLOAD_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The longest name that is kept, in characters.
const NAME_CHARACTERS_MAX: usize = 100;

#[derive(Clone)]
pub(crate) struct Folder(Arc<PathBuf>);

impl Folder {
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        Ok(Self(Arc::new(path)))
    }
}

#[derive(Queryable, Serialize)]
struct Stored {
    id: i64,
    name: String,
    bytes: i64,
}

pub(crate) fn router(folder: Folder) -> Router {
    Router::new()
        .route("/files", get(list).post(upload).content_bytes_max(UPLOAD_BYTES_MAX))
        .get("/files/{id}", download)
        .state(folder)
}

fn list(user: User, transaction: Transaction) -> Result<Json<Vec<Stored>>> {
    let list = transaction.run(|connection| {
        files::table
            .filter(files::owner.eq(user.id))
            .select((files::id, files::name, files::bytes))
            .order(files::id)
            .load(connection)
    })?;
    Ok(Json(list))
}

/// Saves the files of a form. Each is written to the folder while it arrives, and stays there if
/// the transaction is committed.
fn upload(
    user: User,
    transaction: Transaction,
    State(folder): State<Folder>,
    mut form: Multipart,
) -> Result<(StatusCode, Json<Vec<Stored>>)> {
    let mut saved = Vec::new();
    while let Some(mut field) = form.next_field()? {
        let Some(name) = field.file_name() else { continue };
        let name: String = name.chars().take(NAME_CHARACTERS_MAX).collect();
        let mut file = NamedTempFile::new_in(&*folder.0)?;
        let bytes = io::copy(&mut field, &mut file)?;
        saved.push((name, file, i64::try_from(bytes)?));
    }
    // The transaction begins only here, because the upload may have taken long.
    let mut stored = Vec::new();
    for (name, file, bytes) in saved {
        let path = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let id: i64 = transaction.run(|connection| {
            diesel::insert_into(files::table)
                .values((
                    files::owner.eq(user.id),
                    files::name.eq(&name),
                    files::stored.eq(path),
                    files::bytes.eq(bytes),
                ))
                .returning(files::id)
                .get_result(connection)
        })?;
        transaction.after_commit(move || _ = file.keep());
        stored.push(Stored { id, name, bytes });
    }
    Ok((StatusCode::CREATED, Json(stored)))
}

/// Sends a file of the user. One of another user counts as not found.
fn download(
    user: User,
    transaction: Transaction,
    State(folder): State<Folder>,
    Path(id): Path<i64>,
) -> Result<File> {
    let stored: Option<String> = transaction.run(|connection| {
        files::table
            .filter(files::owner.eq(user.id).and(files::id.eq(id)))
            .select(files::stored)
            .first(connection)
            .optional()
    })?;
    let stored = stored.ok_or_else(|| Error::not_found("there is no such file"))?;
    Ok(File::open(folder.0.join(stored))?)
}
