//! A state and a capture that may be missing.

use filoplume::prelude::*;

fn main() {
    App::new().get("/", |_: Option<State<String>>| "hello").test();
    App::new().get("/{page}", |_: Option<Path<u32>>| "hello").test();
}
