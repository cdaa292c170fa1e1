//! The name of middleware, or of the function that makes it, in place of a value.

use filoplume::prelude::*;

fn main() {
    let _ = App::new().with(middleware::Logger);
    let _ = App::new().with(middleware::Logger::new);
    let _ = Router::new().with(middleware::Logger::new);
}
