//! A generic handler whose result may be anything.

use filoplume::prelude::*;
use filoplume::{Handler, Parameters};

fn page<P: Parameters, H: Handler<P>>(app: App, handler: H) -> App {
    app.get("/page", handler)
}

fn main() {
    page(App::new(), || "hello").test();
}
