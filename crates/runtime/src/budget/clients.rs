//! What each client holds: connections, threads, seats of the pool, and space for contents. Only
//! clients with a connection, or with a request that still holds something, have an entry, so the
//! table is about as long as the list of connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::budget::counts::{AtLimit, shrink};
use crate::budget::held::{Held, try_count};
use crate::budget::networks::Networks;
use crate::budget::thresholds::{CLIENT_SHARE, LARGE_SHARE, may_have};
use crate::client_address::{client_network, is_private};

/// An IPv6 network of 48 bits may have this many times the connections of a client, because it has
/// many clients.
const NETWORK_SHARE: usize = 4;

/// An IPv6 network of 48 bits may hold this many times what a client may: threads, descriptors and
/// space for contents.
const NETWORK_HOLDS: usize = 2;

/// How many counts of seats each client has. A map would cost more than the count itself, and few
/// routes block at the same time.
const SEAT_COUNTS: usize = 32;

/// What tells counted clients apart.
pub(crate) type ClientId = IpAddr;

/// The connections of each client.
#[derive(Debug)]
pub(crate) struct Clients {
    connections_max: usize,
    /// Whether connections are counted for their peers.
    counts_peers: bool,
    /// Whether clients on this machine and on private networks are counted too.
    counts_private: bool,
    counts: Mutex<HashMap<ClientId, Count>>,
    networks: Networks,
}

/// The resources of one client.
#[derive(Debug, Default)]
struct Count {
    connections: usize,
    /// Connections of proxies that act for it.
    acting: usize,
    held: Arc<ClientHeld>,
}

/// What the connections of one client hold together.
#[derive(Debug, Default)]
struct ClientHeld {
    all: Held,
    /// Seats by route. Routes may share a count, which keeps them together.
    seats: [AtomicU32; SEAT_COUNTS],
}

/// Whom a connection counts for.
#[derive(Debug, Default)]
pub(crate) enum CountsFor {
    #[default]
    Nobody,
    Client(Arc<ClientConnection>),
    /// A proxy, or another program on this machine. The service says for each request who its
    /// client is.
    Proxy,
}

/// A connection that counts for its client. Dropping it removes it from the count.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    clients: Arc<Clients>,
    client: ClientId,
    /// Whether it is the client's own, and not that of a proxy which acts for it.
    is_own: bool,
    held: Arc<ClientHeld>,
    /// What its IPv6 network of 48 bits holds.
    network: Option<Arc<Held>>,
}

/// A thread that waits for a client. Dropping it removes it from the count.
#[derive(Debug)]
pub(crate) struct HeldThread(Arc<ClientConnection>);

/// A descriptor that is held for a client in addition to those of its connections. Dropping it
/// removes it from the count.
#[derive(Debug)]
pub(crate) struct ClientDescriptor(Arc<ClientConnection>);

impl CountsFor {
    pub(crate) fn is_proxy(&self) -> bool {
        matches!(self, Self::Proxy)
    }

    /// Returns the client, if the connection is its own.
    pub(crate) fn client(self) -> Option<Arc<ClientConnection>> {
        match self {
            Self::Client(client) => Some(client),
            Self::Nobody | Self::Proxy => None,
        }
    }
}

impl Clients {
    /// Returns a table that bounds every client.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self {
            connections_max,
            counts_peers: true,
            counts_private: true,
            counts: Mutex::new(HashMap::new()),
            networks: Networks::new(connections_max.saturating_mul(NETWORK_SHARE)),
        }
    }

    /// Returns a table that bounds clients with public addresses. Clients on this machine and on
    /// private networks are usually proxies, which carry the connections of many clients.
    ///
    /// The maximum is half of all connections. A network has three quarters: four times as many
    /// would be no bound.
    pub(crate) fn public(connections_max: usize) -> Self {
        Self {
            counts_private: false,
            networks: Networks::new(connections_max + connections_max / 2),
            ..Self::new(connections_max)
        }
    }

    /// Returns a table that counts no connections. It counts what proxies hold for clients with
    /// public addresses.
    pub(crate) fn of_proxies() -> Self {
        Self { counts_peers: false, counts_private: false, ..Self::new(usize::MAX) }
    }

    /// Counts one more connection. Returns `Ok(None)` if the client is not counted.
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Result<Option<Arc<ClientConnection>>, AtLimit> {
        if !self.counts_peers || !self.counts_private && is_private(address) {
            return Ok(None);
        }
        let client = client_network(address);
        let mut counts = self.counts.lock();
        let count = counts.entry(client).or_default();
        let has_place = count.connections < self.connections_max;
        let entered = if has_place { self.networks.enter(client) } else { Err(AtLimit) };
        let Ok(network) = entered else {
            if count.connections + count.acting == 0 {
                counts.remove(&client);
            }
            return Err(AtLimit);
        };
        count.connections += 1;
        let held = Arc::clone(&count.held);
        drop(counts);
        let (clients, is_own) = (Arc::clone(self), true);
        Ok(Some(Arc::new(ClientConnection { clients, client, is_own, held, network })))
    }

    /// Lets a connection of a proxy act for a client. The connection is not counted as one of the
    /// client's, but what it holds counts for the client. Returns `None` if the client is not
    /// counted.
    pub(crate) fn act_for(self: &Arc<Self>, address: IpAddr) -> Option<Arc<ClientConnection>> {
        if !self.counts_private && is_private(address) {
            return None;
        }
        let client = client_network(address);
        let network = self.networks.join(client);
        let mut counts = self.counts.lock();
        let count = counts.entry(client).or_default();
        count.acting += 1;
        let held = Arc::clone(&count.held);
        drop(counts);
        let (clients, is_own) = (Arc::clone(self), false);
        Some(Arc::new(ClientConnection { clients, client, is_own, held, network }))
    }

    fn release(&self, client: ClientId, is_own: bool) {
        self.networks.leave(client, is_own);
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&client) else { return };
        *if is_own { &mut count.connections } else { &mut count.acting } -= 1;
        if count.connections + count.acting > 0 {
            return;
        }
        counts.remove(&client);
        shrink(&mut counts);
    }
}

impl ClientConnection {
    /// Returns how many connections its client has, or its IPv6 network of 48 bits: the larger
    /// number.
    pub(crate) fn connections(&self) -> usize {
        let own = self.clients.counts.lock().get(&self.client).map_or(0, |count| count.connections);
        own.max(self.clients.networks.connections(self.client))
    }

    pub(crate) fn client(&self) -> ClientId {
        self.client
    }

    /// Counts one more thread that waits for this client. Returns `None` if there are already
    /// `threads_max`, or twice as many for its network.
    pub(crate) fn hold_thread(self: &Arc<Self>, threads_max: usize) -> Option<HeldThread> {
        self.try_hold(|held| &held.threads, threads_max).then(|| HeldThread(Arc::clone(self)))
    }

    /// Counts one more descriptor that is held for this client. Returns `None` if there are already
    /// `descriptors_max`, or twice as many for its network.
    pub(crate) fn hold_descriptor(
        self: &Arc<Self>,
        descriptors_max: usize,
    ) -> Option<ClientDescriptor> {
        self.try_hold(|held| &held.descriptors, descriptors_max)
            .then(|| ClientDescriptor(Arc::clone(self)))
    }

    fn try_hold(&self, count: impl Fn(&Held) -> &AtomicUsize, max: usize) -> bool {
        let network_max = max.saturating_mul(NETWORK_HOLDS);
        let network = self.network.as_deref().map(|held| (count(held), network_max));
        try_count((count(&self.held.all), max), network)
    }

    /// Returns the counts of this client and of its network.
    fn all(&self) -> impl Iterator<Item = &Held> {
        std::iter::once(&self.held.all).chain(self.network.as_deref())
    }

    /// Returns the bytes of the client's contents that wait in files, or half of those of its
    /// network: the larger number.
    #[cfg(feature = "spool")]
    pub(crate) fn spooled(&self) -> u64 {
        let network = self.network.as_ref().map_or(0, |held| held.spooled.load(Ordering::Relaxed));
        self.held.all.spooled.load(Ordering::Relaxed).max(network / NETWORK_HOLDS as u64)
    }

    /// Counts more bytes in files. Returns `false`, and counts nothing, if the client would then
    /// have more than `bytes_max`, or its network twice as many.
    #[cfg(feature = "spool")]
    pub(crate) fn try_spool(&self, more: u64, bytes_max: u64) -> bool {
        let add = |held: &Held, max: u64| {
            let fits = |used: u64| used.checked_add(more).filter(|sum| *sum <= max);
            held.spooled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
        };
        if !add(&self.held.all, bytes_max) {
            return false;
        }
        let network_max = bytes_max.saturating_mul(NETWORK_HOLDS as u64);
        let has_space = self.network.as_ref().is_none_or(|network| add(network, network_max));
        if !has_space {
            self.held.all.spooled.fetch_sub(more, Ordering::Relaxed);
        }
        has_space
    }

    /// Removes bytes in files from the count.
    #[cfg(feature = "spool")]
    pub(crate) fn release_spooled(&self, bytes: u64) {
        self.all().for_each(|held| _ = held.spooled.fetch_sub(bytes, Ordering::Relaxed));
    }

    /// Returns how many bytes of the memory budget the client has.
    pub(crate) fn memory(&self) -> usize {
        self.held.all.memory.load(Ordering::Relaxed)
    }

    /// Counts more bytes of the memory budget.
    pub(crate) fn add_memory(&self, more: usize) {
        self.all().for_each(|held| _ = held.memory.fetch_add(more, Ordering::Relaxed));
    }

    /// Removes bytes of the memory budget from the counts.
    pub(crate) fn remove_memory(&self, less: usize) {
        self.all().for_each(|held| _ = held.memory.fetch_sub(less, Ordering::Relaxed));
    }

    /// Returns whether the client and its network may keep their memory if `free` bytes are free.
    pub(crate) fn may_have_memory(&self, free: usize) -> bool {
        let network = self.network.as_ref().map_or(0, |held| held.memory.load(Ordering::Relaxed));
        may_have(self.memory(), free, CLIENT_SHARE) && may_have(network, free, LARGE_SHARE)
    }

    /// Counts an estimate of memory, if the client and its network may have it when `free` bytes
    /// are then left. Returns whether it is counted.
    pub(crate) fn try_estimate(&self, bytes: usize, free: usize) -> bool {
        let then = |held: &Held| held.estimates.load(Ordering::Relaxed).saturating_add(bytes);
        let network = self.network.as_deref().map_or(0, then);
        let is_allowed = may_have(then(&self.held.all), free, CLIENT_SHARE)
            && may_have(network, free, LARGE_SHARE);
        if is_allowed {
            self.all().for_each(|held| _ = held.estimates.fetch_add(bytes, Ordering::Relaxed));
        }
        is_allowed
    }

    /// Removes an estimate from the counts.
    pub(crate) fn release_estimate(&self, bytes: usize) {
        self.all().for_each(|held| _ = held.estimates.fetch_sub(bytes, Ordering::Relaxed));
    }

    /// Returns the number of the client's seats of the route with this index. Like the other counts
    /// of seats, it changes only under the lock of [`Seats`](super::seats::Seats).
    #[inline]
    pub(crate) fn seats(&self, route: usize) -> usize {
        self.held.seats[route % SEAT_COUNTS].load(Ordering::Relaxed) as usize
    }

    /// Returns the number of seats of all routes that the client has, or its network: the larger
    /// number.
    #[inline]
    pub(crate) fn all_seats(&self) -> usize {
        self.all().map(|held| held.seats.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Returns the number of seats of all routes that its network has, or 0 if it is in none.
    pub(crate) fn network_seats(&self) -> usize {
        self.network.as_ref().map_or(0, |held| held.seats.load(Ordering::Relaxed))
    }

    /// Counts one more seat of the route with this index.
    #[inline]
    pub(crate) fn add_seat(&self, route: usize) {
        self.held.seats[route % SEAT_COUNTS].fetch_add(1, Ordering::Relaxed);
        self.all().for_each(|held| _ = held.seats.fetch_add(1, Ordering::Relaxed));
    }

    /// Removes one seat of the route with this index from the counts.
    #[inline]
    pub(crate) fn remove_seat(&self, route: usize) {
        self.held.seats[route % SEAT_COUNTS].fetch_sub(1, Ordering::Relaxed);
        self.all().for_each(|held| _ = held.seats.fetch_sub(1, Ordering::Relaxed));
    }

    /// Returns the number of seats for vital requests that the client has, or its network: the
    /// larger number.
    pub(crate) fn vital_seats(&self) -> usize {
        self.all().map(|held| held.vital_seats.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Counts one more seat for vital requests.
    pub(crate) fn add_vital_seat(&self) {
        self.all().for_each(|held| _ = held.vital_seats.fetch_add(1, Ordering::Relaxed));
    }

    /// Removes one seat for vital requests from the counts.
    pub(crate) fn remove_vital_seat(&self) {
        self.all().for_each(|held| _ = held.vital_seats.fetch_sub(1, Ordering::Relaxed));
    }
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        self.0.all().for_each(|held| _ = held.threads.fetch_sub(1, Ordering::Relaxed));
    }
}

impl Drop for ClientDescriptor {
    fn drop(&mut self) {
        self.0.all().for_each(|held| _ = held.descriptors.fetch_sub(1, Ordering::Relaxed));
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.clients.release(self.client, self.is_own);
    }
}

#[cfg(test)]
mod tests;
