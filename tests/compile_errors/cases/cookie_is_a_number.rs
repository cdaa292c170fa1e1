//! Numbers as values of cookies.

use filoplume::Key;
use filoplume::prelude::*;

fn remember(cookies: Cookies, State(key): State<Key>) {
    cookies.set("visits", 3);
    cookies.signed(&key).set("seen", true);
}

fn main() {
    let _ = App::new().get("/", remember);
}
