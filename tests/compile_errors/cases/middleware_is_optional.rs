//! Middleware in an `Option` or a `Box`.

use filoplume::prelude::*;

fn main() {
    let logger = Some(middleware::Logger::new());
    App::new().get("/", || "hello").with(logger).test();

    let logger: Box<dyn Middleware> = Box::new(middleware::Logger::new());
    App::new().get("/", || "hello").with(logger).test();
}
