use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", || (404, "not here"));
}
