//! Methods that have other names in axum and actix-web.

use filoplume::prelude::*;

fn main() {
    App::new().get("/", || "hello").layer(middleware::Logger::new()).test();
    App::new().get("/", || "hello").wrap(middleware::Logger::new()).test();
    App::new().get("/", || "hello").serve("127.0.0.1:0");
    App::new().get("/", || "hello").bind("127.0.0.1:0");
    Router::new().get("/", || "hello").layer(middleware::Logger::new());
}
