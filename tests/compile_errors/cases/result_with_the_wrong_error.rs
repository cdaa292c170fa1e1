use filoplume::prelude::*;

fn main() {
    let _ = App::new().post("/", |note: Result<Json<String>, String>| note.is_ok().to_string());
}
