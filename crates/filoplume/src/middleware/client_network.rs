//! Whom a limit counts as one client.

use std::net::IpAddr;

use filoplume_runtime::Request;

use crate::core::context::Context;

/// Returns what the client has at least: an IPv4 address, or 64 bits of an IPv6 one, of which it
/// has all the others too. `None` if it came over a Unix socket.
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
    fn who_has_one_address_of_a_network_has_them_all() {
        let network = |text: &str| network_of(text.parse().expect("an address")).to_string();
        assert_eq!(network("192.0.2.7"), "192.0.2.7");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:2:ffff::"), "2001:db8:1:2::");
    }
}
