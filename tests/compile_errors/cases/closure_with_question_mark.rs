use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", || {
        let text = std::fs::read_to_string("notes.txt")?;
        Ok(text)
    });
}
