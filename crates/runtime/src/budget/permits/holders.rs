//! How many permits each counted client holds, and each large IPv6 network.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::Ipv6Addr;

use crate::budget::clients::ClientId;
use crate::budget::networks::network_of;
use crate::budget::thresholds::{CLIENT_SHARE, LARGE_SHARE, may_take};

/// The holders of permits. Clients and networks without permits have no entry.
#[derive(Debug, Default)]
pub(super) struct Holders {
    clients: HashMap<ClientId, usize>,
    networks: HashMap<Ipv6Addr, usize>,
}

impl Holders {
    /// Returns whether a client may take one more of the `free` permits.
    pub(super) fn may_take(&self, client: ClientId, free: usize) -> bool {
        may_take(self.of(client), free, CLIENT_SHARE) && self.network_may_take(client, free)
    }

    /// Returns whether the network of a client may take one more of the `free` permits.
    pub(super) fn network_may_take(&self, client: ClientId, free: usize) -> bool {
        let network = network_of(client).and_then(|network| self.networks.get(&network));
        may_take(network.copied().unwrap_or(0), free, LARGE_SHARE)
    }

    /// Returns how many permits a client holds.
    pub(super) fn of(&self, client: ClientId) -> usize {
        self.clients.get(&client).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, client: ClientId) {
        *self.clients.entry(client).or_default() += 1;
        if let Some(network) = network_of(client) {
            *self.networks.entry(network).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, client: ClientId) {
        remove(&mut self.clients, &client);
        if let Some(network) = network_of(client) {
            remove(&mut self.networks, &network);
        }
    }
}

fn remove<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    let Some(count) = counts.get_mut(key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes permits for these clients in turns until none of them may take one. Returns how many
    /// each has.
    fn fill<const N: usize>(
        holders: &mut Holders,
        mut free: usize,
        clients: [&str; N],
    ) -> [usize; N] {
        let clients = clients.map(|client| client.parse().unwrap());
        while let Some(client) = clients.iter().find(|client| holders.may_take(**client, free)) {
            holders.add(*client);
            free -= 1;
        }
        clients.map(|client| holders.of(client))
    }

    #[test]
    fn one_client_has_two_thirds_and_one_network_eight_ninths() {
        let mut holders = Holders::default();
        assert_eq!(fill(&mut holders, 16, ["192.0.2.1"]), [11]);
        assert_eq!(fill(&mut holders, 5, ["192.0.2.1", "192.0.2.2"]), [11, 4]);
        let mut holders = Holders::default();
        let subnets = ["2001:db8::", "2001:db8:0:1::", "2001:db8:0:2::", "2001:db8:0:3::"];
        assert_eq!(fill(&mut holders, 16, subnets), [11, 4, 0, 0]);
        assert_eq!(fill(&mut holders, 1, ["2001:db8:1::"]), [1], "another network");
    }

    #[test]
    fn whoever_holds_none_has_no_entry() {
        let mut holders = Holders::default();
        let [client, other] = ["2001:db8::", "192.0.2.1"].map(|client| client.parse().unwrap());
        for client in [client, client, other] {
            holders.add(client);
        }
        assert_eq!((holders.of(client), holders.of(other)), (2, 1));
        for client in [client, other, client] {
            holders.remove(client);
        }
        assert!(holders.clients.is_empty() && holders.networks.is_empty());
    }
}
