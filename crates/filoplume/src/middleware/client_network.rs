//! The network that a limit counts as one client.

use std::net::IpAddr;

use filoplume_runtime::Request;

use crate::core::context::Context;

/// Returns the client's IPv4 address, or the first 64 bits of its IPv6 address: a client that has
/// one address of such a network usually has all of them. Returns `None` for a Unix socket.
pub(super) fn client_network(request: &Request, context: Context<'_>) -> Option<IpAddr> {
    context.client_ip(request).map(network_of)
}

fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address @ IpAddr::V4(_) => address,
    }
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
}
