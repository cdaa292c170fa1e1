//! The astra peer: hyper on a pool of threads. Nothing is marked. A handler keeps its thread, so
//! there are as many threads as other peers may have for blocking calls.

use std::io;
use std::thread;

use astra::{Body, Request, Response, ResponseBuilder, Server};
use common::{BLOCKING_THREADS_MAX, HELLO, address_argument, message_json, spin, time};
use hyper::{Method, header};

fn answer(mut request: Request) -> Response {
    let query = request.uri().query().unwrap_or("");
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/plaintext") => with_type("text/plain", HELLO.into()),
        (&Method::GET, "/json") => with_type("application/json", message_json()),
        (&Method::GET, "/sleep") => {
            thread::sleep(time(query));
            with_type("text/plain", HELLO.into())
        }
        (&Method::GET, "/cpu") => {
            spin(time(query));
            with_type("text/plain", HELLO.into())
        }
        (&Method::POST, "/length") => {
            match io::copy(&mut request.body_mut().reader(), &mut io::sink()) {
                Ok(length) => with_type("text/plain", length.to_string().into()),
                Err(_) => status(400),
            }
        }
        _ => status(404),
    }
}

fn with_type(content_type: &str, content: Vec<u8>) -> Response {
    let response = ResponseBuilder::new()
        .header(header::CONTENT_TYPE, content_type)
        // Without this header astra sends chunks, because it does not tell hyper the length of the
        // content.
        .header(header::CONTENT_LENGTH, content.len());
    response.body(Body::new(content)).expect("a valid response")
}

fn status(status: u16) -> Response {
    ResponseBuilder::new().status(status).body(Body::empty()).expect("a valid response")
}

fn main() -> io::Result<()> {
    let server = Server::bind(address_argument())
        .max_workers(BLOCKING_THREADS_MAX)
        .http1_pipeline_flush(true);
    server.serve(|request, _| answer(request))
}
