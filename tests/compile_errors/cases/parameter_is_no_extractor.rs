use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/users/{id}", |id: u64| format!("user {id}"));
}
