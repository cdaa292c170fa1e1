//! `any` makes a route, and is no method of an app.

use filoplume::prelude::*;

fn main() {
    let _ = App::new().any("/", || "hello");
}
