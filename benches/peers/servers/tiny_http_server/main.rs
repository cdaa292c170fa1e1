//! The tiny_http peer: threads that take requests from one queue. Nothing is marked. A handler
//! keeps its thread, so there are as many threads as other peers may have for blocking calls.

use std::io::{self, Cursor};
use std::sync::Arc;
use std::thread;

use common::{BLOCKING_THREADS_MAX, HELLO, address_argument, message_json, spin, time};
use tiny_http::{Header, Method, Request, Response, Server};

fn answer(request: &mut Request) -> Response<Cursor<Vec<u8>>> {
    let target = request.url();
    match (request.method(), target.split('?').next().unwrap_or(target)) {
        (Method::Get, "/plaintext") => Response::from_string(HELLO),
        (Method::Get, "/json") => {
            let json =
                Header::from_bytes(b"Content-Type", b"application/json").expect("a valid header");
            Response::from_data(message_json()).with_header(json)
        }
        (Method::Get, "/sleep") => {
            thread::sleep(time(target));
            Response::from_string(HELLO)
        }
        (Method::Get, "/cpu") => {
            spin(time(target));
            Response::from_string(HELLO)
        }
        (Method::Post, "/length") => match io::copy(request.as_reader(), &mut io::sink()) {
            Ok(length) => Response::from_string(length.to_string()),
            Err(_) => Response::from_string("").with_status_code(400),
        },
        _ => Response::from_string("").with_status_code(404),
    }
}

fn main() {
    let server = Arc::new(Server::http(address_argument()).expect("the address is free"));
    let serve = |server: Arc<Server>| {
        for mut request in server.incoming_requests() {
            let response = answer(&mut request);
            // The client has closed the connection, so nobody can be told.
            let _ = request.respond(response);
        }
    };
    let threads: Vec<_> = (0..BLOCKING_THREADS_MAX)
        .map(|_| {
            let server = Arc::clone(&server);
            thread::spawn(move || serve(server))
        })
        .collect();
    for thread in threads {
        thread.join().expect("a handler does not panic");
    }
}
