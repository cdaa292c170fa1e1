use filoplume::prelude::*;

fn main() {
    let _ = App::new().get("/", || {
        let name = "Ada".to_owned();
        name.as_str()
    });
}
