//! Values in `Html` that are not text.

use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/json", || Html(Json(1)));
    let _ = App::new().get("/number", || Html(17));
}
