use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", || 42);
}
