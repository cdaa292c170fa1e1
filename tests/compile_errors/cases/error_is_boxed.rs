use filoplume::prelude::*;

fn notes() -> Result<String, Box<dyn std::error::Error>> {
    Ok(std::fs::read_to_string("notes.txt")?)
}

fn main() {
    let _ = App::new().get("/", notes);
}
