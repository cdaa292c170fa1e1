//! Forms: validated fields, and files of any size that are streamed to the disk.
//!
//! `forms_and_uploads [ADDRESS [FOLDER]]`; then open <http://127.0.0.1:5000>, or:
//!
//! ```sh
//! curl -d name=Ada -d email=ada@example.org -d topics=cats -d topics=tea http://127.0.0.1:5000/sign-up
//! curl -F title=cats -F file=@photo.jpg http://127.0.0.1:5000/upload
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use filoplume::extract::{Multipart, Valid};
use filoplume::prelude::*;
use garde::Validate;
use serde::{Deserialize, Serialize};

/// The longest upload. A streamed content is never completely in memory.
const UPLOAD_BYTES_MAX: u64 = 1024 * 1024 * 1024;

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Forms</title>
<form method="post" action="/sign-up">
  <p><label>Name <input name="name"></label> <label>E-mail <input name="email"></label></p>
  <p><label><input type="checkbox" name="topics" value="cats"> cats</label> <label><input type="checkbox" name="topics" value="tea"> tea</label></p>
  <button>Sign up</button>
</form>
<form method="post" action="/upload" enctype="multipart/form-data">
  <p><input name="title" placeholder="Title"> <input type="file" name="file" multiple></p>
  <button>Upload</button>
</form>
"#;

fn main() -> Result<()> {
    let folder = std::env::args().nth(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let address = std::env::args().nth(1);
    app(folder).listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app(folder: PathBuf) -> App {
    App::new()
        .get("/", || Html(PAGE))
        .post("/sign-up", sign_up)
        .route("/upload", post(upload).content_bytes_max(UPLOAD_BYTES_MAX))
        // The same with the file as the content: `curl -T photo.jpg http://127.0.0.1:5000/raw`.
        .route("/raw", put(raw).content_bytes_max(UPLOAD_BYTES_MAX))
        .state(Uploads { folder: Arc::new(folder), count: Arc::default() })
}

#[derive(Deserialize, Validate)]
struct SignUp {
    #[garde(length(chars, min = 2, max = 40))]
    name: String,
    #[garde(email)]
    email: String,
    /// A field that may occur several times is a list.
    #[serde(default)]
    #[garde(length(max = 10))]
    topics: Vec<String>,
}

/// Called only for valid forms. All others get a 422 that lists every invalid field.
fn sign_up(Valid(Form(form)): Valid<Form<SignUp>>) -> String {
    format!("Welcome, {} <{}>, who likes {}.", form.name, form.email, form.topics.join(" and "))
}

#[derive(Clone)]
struct Uploads {
    folder: Arc<PathBuf>,
    count: Arc<AtomicU64>,
}

impl Uploads {
    /// Returns a new path. The client's file name must never be a part of a path.
    fn next_path(&self) -> PathBuf {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("upload-{}-{number}", std::process::id()))
    }
}

#[derive(Serialize)]
struct Saved {
    field: String,
    file_name: Option<String>,
    bytes: u64,
}

/// Reads the fields one after the other, as they arrive. A file is written while it is received.
fn upload(
    State(uploads): State<Uploads>,
    mut form: Multipart,
) -> Result<(StatusCode, Json<Vec<Saved>>)> {
    let mut saved = Vec::new();
    while let Some(field) = form.next_field()? {
        let name = field.name().to_owned();
        let file_name = field.file_name().map(str::to_owned);
        let bytes = match file_name {
            Some(_) => field.save_to(uploads.next_path())?,
            None => field.text()?.len() as u64,
        };
        saved.push(Saved { field: name, file_name, bytes });
    }
    Ok((StatusCode::CREATED, Json(saved)))
}

fn raw(State(uploads): State<Uploads>, mut body: Body) -> Result<(StatusCode, String)> {
    let length = body.save_to(uploads.next_path())?;
    Ok((StatusCode::CREATED, format!("{length} bytes")))
}
