//! A redirect as the error of a `Result<T>`.

use filoplume::prelude::*;

fn page(Path(id): Path<u32>) -> Result<String> {
    if id == 0 {
        return Err(Redirect::to("/login"));
    }
    Ok(format!("page {id}"))
}

fn main() {
    let _ = App::new().get("/{id}", page);
}
