//! The rouille peer: a pool of threads over tiny_http. Nothing is marked. A handler keeps its
//! thread, so there are as many threads as other peers may have for blocking calls.

use std::io;
use std::thread;

use common::{BLOCKING_THREADS_MAX, HELLO, MESSAGE, address_argument, spin, time};
use rouille::{Request, Response, Server, router};

fn answer(request: &Request) -> Response {
    router!(request,
        (GET) (/plaintext) => { Response::text(HELLO) },
        (GET) (/json) => { Response::json(&MESSAGE) },
        (GET) (/sleep) => {
            thread::sleep(time(request.raw_query_string()));
            Response::text(HELLO)
        },
        (GET) (/cpu) => {
            spin(time(request.raw_query_string()));
            Response::text(HELLO)
        },
        (POST) (/length) => { length(request) },
        _ => Response::empty_404()
    )
}

fn length(request: &Request) -> Response {
    let mut body = request.data().expect("it is asked for once");
    match io::copy(&mut body, &mut io::sink()) {
        Ok(length) => Response::text(length.to_string()),
        Err(_) => Response::empty_400(),
    }
}

fn main() {
    let server = Server::new(address_argument(), answer).expect("the address is free");
    server.pool_size(BLOCKING_THREADS_MAX).run();
}
