//! The May peer: may_minihttp, with one coroutine per connection on two workers.
//!
//! `/sleep` and the misses of `/miss` are marked the way May demands: its own cooperative sleep.
//! `/sleep_unmarked` is what a database driver looks like to it.

use std::io::{self, BufRead, Write};
use std::thread;

use bytes::BufMut;
use common::{HELLO, HIT, MESSAGE, MISS, WORKERS, address_argument, miss, spin, time};
use may::coroutine;
use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Clone)]
struct Routes;

impl HttpService for Routes {
    fn call(
        &mut self,
        request: Request<'_, '_, '_>,
        response: &mut Response<'_>,
    ) -> io::Result<()> {
        let path = request.path();
        if path == "/json" {
            response.header("Content-Type: application/json");
            serde_json::to_writer(response.body_mut().writer(), &MESSAGE)?;
            return Ok(());
        }
        response.header("Content-Type: text/plain");
        match path.split('?').next().unwrap_or(path) {
            "/plaintext" => response.body(HELLO),
            "/sleep" => {
                coroutine::sleep(time(path));
                response.body(HELLO);
            }
            "/sleep_unmarked" => {
                thread::sleep(time(path));
                response.body(HELLO);
            }
            "/cpu" => {
                spin(time(path));
                response.body(HELLO);
            }
            "/miss" => match miss(path) {
                Some(length) => {
                    coroutine::sleep(length);
                    response.body(MISS);
                }
                None => response.body(HIT),
            },
            "/length" => {
                let length = read_to_end(request)?;
                write!(response.body_mut().writer(), "{length}")?;
            }
            _ => {
                response.status_code(404, "Not Found");
            }
        }
        Ok(())
    }
}

fn read_to_end(request: Request<'_, '_, '_>) -> io::Result<usize> {
    let mut body = request.body();
    let mut length = 0;
    loop {
        let read = body.fill_buf()?.len();
        if read == 0 {
            return Ok(length);
        }
        body.consume(read);
        length += read;
    }
}

fn main() {
    may::config().set_workers(WORKERS);
    let server = HttpServer(Routes).start(address_argument()).expect("the address is free");
    server.join().expect("the server does not end");
}
