//! The Feather peer: one coroutine of May per connection, on two workers.
//!
//! `/sleep` and the misses of `/miss` are marked the way May demands: its own cooperative sleep.
//! `/sleep_unmarked` is what a database driver looks like to it.

use std::thread;

use common::{HELLO, HIT, MESSAGE, MISS, WORKERS, address_argument, miss, spin, time};
use feather::{App, Finalizer, middleware};
use may::coroutine;

/// More than any scenario sends; the default of 8 KiB would refuse the large POST.
const BODY_BYTES_MAX: usize = 1024 * 1024;

fn main() {
    let mut app = App::without_logger();
    app.workers(WORKERS).max_body(BODY_BYTES_MAX);
    app.get(
        "/plaintext",
        middleware!(|_request, response, _context| { response.finish_text(HELLO) }),
    );
    app.get(
        "/json",
        middleware!(|_request, response, _context| { response.finish_json(&MESSAGE) }),
    );
    app.get(
        "/sleep",
        middleware!(|request, response, _context| {
            coroutine::sleep(time(request.uri.query().unwrap_or("")));
            response.finish_text(HELLO)
        }),
    );
    app.get(
        "/sleep_unmarked",
        middleware!(|request, response, _context| {
            thread::sleep(time(request.uri.query().unwrap_or("")));
            response.finish_text(HELLO)
        }),
    );
    app.get(
        "/cpu",
        middleware!(|request, response, _context| {
            spin(time(request.uri.query().unwrap_or("")));
            response.finish_text(HELLO)
        }),
    );
    app.get(
        "/miss",
        middleware!(|request, response, _context| {
            match miss(request.uri.query().unwrap_or("")) {
                Some(length) => {
                    coroutine::sleep(length);
                    response.finish_text(MISS)
                }
                None => response.finish_text(HIT),
            }
        }),
    );
    app.post(
        "/length",
        middleware!(|request, response, _context| {
            response.finish_text(request.body.len().to_string())
        }),
    );
    app.listen(address_argument());
}
