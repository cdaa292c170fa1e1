//! What a handler takes as a parameter, asked of the request.

use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/{id}", |request: Request| request.params("id"));
    let _ = App::new().post("/", |request: Request| request.json());
    let _ = App::new().get("/", |request: Request| request.state());
}
