//! The astra peer: hyper on a pool of threads. Nothing is marked: a handler holds its thread, so there are as many
//! threads as others may have for what blocks.

use std::io;
use std::thread;

use astra::{Body, Request, Response, ResponseBuilder, Server};
use common::{BLOCKING_THREADS_MAX, HELLO, address_argument, message_json, milliseconds, spin};
use hyper::Method;

fn answer(mut request: Request) -> Response {
    let query = request.uri().query().unwrap_or("");
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/plaintext") => with_type("text/plain", Body::new(HELLO)),
        (&Method::GET, "/json") => with_type("application/json", Body::new(message_json())),
        (&Method::GET, "/sleep") => {
            thread::sleep(milliseconds(query));
            with_type("text/plain", Body::new(HELLO))
        }
        (&Method::GET, "/cpu") => {
            spin(milliseconds(query));
            with_type("text/plain", Body::new(HELLO))
        }
        (&Method::POST, "/length") => match io::copy(&mut request.body_mut().reader(), &mut io::sink()) {
            Ok(length) => with_type("text/plain", Body::new(length.to_string())),
            Err(_) => status(400),
        },
        _ => status(404),
    }
}

fn with_type(content_type: &str, content: Body) -> Response {
    ResponseBuilder::new().header("Content-Type", content_type).body(content).expect("a valid response")
}

fn status(status: u16) -> Response {
    ResponseBuilder::new().status(status).body(Body::empty()).expect("a valid response")
}

fn main() -> io::Result<()> {
    let server =
        Server::bind(address_argument()).max_workers(BLOCKING_THREADS_MAX).http1_pipeline_flush(true);
    server.serve(|request, _| answer(request))
}
