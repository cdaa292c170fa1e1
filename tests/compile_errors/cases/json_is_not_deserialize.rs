use filoplume::prelude::*;

struct Note {
    title: String,
}

fn main() {
    let _ = App::new().post("/", |Json(note): Json<Note>| note.title);
}
