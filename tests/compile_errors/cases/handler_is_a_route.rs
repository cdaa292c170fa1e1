use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", get(|| "hello"));
}
