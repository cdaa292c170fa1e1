//! A method as a handler, by its path and by its value.

use filoplume::prelude::*;

struct Pages;

impl Pages {
    fn index(&self) -> &'static str {
        "hello"
    }
}

fn main() {
    App::new().get("/", Pages::index).test();
    App::new().get("/", Pages.index).test();
}
