use filoplume::prelude::*;

struct Note {
    title: String,
}

fn main() {
    let _ = App::new().get("/", || Json(Note { title: "tea".to_owned() }));
}
