//! The engine without the framework: one closure answers everything.

use filoplume_runtime::{Response, Result, Server};

fn main() -> Result<()> {
    let server = Server::bind("127.0.0.1:5000")?;
    server.incoming().for_each(|_request| {
        let mut response = Response::default();
        response.set_text("Hello from Filoplume!");
        response
    })?;
    Ok(())
}
