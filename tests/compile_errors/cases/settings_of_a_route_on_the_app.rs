//! Settings of a route that are written behind it, on what has many routes.

use filoplume::Permits;
use filoplume::prelude::*;

fn main() {
    App::new().get("/report", || "a long one").on_pool().test();
    Router::new().post("/photo", |_: String| "thanks").content_bytes_max(1 << 20);
    let connections = Permits::new("connections", 16);
    App::new().get("/user", || "found").uses(&connections).test();
}
