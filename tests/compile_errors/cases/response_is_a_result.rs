//! Branches that become responses, as with axum, where that cannot fail.

use filoplume::prelude::*;

fn page(Path(id): Path<u32>) -> Response {
    if id == 0 {
        return Redirect::to("/").into_response();
    }
    Html("a page").into_response()
}

fn main() {
    let _ = App::new().get("/{id}", page);
}
