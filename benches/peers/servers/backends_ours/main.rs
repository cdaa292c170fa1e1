//! The framework with handlers that block for other reasons than a sleep. Nothing is marked.

use common::{HELLO, address_argument, look_up};
use filoplume::prelude::*;

fn main() -> Result<()> {
    App::new()
        .get("/plaintext", || HELLO)
        .get("/miss", |request: Request| look_up(request.query().unwrap_or_default()))
        .listen(address_argument())
}
