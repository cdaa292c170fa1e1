//! A port that is the text of a variable.

use filoplume::prelude::*;

fn main() -> filoplume::Result<()> {
    let port = std::env::var("PORT").unwrap_or_else(|_| "5000".to_owned());
    App::new().get("/", || "hello").listen(("127.0.0.1", port))
}
