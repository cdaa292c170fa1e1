use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", |_: Option<Query<Vec<(String, String)>>>| "hello");
}
