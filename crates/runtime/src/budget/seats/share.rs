//! Who may have one more seat: a route, and a counted client in a route.

use std::sync::Arc;

use super::processors::Computing;
use super::{SeatRequest, VITAL_SEATS};
use crate::budget::clients::ClientConnection;
use crate::budget::fair_queue::Obstacle;
use crate::budget::permits::Permits;
use crate::budget::thresholds::{CLIENT_SHARE, LARGE_SHARE, may_take};
use crate::execution::key::ExecutionKey;

/// A route may have this many times the free seats.
pub(super) const ROUTE_SHARE: usize = LARGE_SHARE;

/// A counted client may have this many times the free seats for all its routes together: as many as
/// a route may have. It is larger than the share of one route, so that one hanging route leaves the
/// client seats for its other routes. Without this bound, a client that hangs in sixteen routes
/// would have all but fifteen of 512 seats. An IPv6 network of 48 bits has the same share, because
/// whoever has one is 65,536 clients.
const CLIENT_TOTAL_SHARE: usize = LARGE_SHARE;

/// The vital seats that one counted client may have.
const VITAL_PER_CLIENT: usize = VITAL_SEATS / 2;

/// The free seats, as one route may see them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) all: usize,
    /// `None` if the route does not compute.
    pub(super) computing: Option<Computing>,
}

/// A counted client. Its counts change only under the lock of the seats.
pub(super) type Client<'a> = Option<&'a Arc<ClientConnection>>;

/// Returns whether a route with `taken` of the `seats_max` seats may take one more of the `free`
/// ones, of which `kept` are kept for the other routes. Half of the seats, and at least two, may be
/// taken regardless of `kept`.
pub(super) const fn route_may_take(
    taken: usize,
    free: Free,
    kept: usize,
    seats_max: usize,
) -> bool {
    let may_compute = match free.computing {
        Some(computing) => may_take(computing.ready, computing.spare, ROUTE_SHARE),
        None => true,
    };
    may_compute
        && may_take(taken, free.all, ROUTE_SHARE)
        && (free.all > kept || taken < seats_max.div_ceil(2) || taken < 2)
}

/// Returns whether a client may take one more of the `free` seats for a route.
#[inline]
pub(super) fn client_may_take(client: Client<'_>, key: ExecutionKey, free: Free) -> bool {
    client.is_none_or(|client| {
        let seats = seats_of(client, key);
        may_take(seats, free.all, CLIENT_SHARE)
            && free.computing.is_none_or(|Computing { spare, ready, taken }| {
                // Assumes that its threads compute as much as the others of the route.
                may_take(seats * ready / taken.max(1), spare, CLIENT_SHARE)
            })
            && may_take(client.all_seats(), free.all, CLIENT_TOTAL_SHARE)
    })
}

/// Returns what keeps a request from one more of the `free` seats of its route.
pub(super) fn seat_obstacle(
    item: &impl SeatRequest,
    key: ExecutionKey,
    free: Free,
) -> Option<Obstacle> {
    let client = item.client()?;
    if !may_take(client.network_seats(), free.all, CLIENT_TOTAL_SHARE) {
        return Some(Obstacle::Network(kind_of(item)));
    }
    (!client_may_take(Some(client), key, free)).then_some(Obstacle::Own)
}

/// Returns the ID of the permits that the request needs, or 0.
pub(super) fn kind_of(item: &impl SeatRequest) -> usize {
    item.permits().map_or(0, Permits::id)
}

/// Counts one more seat of a client.
#[inline]
pub(super) fn count_taken(client: Client<'_>, key: ExecutionKey) {
    if let Some(client) = client {
        client.add_seat(key.index());
    }
}

/// Removes one seat of a client from its counts.
#[inline]
pub(super) fn count_released(client: Client<'_>, key: ExecutionKey) {
    if let Some(client) = client {
        client.remove_seat(key.index());
    }
}

/// Returns how many seats a client has for a route.
pub(super) fn seats_of(client: &ClientConnection, key: ExecutionKey) -> usize {
    client.seats(key.index())
}

/// Counts one more vital seat of a client. Returns `false` if it may not have one more.
pub(super) fn take_vital(client: Client<'_>) -> bool {
    let Some(client) = client else { return true };
    let may = client.vital_seats() < VITAL_PER_CLIENT;
    if may {
        client.add_vital_seat();
    }
    may
}

/// Removes one vital seat of a client from its counts.
pub(super) fn release_vital(client: Client<'_>) {
    if let Some(client) = client {
        client.remove_vital_seat();
    }
}
