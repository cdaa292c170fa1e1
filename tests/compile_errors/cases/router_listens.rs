//! A router that is served without an app.

use filoplume::prelude::*;

fn main() -> filoplume::Result<()> {
    Router::new().get("/", || "hello").listen("127.0.0.1:0")
}
