//! The smallest app. Run it and type `curl http://127.0.0.1:5000`.

use filoplume::prelude::*;

fn main() -> Result<()> {
    App::new().get("/", || "Hello from Filoplume!").listen("127.0.0.1:5000")
}
