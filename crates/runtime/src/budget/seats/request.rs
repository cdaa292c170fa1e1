//! The trait of requests that ask for a seat.

use std::sync::Arc;

use crate::budget::clients::ClientConnection;
use crate::budget::permits::{Permit, Permits, RouteOfServer, Taker};
use crate::execution::key::ExecutionKey;

/// A request that asks for a seat, and may need a permit too.
pub(crate) trait SeatRequest {
    /// Returns the client, if it is counted.
    fn client(&self) -> Option<&Arc<ClientConnection>> {
        None
    }

    /// Returns whether its response has begun, so that it can no longer be refused.
    fn has_begun(&self) -> bool {
        false
    }

    /// Returns the permits that it uses, if it has no permit yet.
    fn permits(&self) -> Option<&Permits> {
        None
    }

    /// Stores its permit.
    fn hold(&mut self, permit: Permit) {
        drop(permit);
    }

    /// Called when it begins to wait.
    fn waits(&mut self, lacks: Lacks) {
        let _ = lacks;
    }

    /// Charges the memory that it takes while it waits. Returns whether the budget allows it.
    fn charge(&mut self) -> bool {
        true
    }
}

/// What a request lacks when it begins to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// A seat. The fields are the route with the most seats, and how many it has.
    Seat(Option<ExecutionKey>, usize),
    /// Processor time: its route computes.
    Processor,
    /// One more seat for its client.
    ClientShare,
    /// A permit.
    Permit,
}

impl Lacks {
    /// Returns what a request lacks. `has_seat` says that its route and its client may have a seat,
    /// `may_route` only that its route may. `holder` is the route with the most seats, and `held`
    /// says how many it has.
    pub(super) fn of(
        item: &impl SeatRequest,
        may_route: bool,
        has_seat: bool,
        (holder, held): (Option<ExecutionKey>, usize),
    ) -> Self {
        match (has_seat, may_route) {
            (true, _) if item.permits().is_some() => Self::Permit,
            (false, true) => Self::ClientShare,
            _ => Self::Seat(holder, held),
        }
    }
}

/// Returns whether a request of this route has the permit that it needs. Takes one if necessary.
pub(super) fn has_permit<T: SeatRequest>(
    item: &mut T,
    route: RouteOfServer,
    take: impl FnOnce(&Permits, Taker) -> Option<Permit>,
) -> bool {
    let Some(permits) = item.permits() else { return true };
    let client = item.client().map(|client| client.client());
    let taker = Taker { client, route: Some(route) };
    let Some(permit) = take(permits, taker) else { return false };
    item.hold(permit);
    true
}
