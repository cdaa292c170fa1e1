//! Functions that responses of other frameworks have.

use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/a", || Response::builder());
    let _ = App::new().get("/b", || Response::json("value"));
}
