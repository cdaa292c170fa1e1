use filoplume::prelude::*;

fn add(text: String, list: Json<u8>) {}

fn main() {
    let _ = App::new().post("/", add);
}
