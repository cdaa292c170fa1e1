//! The connections and threads that each client holds, if that is bounded. Only clients with a
//! connection have an entry, so the table is never longer than the list of connections.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
#[cfg(feature = "spool")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The table keeps its memory up to this capacity.
const CAPACITY_KEPT: usize = 1024;

/// The connections of each client.
#[derive(Debug)]
pub(crate) struct Clients {
    connections_max: usize,
    /// Whether clients on this machine and on private networks are counted too.
    counts_private: bool,
    counts: Mutex<HashMap<IpAddr, Count>>,
}

/// The resources of one client.
#[derive(Debug, Default)]
struct Count {
    connections: usize,
    /// Threads that wait for this client.
    threads: Arc<AtomicUsize>,
    /// Bytes of its contents that wait in files.
    #[cfg(feature = "spool")]
    spooled: Arc<AtomicU64>,
}

/// The client already has its maximum of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtLimit;

/// A connection that counts for its client. Dropping it removes it from the count.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    clients: Arc<Clients>,
    client: IpAddr,
    threads: Arc<AtomicUsize>,
    /// Bytes of its contents that wait in files.
    #[cfg(feature = "spool")]
    spooled: Arc<AtomicU64>,
}

/// A thread that waits for a client. Dropping it removes it from the count.
#[derive(Debug)]
pub(crate) struct HeldThread(Arc<ClientConnection>);

impl Clients {
    /// Returns a table that bounds every client.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self { connections_max, counts_private: true, counts: Mutex::new(HashMap::new()) }
    }

    /// Returns a table that bounds clients with public addresses. Clients on this machine and on
    /// private networks are usually proxies, which carry the connections of many clients.
    pub(crate) fn public(connections_max: usize) -> Self {
        Self { counts_private: false, ..Self::new(connections_max) }
    }

    /// Counts one more connection. Returns `Ok(None)` if the client is not counted.
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Result<Option<Arc<ClientConnection>>, AtLimit> {
        if !self.counts_private && is_private(address) {
            return Ok(None);
        }
        let client = client_of(address);
        let mut counts = self.counts.lock();
        let count = counts.entry(client).or_default();
        if count.connections >= self.connections_max {
            return Err(AtLimit);
        }
        count.connections += 1;
        let connection = ClientConnection {
            clients: Arc::clone(self),
            client,
            threads: Arc::clone(&count.threads),
            #[cfg(feature = "spool")]
            spooled: Arc::clone(&count.spooled),
        };
        drop(counts);
        Ok(Some(Arc::new(connection)))
    }

    fn release(&self, client: IpAddr) {
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&client) else { return };
        count.connections -= 1;
        if count.connections > 0 {
            return;
        }
        counts.remove(&client);
        // An attack from many addresses makes the table large. Its memory is released afterwards.
        if counts.capacity() > CAPACITY_KEPT && counts.len() < counts.capacity() / 8 {
            let wanted = counts.len() * 2;
            counts.shrink_to(wanted);
        }
    }
}

impl ClientConnection {
    /// Counts one more thread that waits for this client. Returns `None` if there are already
    /// `threads_max`.
    pub(crate) fn hold_thread(self: &Arc<Self>, threads_max: usize) -> Option<HeldThread> {
        let is_one_more = |threads| (threads < threads_max).then_some(threads + 1);
        self.threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_one_more).ok()?;
        Some(HeldThread(Arc::clone(self)))
    }

    /// Returns the bytes of the client's contents that wait in files.
    #[cfg(feature = "spool")]
    pub(crate) fn spooled(&self) -> &AtomicU64 {
        &self.spooled
    }
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.clients.release(self.client);
    }
}

/// Returns the address that stands for the client: an IPv4 address, or an IPv6 network of 64 bits,
/// which is the smallest network that a subscriber gets.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

/// Returns whether an address cannot be the source of packets from the open internet. That holds
/// for this machine, for private networks, and for the address space between a carrier or cloud and
/// its customers (RFC 6598).
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let is_shared = first == 100 && second & 0b1100_0000 == 64;
            address.is_loopback() || address.is_private() || address.is_link_local() || is_shared
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_may_open_its_maximum_of_connections_and_reopen_closed_ones() {
        let clients = Arc::new(Clients::new(2));
        let one = address("192.0.2.1");
        let first = clients.admit(one).unwrap();
        let second = clients.admit(one).unwrap();
        assert_eq!(clients.admit(one).unwrap_err(), AtLimit);
        assert!(clients.admit(address("192.0.2.2")).is_ok(), "another client is not affected");
        drop(first);
        let third = clients.admit(one).unwrap();
        assert!(third.is_some());
        assert_eq!(clients.admit(one).unwrap_err(), AtLimit);
        drop((second, third));
        assert!(clients.counts.lock().is_empty(), "a client without a connection has no entry");
    }

    #[test]
    fn an_ipv6_network_is_one_client_and_a_mapped_address_is_its_ipv4_address() {
        for (a, b, is_same) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false),
        ] {
            assert_eq!(client_of(address(a)) == client_of(address(b)), is_same, "{a} and {b}");
        }
    }

    #[test]
    fn private_addresses_are_counted_only_if_every_client_is() {
        for (text, is_private) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("172.16.0.1", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("169.254.1.1", true),
            ("100.64.0.1", true),
            ("100.127.255.255", true),
            ("100.128.0.1", false),
            ("192.0.2.1", false),
            ("::ffff:10.1.2.3", true),
            ("::ffff:192.0.2.1", false),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("2001:db8::1", false),
        ] {
            let (all, public) = (Arc::new(Clients::new(1)), Arc::new(Clients::public(1)));
            assert!(all.admit(address(text)).unwrap().is_some(), "{text}");
            assert_eq!(public.admit(address(text)).unwrap().is_none(), is_private, "{text}");
        }
    }

    #[test]
    fn the_table_shrinks_after_an_attack_from_many_addresses() {
        let clients = Arc::new(Clients::new(1));
        let connections: Vec<_> =
            (0..20_000_u32).map(|n| clients.admit(IpAddr::V4(n.into())).unwrap()).collect();
        assert_eq!(clients.counts.lock().len(), connections.len());
        drop(connections);
        let counts = clients.counts.lock();
        assert!(counts.is_empty() && counts.capacity() <= CAPACITY_KEPT, "{}", counts.capacity());
    }
}
