//! `return Err(..)` is missing, so that the guard lets everybody pass.

#![deny(warnings)]

use filoplume::prelude::*;

fn guard(request: Request, next: Next<'_>) -> Result<Response> {
    if request.header("x-key").is_none() {
        Error::forbidden("a key is needed");
    }
    Ok(next.run(request))
}

fn main() {
    App::new().get("/", || "secret").with(guard).listen("127.0.0.1:5000").unwrap();
}
