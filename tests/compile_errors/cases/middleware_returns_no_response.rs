use filoplume::prelude::*;

fn main() {
    let _ = App::new().with(|_request: Request, _next: Next| 200);
}
