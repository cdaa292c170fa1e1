use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/{name}", |Path(name): Path<&str>| format!("hello {name}"));
}
