//! The khttp peer: its epoll loop with its own number of threads. With `threads` as the second
//! argument, it has one thread per connection. Nothing is marked: a handler keeps its thread.

use std::env;
use std::io;
use std::thread;

use common::{HELLO, address_argument, message_json, spin, time};
use khttp::Method::{Get, Post};
use khttp::{ConnectionSetupAction, Headers, ResponseHandle, Server};

fn text(response: &mut ResponseHandle<'_>, content: &str) -> io::Result<()> {
    let mut headers = Headers::new();
    headers.add(Headers::CONTENT_TYPE, b"text/plain");
    response.ok(&headers, content)
}

fn main() -> io::Result<()> {
    let mut app = Server::builder(address_argument())?;
    app.connection_setup_hook(|connection| match connection {
        Ok((stream, _)) => {
            // A refused option only makes this one connection slower.
            let _ = stream.set_nodelay(true);
            ConnectionSetupAction::Proceed(stream)
        }
        Err(_) => ConnectionSetupAction::Drop,
    });
    app.route(Get, "/plaintext", |_, response| text(response, HELLO));
    app.route(Get, "/json", |_, response| {
        let mut headers = Headers::new();
        headers.add(Headers::CONTENT_TYPE, b"application/json");
        response.ok(&headers, message_json())
    });
    let sleep = |context: khttp::RequestContext<'_>, response: &mut ResponseHandle<'_>| {
        thread::sleep(time(context.uri.path_and_query()));
        text(response, HELLO)
    };
    app.route(Get, "/sleep", sleep);
    app.route(Get, "/cpu", |context, response| {
        spin(time(context.uri.path_and_query()));
        text(response, HELLO)
    });
    app.route(Post, "/length", |mut context, response| {
        let length = io::copy(context.body(), &mut io::sink())?;
        text(response, &length.to_string())
    });
    let server = app.build();
    if env::args().nth(2).as_deref() == Some("threads") {
        server.serve_threaded()
    } else {
        server.serve_epoll()
    }
}
