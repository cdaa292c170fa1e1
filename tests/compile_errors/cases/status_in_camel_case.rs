//! The name that a status has in other crates.

use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", || StatusCode::NotFound);
}
