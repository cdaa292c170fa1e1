//! A lock as a state, without an `Arc`.

use std::sync::Mutex;

use filoplume::prelude::*;

fn count(State(visits): State<Mutex<u32>>) -> String {
    visits.lock().unwrap().to_string()
}

fn main() {
    let _ = App::new().get("/", count).state(Mutex::new(0));
}
