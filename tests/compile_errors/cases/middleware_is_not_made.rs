use filoplume::prelude::*;

fn main() {
    let _ = App::new().with(middleware::Logger);
}
