//! What each large IPv6 network holds. A client is a network of 64 bits, and whoever has
//! one of 48 bits is 65,536 clients.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::budget::counts::{AtLimit, shrink};
use crate::budget::held::Held;

/// The bits of an address that are its client's and not its network's. Hosting providers and
/// tunnels give networks of 48 bits to anyone.
const BITS: u32 = 128 - 48;

/// The networks that have connections.
#[derive(Debug)]
pub(crate) struct Networks {
    connections_max: usize,
    counts: Mutex<HashMap<Ipv6Addr, Count>>,
}

/// The resources of one network.
#[derive(Debug, Default)]
struct Count {
    connections: usize,
    /// Connections of proxies that act for its clients.
    acting: usize,
    held: Arc<Held>,
}

impl Networks {
    pub(crate) fn new(connections_max: usize) -> Self {
        Self { connections_max, counts: Mutex::new(HashMap::new()) }
    }

    /// Counts one more connection of this client. Returns what its network holds; an IPv4 address
    /// is in none.
    pub(crate) fn enter(&self, client: IpAddr) -> Result<Option<Arc<Held>>, AtLimit> {
        let Some(network) = network_of(client) else { return Ok(None) };
        let mut counts = self.counts.lock();
        let count = counts.entry(network).or_default();
        if count.connections >= self.connections_max {
            return Err(AtLimit);
        }
        count.connections += 1;
        Ok(Some(Arc::clone(&count.held)))
    }

    /// Counts a connection of a proxy that acts for this client. Returns what its network holds.
    pub(crate) fn join(&self, client: IpAddr) -> Option<Arc<Held>> {
        let network = network_of(client)?;
        let mut counts = self.counts.lock();
        let count = counts.entry(network).or_default();
        count.acting += 1;
        Some(Arc::clone(&count.held))
    }

    /// Removes a connection of this client from the count, or one that acts for it.
    pub(crate) fn leave(&self, client: IpAddr, is_own: bool) {
        let Some(network) = network_of(client) else { return };
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&network) else { return };
        *if is_own { &mut count.connections } else { &mut count.acting } -= 1;
        if count.connections + count.acting == 0 {
            counts.remove(&network);
            shrink(&mut counts);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.lock().is_empty()
    }

    /// Returns how many connections the network of this client has. An IPv4 address is in none.
    pub(crate) fn connections(&self, client: IpAddr) -> usize {
        let Some(network) = network_of(client) else { return 0 };
        self.counts.lock().get(&network).map_or(0, |count| count.connections)
    }
}

/// Returns the network of 48 bits that an IPv6 client belongs to.
pub(crate) fn network_of(client: IpAddr) -> Option<Ipv6Addr> {
    match client {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(Ipv6Addr::from(u128::from(address) >> BITS << BITS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn clients_of_one_network_count_together() {
        let networks = Networks::new(2);
        assert!(
            networks.enter(client("2001:db8:0:1::")).is_ok()
                && networks.enter(client("2001:db8::")).is_ok()
        );
        assert!(networks.enter(client("2001:db8:0:ffff::")).is_err());
        assert!(networks.enter(client("2001:db8:1::")).is_ok(), "another network");
        assert_eq!(networks.connections(client("2001:db8:0:2::")), 2);
        networks.leave(client("2001:db8::"), true);
        assert!(networks.enter(client("2001:db8:0:ffff::")).is_ok());
        for left in ["2001:db8:0:1::", "2001:db8:0:ffff::", "2001:db8:1::"] {
            networks.leave(client(left), true);
        }
        assert!(networks.counts.lock().is_empty(), "a network without connections has no entry");
    }

    #[test]
    fn an_ipv4_address_is_in_no_network() {
        let networks = Networks::new(1);
        assert!((0..10).all(|_| networks.enter(client("192.0.2.1")).is_ok()));
        networks.leave(client("192.0.2.1"), true);
        assert_eq!(networks.connections(client("192.0.2.1")), 0);
    }
}
