//! The response is not the last expression.

use filoplume::prelude::*;

fn main() {
    let app = App::new().get("/", || "hello").with(|request: Request, next: Next| {
        next.run(request);
    });
    app.listen("127.0.0.1:5000").unwrap();
}
