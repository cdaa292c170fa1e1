//! A port without a host.

use filoplume::prelude::*;

fn main() -> filoplume::Result<()> {
    App::new().get("/", || "hello").listen(5000)
}
