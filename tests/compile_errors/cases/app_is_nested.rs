//! An app in place of a router.

use filoplume::prelude::*;

fn main() {
    let api = App::new().get("/users", || "users");
    let _ = App::new().nest("/api", api);
}
