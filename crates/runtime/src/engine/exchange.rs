//! Exchanges: a request, and where its answer goes.
//!
//! In HTTP/1.1 a connection has one exchange at a time, so the exchange owns the connection.
//! Nothing is shared, and the thread that answers also writes. A guest with several exchanges at
//! once keeps its connection on the loop, and each answer comes to it as a message.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::account::{Account, Charge};
use crate::budget::clients::ClientConnection;
use crate::budget::permits::{Permit, Permits, Taker};
use crate::budget::seats::Lacks;
use crate::engine::connection::Connection;
use crate::engine::event_loop::LoopHandle;
use crate::execution::key::{ExecutionKey, Route};
use crate::service::Site;
use crate::service::body::StreamReturn;
use crate::service::exchange::{PermitHolder, QueuedFor};
use crate::service::request::Request;
use crate::service::tcp::AnswerSlot;
use crate::transport::Peer;

/// The minimum wait after which the client of a request is checked before its handler begins. A
/// client does not leave sooner, and the check is a system call.
const LOOK_AFTER: Duration = Duration::from_millis(5);

/// A request that waits for its handler.
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) answer_to: AnswerTo,
    /// The permit of the resource that its handler uses. Held once it has a seat.
    pub(crate) permit: Permit,
    /// The share of the memory budget that the request takes while it waits for a seat.
    charge: Charge,
    /// When it began to wait for a seat or a permit.
    waits_since: Option<Instant>,
}

/// Where the answer to a request goes.
pub(crate) enum AnswerTo {
    Connection(ReplyTo),
    Guest(Asker),
}

/// A connection that waits for the answer to its only exchange.
pub(crate) struct ReplyTo {
    pub(crate) connection: Box<Connection>,
    pub(crate) route: Route,
    /// Receives a streamed content back from its handler.
    pub(crate) stream: Option<Arc<StreamReturn>>,
}

/// A guest that waits for one of several answers. Its connection goes on meanwhile, and may be on
/// any thread.
pub(crate) struct Asker {
    pub(crate) loop_handle: Arc<LoopHandle>,
    pub(crate) peer: Peer,
    /// The account of its connection.
    pub(crate) account: Arc<Account>,
    pub(crate) site: Arc<Site>,
    pub(crate) route: Route,
    pub(crate) slot: AnswerSlot,
}

impl ReplyTo {
    /// Takes a permit for its request, if one is free and no other request waits for it.
    pub(crate) fn try_take(&self, permits: &Permits) -> Option<Permit> {
        let Self { connection, route, .. } = self;
        let client = connection.account.client().map(|client| client.client());
        let route = connection.loop_handle().engine.seats.route_of_server(route.key);
        permits.try_take(Taker { client, route: Some(route) })
    }
}

impl Call {
    /// Returns a call whose request has no permit yet.
    pub(crate) fn new(request: Request, answer_to: AnswerTo) -> Self {
        let (permit, charge) = (Permit::default(), Charge::default());
        Self { request, answer_to, permit, charge, waits_since: None }
    }

    /// Returns its parts. It waits no longer, so it is not charged any more.
    pub(crate) fn into_parts(self) -> (Request, AnswerTo, Permit) {
        (self.request, self.answer_to, self.permit)
    }

    pub(crate) fn route(&self) -> Route {
        match &self.answer_to {
            AnswerTo::Connection(reply_to) => reply_to.route,
            AnswerTo::Guest(asker) => asker.route,
        }
    }

    /// Returns the client that the request came from, if it is counted.
    pub(crate) fn client(&self) -> Option<&Arc<ClientConnection>> {
        self.account().client()
    }

    /// Describes what uses the memory that the request would need while it waits.
    pub(crate) fn memory_usage(&self) -> String {
        self.account().usage()
    }

    fn account(&self) -> &Arc<Account> {
        match &self.answer_to {
            AnswerTo::Connection(reply_to) => &reply_to.connection.account,
            AnswerTo::Guest(asker) => &asker.account,
        }
    }

    /// Returns the loop of the connection that the request came from.
    pub(crate) fn loop_handle(&self) -> &Arc<LoopHandle> {
        match &self.answer_to {
            AnswerTo::Connection(reply_to) => reply_to.connection.loop_handle(),
            AnswerTo::Guest(asker) => &asker.loop_handle,
        }
    }

    /// Ends its wait for a seat or a permit. Returns why its connection has failed meanwhile, if it
    /// has.
    pub(crate) fn end_wait(&mut self) -> Option<io::Error> {
        let waited = self.waits_since.take()?.elapsed();
        self.request.set_queued(waited);
        match &self.answer_to {
            AnswerTo::Connection(ReplyTo { connection, .. }) if waited >= LOOK_AFTER => {
                connection.transport.failure()
            }
            _ => None,
        }
    }

    /// Records when it began to wait and, if it is measured, what it lacks.
    pub(crate) fn waits(&mut self, lacks: Lacks) {
        self.waits_since = Some(Instant::now());
        let AnswerTo::Connection(reply_to) = &mut self.answer_to else { return };
        let ReplyTo { connection, .. } = reply_to;
        let engine = &connection.loop_handle.engine;
        let Some(http) = connection.guest.as_http_mut().filter(|http| http.is_measured()) else {
            return;
        };
        let queued_for = match (lacks, self.request.permits()) {
            (Lacks::Permit, Some(permits)) => {
                let of = |(key, held, since): (Option<ExecutionKey>, usize, Instant)| {
                    let route = key.and_then(|key| engine.routes.number_of(key));
                    PermitHolder { route, held, oldest: since.elapsed() }
                };
                let holders = engine.seats.holders_of(permits).map(of).collect();
                QueuedFor::Permit { permits: permits.clone(), holders }
            }
            (Lacks::Seat(holder, held), _) => {
                let holder = holder.and_then(|key| engine.routes.number_of(key));
                QueuedFor::Thread { holder, held }
            }
            (Lacks::Processor, _) => QueuedFor::Processor,
            _ => QueuedFor::ClientShare,
        };
        http.note_queued(queued_for);
    }

    /// Charges the memory that it takes while it waits for a thread. Returns whether the budget
    /// allows it.
    pub(crate) fn charge(&mut self) -> bool {
        let mut charge = Charge::of(self.account());
        let is_allowed = charge.try_set(self.request.uncharged_bytes());
        self.charge = charge;
        is_allowed
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("route", &self.route()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
