//! A text that is converted into an error, which would have no status.

use filoplume::prelude::*;

fn greeting() -> Result<String> {
    Err("there is none".into())
}

fn number(text: &str) -> Result<u32> {
    text.parse().map_err(|_| format!("{text} is no number").into())
}

fn main() {
    let _ = App::new().get("/", greeting).get("/one", || number("one").map(|one| one.to_string()));
}
