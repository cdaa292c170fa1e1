//! The network that a limit counts as one client.

use std::net::{IpAddr, Ipv6Addr};

use filoplume_runtime::Request;

use crate::core::context::Context;

/// Returns the client's IPv4 address, or the first 64 bits of its IPv6 address: a client that has
/// one address of such a network usually has all of them. Clients behind a translator (NAT64) are
/// counted by their IPv4 addresses. Returns `None` for a Unix socket.
pub(super) fn client_network(request: &Request, context: Context<'_>) -> Option<IpAddr> {
    context.client_ip(request).map(network_of)
}

fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if is_translated(address) => {
            let [.., a, b, c, d] = address.octets();
            IpAddr::from([a, b, c, d])
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Returns whether the last 32 bits are the address of an IPv4 client: the well-known prefix of
/// translators (RFC 6052, section 2.1). All of IPv4 shares that network.
fn is_translated(address: Ipv6Addr) -> bool {
    address.segments().starts_with(&[0x64, 0xff9b, 0, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_network_are_one_client() {
        let network = |text: &str| network_of(text.parse().expect("an address")).to_string();
        assert_eq!(network("192.0.2.7"), "192.0.2.7");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:2:ffff::"), "2001:db8:1:2::");
    }

    #[test]
    fn clients_behind_a_translator_are_not_one_client() {
        let network = |text: &str| network_of(text.parse().expect("an address")).to_string();
        assert_eq!(network("64:ff9b::192.0.2.1"), "192.0.2.1");
        assert_eq!(network("64:ff9b::192.0.2.2"), "192.0.2.2");
        // The local-use prefix (RFC 8215) says nothing about where the IPv4 address is.
        assert_eq!(network("64:ff9b:1::192.0.2.1"), "64:ff9b:1::");
        assert_eq!(network("64:ff9b:0:0:0:1:192.0.2.1"), "64:ff9b::");
    }
}
