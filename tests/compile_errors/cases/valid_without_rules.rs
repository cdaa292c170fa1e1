//! `Valid` of a type without `#[derive(garde::Validate)]`.

use filoplume::prelude::*;

#[derive(serde::Deserialize)]
struct Note {
    title: String,
}

fn add(Valid(Json(note)): Valid<Json<Note>>) -> String {
    note.title
}

fn main() {
    let _ = App::new().post("/", add);
}
