//! Middleware beside the handler, as in Express.

use filoplume::prelude::*;

fn check(request: Request, next: Next) -> Response {
    next.run(request)
}

fn main() {
    let _ = App::new().get("/", check, || "Hello!");
}
