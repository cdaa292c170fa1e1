use filoplume::prelude::*;

fn main() {
    let _ = App::new().with(|request, next| next.run(request));
}
