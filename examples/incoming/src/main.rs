//! The program pulls requests in its own loop, and answers one after the other. More threads may
//! run the same loop: each clone of `incoming` pulls from the same queue.

use filoplume_runtime::{Response, Result, Server};

fn main() -> Result<()> {
    let server = Server::bind("127.0.0.1:5000")?;
    for request in server.incoming() {
        let mut response = Response::default();
        response.set_text("Hello from Filoplume!");
        request.respond(response)?;
    }
    Ok(())
}
