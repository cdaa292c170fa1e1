//! Work for a thread of the pool, which waits for a seat.

use std::fmt;
use std::sync::Arc;

use crate::budget::clients::ClientConnection;
use crate::budget::permits::{Permit, Permits};
use crate::budget::seats::{Lacks, SeatRequest};
use crate::engine::connection::Connection;
use crate::engine::event_loop::Message;
use crate::engine::exchange::Call;
use crate::execution::key::{ExecutionKey, Route};

/// Work that may block its thread.
pub(crate) enum Work {
    /// Run a handler, and write its response.
    Call(Box<Call>),
    /// Continue a connection whose response comes from code of this route that may block. The
    /// response has begun, so it cannot be refused.
    Resume(Box<Connection>, Route),
}

impl Work {
    /// Returns the route that the seat counts for.
    pub(crate) fn key(&self) -> ExecutionKey {
        match self {
            Self::Call(call) => call.route().key,
            Self::Resume(_, route) => route.key,
        }
    }

    /// Sends work that has waited for too long to its loop, which decides what becomes of it.
    pub(crate) fn return_late(self) {
        match self {
            Self::Call(call) => {
                let loop_handle = Arc::clone(call.loop_handle());
                loop_handle.send(Message::Late(call));
            }
            Self::Resume(connection, route) => {
                let loop_handle = Arc::clone(connection.loop_handle());
                loop_handle.send(Message::StillWaiting(connection, route));
            }
        }
    }
}

impl SeatRequest for Work {
    #[inline]
    fn client(&self) -> Option<&Arc<ClientConnection>> {
        match self {
            Self::Call(call) => call.client(),
            Self::Resume(connection, _) => connection.account.client(),
        }
    }

    fn has_begun(&self) -> bool {
        matches!(self, Self::Resume(..))
    }

    #[inline]
    fn permits(&self) -> Option<&Permits> {
        match self {
            Self::Call(call) => call.request.permits(),
            Self::Resume(..) => None,
        }
    }

    fn hold(&mut self, permit: Permit) {
        if let Self::Call(call) = self {
            call.permit = permit;
        }
    }

    fn waits(&mut self, lacks: Lacks) {
        if let Self::Call(call) = self {
            call.waits(lacks);
        }
    }

    fn charge(&mut self) -> bool {
        match self {
            Self::Call(call) => call.charge(),
            // The bytes that it has not sent are charged already.
            Self::Resume(..) => true,
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => f.debug_tuple("Call").field(call).finish(),
            Self::Resume(connection, _) => f.debug_tuple("Resume").field(connection).finish(),
        }
    }
}
