use filoplume::prelude::*;

fn notes() -> std::io::Result<String> {
    std::fs::read_to_string("notes.txt")
}

fn main() {
    let _ = App::new().get("/", notes);
}
