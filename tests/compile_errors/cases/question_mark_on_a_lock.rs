//! `?` behind `lock`: its error belongs to the handler, because it has the guard.

use std::sync::{Arc, Mutex};

use filoplume::prelude::*;

type Notes = Arc<Mutex<Vec<String>>>;

fn list(State(notes): State<Notes>) -> Result<String> {
    let notes = notes.lock()?;
    Ok(notes.join(", "))
}

fn main() {
    let _ = App::new().get("/", list).state(Notes::default());
}
