use std::rc::Rc;

use filoplume::prelude::*;

fn main() {
    let name = Rc::new("Ada".to_owned());
    let _ = App::new().get("/", move || format!("hello {name}"));
}
