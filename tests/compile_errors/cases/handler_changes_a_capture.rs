use filoplume::prelude::*;

fn main() {
    let mut visits = 0;
    let _ = App::new().get("/", move || {
        visits += 1;
        visits.to_string()
    });
}
