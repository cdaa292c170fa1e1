use filoplume::prelude::*;

fn main() {
    let name = "Ada".to_owned();
    let _ = App::new().get("/", move || name);
}
