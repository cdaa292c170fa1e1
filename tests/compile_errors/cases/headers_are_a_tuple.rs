//! A header as a pair, without the array around it.

use filoplume::prelude::*;

fn main() {
    App::new().get("/", || (("x-user", "ada"), "hello")).test();
}
