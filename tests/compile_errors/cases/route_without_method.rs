use filoplume::prelude::*;

fn main() {
    let _ = App::new().route("/", || "hello");
}
