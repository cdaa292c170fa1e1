//! The name that a status has in other crates. It is only a warning, which is denied here.

#![deny(warnings)]

use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", || StatusCode::NotFound);
}
