use filoplume::prelude::*;

fn main() {
    let _ = App::new().post("/", |Json(name): Json<&str>| format!("hello {name}"));
}
