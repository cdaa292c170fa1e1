use filoplume::prelude::*;

fn main() {
    let names = vec!["Ada".to_owned()];
    let first = &names[0];
    let _ = App::new().get("/", move || first.len().to_string());
}
