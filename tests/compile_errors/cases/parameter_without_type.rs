use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/users/{id}", |id| format!("user {id}"));
}
