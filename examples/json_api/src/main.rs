//! A JSON API for a list of books: typed bodies, queries, statuses, and errors that name the field.
//!
//! ```sh
//! curl -d '{"title":"Dune","year":1965}' -H 'content-type: application/json' http://127.0.0.1:5000/books
//! curl 'http://127.0.0.1:5000/books?after=1950'
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use filoplume::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Default)]
struct Books(Arc<Mutex<BTreeMap<u32, Book>>>);

#[derive(Clone, Deserialize, Serialize)]
struct Book {
    title: String,
    year: i32,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Serialize)]
struct Stored {
    id: u32,
    #[serde(flatten)]
    book: Book,
}

#[derive(Deserialize)]
struct Filter {
    after: Option<i32>,
    #[serde(default)]
    tag: Vec<String>,
}

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    app().listen(address.as_deref().unwrap_or("127.0.0.1:5000"))
}

fn app() -> App {
    App::new()
        .route("/books", get(list).post(add))
        .route("/books/{id}", get(show).put(replace).delete(remove))
        .state(Books::default())
}

impl Books {
    fn lock(&self) -> Result<MutexGuard<'_, BTreeMap<u32, Book>>> {
        self.0.lock().map_err(|_| Error::unavailable("the books are lost"))
    }
}

fn list(State(books): State<Books>, Query(filter): Query<Filter>) -> Result<Json<Vec<Stored>>> {
    let books = books.lock()?;
    let wanted = books.iter().filter(|(_, book)| {
        filter.after.is_none_or(|after| book.year > after)
            && filter.tag.iter().all(|tag| book.tags.contains(tag))
    });
    Ok(Json(wanted.map(|(&id, book)| Stored { id, book: book.clone() }).collect()))
}

fn add(State(books): State<Books>, Json(book): Json<Book>) -> Result<impl IntoResponse> {
    let mut books = books.lock()?;
    let id = books.last_key_value().map_or(1, |(id, _)| id + 1);
    books.insert(id, book.clone());
    Ok((StatusCode::CREATED, [("location", format!("/books/{id}"))], Json(Stored { id, book })))
}

fn show(State(books): State<Books>, Path(id): Path<u32>) -> Result<Option<Json<Stored>>> {
    Ok(books.lock()?.get(&id).map(|book| Json(Stored { id, book: book.clone() })))
}

fn replace(
    State(books): State<Books>,
    Path(id): Path<u32>,
    Json(book): Json<Book>,
) -> Result<Json<Stored>> {
    let mut books = books.lock()?;
    let place =
        books.get_mut(&id).ok_or_else(|| Error::not_found(format!("there is no book {id}")))?;
    place.clone_from(&book);
    Ok(Json(Stored { id, book }))
}

fn remove(State(books): State<Books>, Path(id): Path<u32>) -> Result<StatusCode> {
    let removed = books.lock()?.remove(&id);
    Ok(if removed.is_some() { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
}
