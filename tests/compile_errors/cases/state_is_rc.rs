use std::rc::Rc;

use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", |State(motto): State<Rc<str>>| motto.to_string());
}
