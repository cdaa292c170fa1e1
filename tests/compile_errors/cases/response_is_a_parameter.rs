//! A handler that fills a response which it takes, as in Express.

use filoplume::prelude::*;

fn hello(_: Request, mut response: Response) -> Response {
    response.set_text("hello");
    response
}

fn main() {
    let _ = App::new().get("/", hello);
}
