use filoplume::prelude::*;

struct User {
    name: String,
}

fn main() {
    let _ = App::new().get("/", || User { name: "Ada".to_owned() });
}
