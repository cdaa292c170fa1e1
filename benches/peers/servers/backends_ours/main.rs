//! The framework with handlers that make real blocking calls. Nothing is marked.

use backends::ROUTES;
use common::{HELLO, address_argument, look_up};
use filoplume::prelude::*;

fn main() -> Result<()> {
    let mut app = App::new()
        .get("/plaintext", || HELLO)
        .get("/miss", |request: Request| look_up(request.query().unwrap_or_default()));
    for (path, call) in ROUTES {
        app = app.get(path, |request: Request| -> Result<String> {
            call(request.query().unwrap_or_default()).map_err(Error::internal)
        });
    }
    app.listen(address_argument())
}
