//! A boxed handler that threads cannot share.

use filoplume::prelude::*;

fn main() {
    let handler: Box<dyn Fn() -> &'static str> = Box::new(|| "hello");
    App::new().get("/", handler).test();
}
