//! The connections of each large IPv6 network. A client is a network of 64 bits, and whoever has
//! one of 48 bits is 65,536 clients.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;

use crate::budget::clients::shrink;

/// The bits of an address that are its client's and not its network's. Hosting providers and
/// tunnels give networks of 48 bits to anyone.
const BITS: u32 = 128 - 48;

/// The connections of each network that has any.
#[derive(Debug)]
pub(crate) struct Networks {
    connections_max: usize,
    counts: Mutex<HashMap<Ipv6Addr, usize>>,
}

impl Networks {
    pub(crate) fn new(connections_max: usize) -> Self {
        Self { connections_max, counts: Mutex::new(HashMap::new()) }
    }

    /// Counts one more connection of this client. Returns `false` if its network has the maximum.
    pub(crate) fn enter(&self, client: IpAddr) -> bool {
        let Some(network) = network_of(client) else { return true };
        let mut counts = self.counts.lock();
        let count = counts.entry(network).or_default();
        let has_place = *count < self.connections_max;
        *count += usize::from(has_place);
        has_place
    }

    /// Removes a connection of this client from the count.
    pub(crate) fn leave(&self, client: IpAddr) {
        let Some(network) = network_of(client) else { return };
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&network) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&network);
            shrink(&mut counts);
        }
    }

    /// Returns how many connections the network of this client has. An IPv4 address is in none.
    pub(crate) fn connections(&self, client: IpAddr) -> usize {
        network_of(client).map_or(0, |network| self.counts.lock().get(&network).map_or(0, |n| *n))
    }
}

fn network_of(client: IpAddr) -> Option<Ipv6Addr> {
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
        assert!(networks.enter(client("2001:db8:0:1::")) && networks.enter(client("2001:db8::")));
        assert!(!networks.enter(client("2001:db8:0:ffff::")));
        assert!(networks.enter(client("2001:db8:1::")), "another network");
        assert_eq!(networks.connections(client("2001:db8:0:2::")), 2);
        networks.leave(client("2001:db8::"));
        assert!(networks.enter(client("2001:db8:0:ffff::")));
        for left in ["2001:db8:0:1::", "2001:db8:0:ffff::", "2001:db8:1::"] {
            networks.leave(client(left));
        }
        assert!(networks.counts.lock().is_empty(), "a network without connections has no entry");
    }

    #[test]
    fn an_ipv4_address_is_in_no_network() {
        let networks = Networks::new(1);
        assert!((0..10).all(|_| networks.enter(client("192.0.2.1"))));
        networks.leave(client("192.0.2.1"));
        assert_eq!(networks.connections(client("192.0.2.1")), 0);
    }
}
