use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", |request: &Request| request.path().to_owned());
}
