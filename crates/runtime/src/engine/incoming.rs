//! A request that the program has pulled, and the means to respond to it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::engine::cancel::watch_client;
use crate::engine::exchange::ReplyTo;
use crate::engine::worker;
use crate::error::{Kind, Result};
use crate::service::cancel::Cancel;
use crate::service::latch::Latch;
use crate::service::request::Request;
use crate::service::response::Response;
use crate::transport::is_gone;

/// A request that the program owns, and the means to respond to it. If it is dropped without a
/// response, the client gets a `500`.
///
/// ```no_run
/// use filoplume_runtime::{Response, Server};
///
/// let server = Server::bind("127.0.0.1:5000")?;
/// while let Some(request) = server.incoming().next() {
///     match request.path() {
///         "/" => request.respond("Hello!")?,
///         _ => request.respond(Response::new(404))?,
///     }
/// }
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
pub struct IncomingRequest {
    request: Option<Request>,
    reply_to: Option<ReplyTo>,
    /// Set when the client has gone, if the program asks for it.
    cancel: Option<Arc<Latch>>,
}

impl IncomingRequest {
    pub(crate) fn new(request: Request, reply_to: ReplyTo) -> Self {
        Self { request: Some(request), reply_to: Some(reply_to), cancel: None }
    }

    pub(crate) fn into_parts(mut self) -> (Option<Request>, ReplyTo) {
        self.end_cancel();
        let reply_to =
            self.reply_to.take().expect("taken once, when the request is answered or dropped");
        (self.request.take(), reply_to)
    }

    /// Returns a handle that tells whether the client has gone, until the request is answered. The
    /// first call costs a system call at most, and requests for which it is not called cost
    /// nothing.
    ///
    /// ```no_run
    /// use filoplume_runtime::Server;
    ///
    /// let server = Server::bind("127.0.0.1:5000")?;
    /// for mut request in server.incoming() {
    ///     let cancel = request.cancel();
    ///     // .. work, in steps
    ///     if !cancel.is_cancelled() {
    ///         request.respond("done")?;
    ///     }
    /// }
    /// # Ok::<(), filoplume_runtime::Error>(())
    /// ```
    pub fn cancel(&mut self) -> Cancel {
        let latch = self.cancel.get_or_insert_with(|| {
            let latch = Arc::new(Latch::new());
            if let Some(ReplyTo { connection, .. }) = &mut self.reply_to {
                // If this fails, so does the response.
                if let Err(error) = connection.watch_end() {
                    tracing::debug!(%error, "a client cannot be watched");
                }
                let (token, has_end) = (connection.token(), connection.has_end);
                watch_client(connection.loop_handle(), token, has_end, &latch);
            }
            latch
        });
        Cancel::new(Arc::clone(latch))
    }

    fn end_cancel(&mut self) {
        if let Some(latch) = self.cancel.take() {
            latch.seal();
        }
    }

    /// Answers the request.
    ///
    /// # Errors
    ///
    /// Returns an error if a system call fails. A peer that has disconnected is not an error:
    /// nobody is left to tell, and it is no reason to stop serving others. Bytes that the peer has
    /// not taken when this returns are sent later by the engine.
    pub fn respond(self, response: impl Into<Response>) -> Result<()> {
        let (request, reply_to) = self.into_parts();
        // A content that is still arriving is given back to the connection.
        drop(request);
        finish(reply_to, response.into())
    }
}

fn finish(reply_to: ReplyTo, response: Response) -> Result<()> {
    let error =
        worker::follow_reply(reply_to, None, |worker, reply_to| worker.finish(response, reply_to));
    match error {
        Some(source) if !is_gone(&source) => Err(Kind::Respond { source }.into()),
        _ => Ok(()),
    }
}

impl Deref for IncomingRequest {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.request.as_ref().expect("the request is present until it is answered")
    }
}

impl DerefMut for IncomingRequest {
    fn deref_mut(&mut self) -> &mut Request {
        self.request.as_mut().expect("the request is present until it is answered")
    }
}

impl Drop for IncomingRequest {
    fn drop(&mut self) {
        drop(self.request.take());
        self.end_cancel();
        if let Some(reply_to) = self.reply_to.take() {
            tracing::warn!("a request was dropped unanswered");
            // An error means that the peer has disconnected: nobody is left to tell.
            let _ = finish(reply_to, Response::new(500));
        }
    }
}

impl fmt::Debug for IncomingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IncomingRequest").field(&self.request).finish()
    }
}
