use filoplume::prelude::*;

fn show(request: Request, text: String) {}

fn main() {
    let _ = App::new().post("/", show);
}
