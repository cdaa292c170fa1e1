//! What the standard library has for addresses and fields, as parameters.

use std::collections::HashMap;
use std::net::SocketAddr;

use filoplume::prelude::*;

fn main() {
    App::new().get("/address", |_: SocketAddr| "hello").test();
    App::new().get("/query", |_: HashMap<String, String>| "hello").test();
}
