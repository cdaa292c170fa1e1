//! What the engine's server knows of an app that it serves.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use filoplume::Server;
use filoplume::prelude::*;

/// Asks for a target on a connection of its own, and returns the status.
fn status(address: SocketAddr, target: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn panics_are_counted_once_whoever_answers_them() {
    let app = App::new()
        .get("/quiet", || "all is well")
        .get("/handler", || -> &str { panic!("the handler's") })
        .get("/answered", || -> &str { panic!("answered by middleware") })
        .get("/middleware", || "never reached")
        .with(|request: Request, next: Next<'_>| match request.path() {
            "/middleware" => panic!("the middleware's"),
            "/answered" => next.run_catching(request).or_else(|_| Ok(Response::new(503))),
            _ => Ok::<_, Error>(next.run(request)),
        })
        .build()
        .unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap();
    server.spawn(app).unwrap();
    let address = server.local_addr().unwrap();
    let mut panics = 0;
    for (target, expected, more) in [
        ("/quiet", 200, 0),
        ("/handler", 500, 1),
        ("/answered", 503, 1),
        ("/middleware", 500, 1),
        ("/quiet", 200, 0),
    ] {
        assert_eq!(status(address, target), expected, "{target}");
        panics += more;
        assert_eq!(server.metrics().unwrap().panics, panics, "{target}");
    }
    server.shutdown_handle().shutdown();
    server.wait();
}
