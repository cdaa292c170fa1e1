//! The tasks of the engine's thread pool.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::budget::permits::{Permit, Permits};
use crate::budget::seats::SeatRequest;
use crate::engine::Engine;
use crate::engine::connection::Connection;
use crate::engine::event_loop::EventLoop;
use crate::engine::seat::Seat;
use crate::engine::worker;
use crate::execution::key::{Route, RouteId};
use crate::execution::probe::Clocks;
use crate::service::body::StreamReturn;
use crate::service::request::Request;

/// A task for a pool thread.
pub(crate) enum Task {
    /// Lead an event loop.
    Lead(Box<EventLoop>),
    /// Run a handler that may block, and write its response.
    Call(Box<Call>, Seat),
    /// Continue a connection whose next step may block.
    Resume(Box<Connection>, Seat),
    /// Run the callbacks of handlers whose clients have gone.
    Cancel(Arc<Engine>),
    /// Compute a step of a TLS handshake.
    #[cfg(feature = "tls")]
    Handshake(Box<Connection>),
    /// Run a handler that has taken over a connection, or fills a pushed body.
    Detached(Box<dyn FnOnce() + Send>, RouteId, Seat),
}

/// A request that waits for its handler.
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) reply_to: ReplyTo,
    /// The permit of the resource that its handler uses. Held once it has a seat.
    pub(crate) permit: Permit,
}

/// Where the response to a request goes. It owns the connection, which nothing else needs before
/// the exchange is over. A protocol with several exchanges per connection would put the response
/// into a mailbox of its guest instead, and notify the connection's loop with
/// [`Message::Notify`](super::event_loop::Message::Notify).
pub(crate) struct ReplyTo {
    pub(crate) connection: Box<Connection>,
    pub(crate) route: Route,
    /// Receives a streamed content back from its handler.
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
            Self::Cancel(engine) => engine.run_cancels(),
            #[cfg(feature = "tls")]
            Self::Handshake(connection) => worker::shake_hands(connection),
            Self::Detached(run, route, seat) => run_detached(run, route, &seat),
        }
    }
}

fn run_detached(run: Box<dyn FnOnce() + Send>, route: RouteId, seat: &Seat) {
    let _listed = seat
        .engine()
        .map(|engine| engine.calls.begin_detached(Clocks::default().slot(), route, Instant::now()));
    run();
}

impl Call {
    /// A request that has no permit yet.
    pub(crate) fn new(request: Request, reply_to: ReplyTo) -> Self {
        Self { request, reply_to, permit: Permit::default() }
    }
}

impl SeatRequest for Box<Call> {
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
            Self::Cancel(_) => "Cancel",
            #[cfg(feature = "tls")]
            Self::Handshake(_) => "Handshake",
            Self::Detached(..) => "Detached",
        })
    }
}
