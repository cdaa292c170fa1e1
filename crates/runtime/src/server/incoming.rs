//! The requests of a server as an iterator.

use super::Server;
use crate::engine::incoming::IncomingRequest;
use crate::error::Result;
use crate::service::request::Request;
use crate::service::response::Response;

/// The requests of a server, one after the other. Ends when the server has shut down.
///
/// Any number of threads may pull: each clone is a handle to the same queue.
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

    /// Answers each request with what `handler` returns, on the engine itself: many at once, and
    /// none waits for one that blocks. Returns when the server has shut down.
    ///
    /// This takes the place of [`Iterator::for_each`], which would answer one after the other.
    ///
    /// # Errors
    ///
    /// If the engine cannot start, or serves already.
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

    /// Waits for the next request. `None` once the server has shut down, if it serves otherwise, or
    /// when [`Server::unblock`] woke this thread.
    fn next(&mut self) -> Option<IncomingRequest> {
        self.server.recv().ok()
    }
}
