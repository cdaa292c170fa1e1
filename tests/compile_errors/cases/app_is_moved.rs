//! The methods of an app called as statements, as in Express.

use filoplume::prelude::*;

fn main() {
    let app = App::new();
    app.get("/", || "Hello!");
    let _ = app.listen("127.0.0.1:5000");
}
