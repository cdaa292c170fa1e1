use filoplume::prelude::*;

fn keep(text: &str) -> String {
    text.to_owned()
}

fn main() {
    let _ = App::new().post("/", keep);
}
