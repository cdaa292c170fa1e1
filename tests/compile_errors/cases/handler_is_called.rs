use filoplume::prelude::*;

fn hello() -> &'static str {
    "hello"
}

fn main() {
    let _ = App::new().get("/", hello());
}
