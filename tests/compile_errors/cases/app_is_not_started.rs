use filoplume::prelude::*;

#[deny(unused_must_use)]
fn main() {
    App::new().get("/", || "hello");
}
