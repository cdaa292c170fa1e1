//! What a thread of the engine's pool is given to do.

use std::fmt;
use std::sync::Arc;

use crate::budget::permits::{Permit, Permits};
use crate::budget::seats::Needs;
use crate::engine::connection::Connection;
use crate::engine::event_loop::EventLoop;
use crate::engine::seat::Seat;
use crate::engine::worker;
use crate::execution::key::Route;
use crate::service::body::StreamReturn;
use crate::service::request::Request;

/// A piece of work for a pool thread.
pub(crate) enum Task {
    /// Lead an event loop.
    Lead(Box<EventLoop>),
    /// Run a handler that may block, and write its response.
    Call(Box<Call>, Seat),
    /// Go on with a response whose body's reader may block.
    Resume(Box<Connection>, Seat),
    /// Run what took over a connection.
    Detached(Box<dyn FnOnce() + Send>, Seat),
}

/// A request on its way to its handler.
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) reply_to: ReplyTo,
    /// Of what its handler uses, from when it has a seat.
    pub(crate) permit: Permit,
}

/// Where the response to a request goes: here, the connection itself, which nobody else needs
/// before the exchange is over. A protocol with several exchanges on a connection would leave the
/// response in a mailbox of its guest, and have the loop look at the connection by
/// [`Message::Look`](super::event_loop::Message::Look).
pub(crate) struct ReplyTo {
    pub(crate) connection: Box<Connection>,
    pub(crate) route: Route,
    /// Where a streamed content comes back to.
    pub(crate) stream: Option<Arc<StreamReturn>>,
}

impl Task {
    pub(crate) fn run(self) {
        match self {
            Self::Lead(event_loop) => worker::lead(event_loop),
            Self::Call(call, seat) => {
                let Call { request, reply_to, permit } = *call;
                worker::follow_reply(reply_to, Some(seat), |worker, reply_to| {
                    worker.answer(Call { request, reply_to, permit })
                });
            }
            Self::Resume(connection, seat) => {
                worker::follow(connection, Some(seat), |worker, connection| {
                    worker.serve(connection)
                });
            }
            Self::Detached(run, _seat) => run(),
        }
    }
}

impl Call {
    /// A request that has not entered.
    pub(crate) fn new(request: Request, reply_to: ReplyTo) -> Self {
        Self { request, reply_to, permit: Permit::default() }
    }
}

impl Needs for Box<Call> {
    fn permits(&self) -> Option<&Permits> {
        self.request.permits()
    }

    fn hold(&mut self, permit: Permit) {
        self.permit = permit;
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("route", &self.reply_to.route).finish_non_exhaustive()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lead(_) => "Lead",
            Self::Call(..) => "Call",
            Self::Resume(..) => "Resume",
            Self::Detached(..) => "Detached",
        })
    }
}
