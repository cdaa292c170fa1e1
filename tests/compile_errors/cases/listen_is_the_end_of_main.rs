use filoplume::prelude::*;

fn main() {
    App::new().get("/", || "hello").listen("127.0.0.1:5000")
}
