//! A method, and a name of the prelude, of features that are off.

use filoplume::prelude::*;

fn main() {
    App::new().get("/", |session: Session| "hello").test();
    App::new().files("/", "public").test();
}
