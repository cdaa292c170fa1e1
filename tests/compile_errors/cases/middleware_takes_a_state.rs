//! Middleware with the parameters of a handler, in the wrong order, and with a reference.

use filoplume::prelude::*;

fn with_state(State(_): State<u8>, request: Request, next: Next) -> Response {
    next.run(request)
}

fn swapped(next: Next, request: Request) -> Response {
    next.run(request)
}

fn borrowed(request: &mut Request, _: Next) -> StatusCode {
    let _ = request;
    StatusCode::OK
}

fn main() {
    let _ = App::new().with(with_state);
    let _ = App::new().with(swapped);
    let _ = App::new().with(borrowed);
}
