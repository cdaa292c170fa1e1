//! Attributes that routes and `main` have elsewhere.

use filoplume::prelude::*;

#[get("/")]
fn index() -> &'static str {
    "Hello!"
}

#[filoplume::main]
fn main() {
    let _ = App::new().get("/", index);
}
