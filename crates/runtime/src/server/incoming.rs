//! The requests of a server as an iterator.

use super::Server;
use crate::engine::incoming::IncomingRequest;
use crate::error::Result;
use crate::service::request::Request;
use crate::service::response::Response;

/// An iterator over the requests of a server. It ends when the server has shut down.
///
/// Any number of threads may pull requests: each clone is a handle to the same queue.
///
/// ```no_run
/// use filoplume_runtime::Server;
///
/// let server = Server::bind("127.0.0.1:5000")?;
/// for request in server.incoming() {
///     let text = format!("You asked for {}", request.path());
///     request.respond(text)?;
/// }
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "requests wait until someone pulls them"]
pub struct Incoming {
    server: Server,
}

impl Incoming {
    pub(crate) fn new(server: Server) -> Self {
        Self { server }
    }

    /// Answers each request with the result of `handler`. The engine calls it, so many requests are
    /// handled at once, and none waits for one that blocks. Returns when the server has shut down.
    ///
    /// This method shadows [`Iterator::for_each`], which would handle one request after the other.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine cannot start, or if the server is serving already.
    pub fn for_each<F, R>(self, handler: F) -> Result<()>
    where
        F: Fn(Request) -> R + Send + Sync + 'static,
        R: Into<Response>,
    {
        self.server.serve(handler)
    }
}

impl Iterator for Incoming {
    type Item = IncomingRequest;

    /// Waits for the next request. Returns `None` once the server has shut down, if the server
    /// answers its requests in another way, or if [`Server::unblock`] woke this thread.
    fn next(&mut self) -> Option<IncomingRequest> {
        self.server.recv().ok()
    }
}
