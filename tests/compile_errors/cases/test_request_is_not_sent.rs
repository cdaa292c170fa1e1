//! A request of a test without `send`.

use filoplume::prelude::*;

fn main() {
    let client = App::new().get("/", || "Hello!").test();
    client.get("/").assert_status(200);
}
