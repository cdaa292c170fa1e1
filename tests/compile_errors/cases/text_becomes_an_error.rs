//! A text that is converted into an error, which would have no status.

use filoplume::prelude::*;

fn greeting() -> Result<String> {
    Err("there is none".into())
}

fn main() {
    let _ = App::new().get("/", greeting);
}
