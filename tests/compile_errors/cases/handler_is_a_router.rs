//! A router, or a text, in place of a handler.

use filoplume::prelude::*;

fn main() {
    App::new().get("/api", Router::new()).test();
    App::new().get("/", "hello").test();
}
