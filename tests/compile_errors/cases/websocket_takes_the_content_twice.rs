use filoplume::prelude::*;

fn open(_: String, _: Json<u8>) {}

fn main() {
    let _ = App::new().websocket("/", open);
}
