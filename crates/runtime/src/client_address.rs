//! What an address says of its client: the network that counts as one, and whether it is private.

use std::net::{IpAddr, Ipv6Addr};

/// Returns what stands for the client with this address wherever clients are counted: its IPv4
/// address, or the first 64 bits of its IPv6 address.
///
/// A client that has one address of such an IPv6 network usually has all of them. An IPv4 address
/// within an IPv6 one is the IPv4 client: in mapped addresses, and behind a translator with the
/// well-known prefix `64:ff9b::/96` (RFC 6052, section 2.1), in which all of IPv4 is one network.
///
/// ```
/// use filoplume_runtime::client_network;
/// use std::net::IpAddr;
///
/// let of = |address: &str| client_network(address.parse::<IpAddr>().unwrap()).to_string();
/// assert_eq!(of("192.0.2.7"), "192.0.2.7");
/// assert_eq!(of("64:ff9b::192.0.2.7"), "192.0.2.7");
/// assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
/// ```
#[must_use]
pub fn client_network(address: IpAddr) -> IpAddr {
    match ipv4_or_ipv6(address) {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Returns the IPv4 address that an IPv6 address contains, if it does.
fn ipv4_or_ipv6(address: IpAddr) -> IpAddr {
    let IpAddr::V6(ipv6) = address else { return address };
    let [0x64, 0xff9b, 0, 0, 0, 0, ..] = ipv6.segments() else { return address.to_canonical() };
    let [.., a, b, c, d] = ipv6.octets();
    IpAddr::from([a, b, c, d])
}

/// Returns whether an address cannot be the source of packets from the open internet. That holds
/// for this machine, for private networks, and for the address space between a carrier or cloud and
/// its customers (RFC 6598).
pub(crate) fn is_private(address: IpAddr) -> bool {
    match ipv4_or_ipv6(address) {
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

    #[test]
    fn all_addresses_of_a_network_are_one_client() {
        for (address, network) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2:ffff::", "2001:db8:1:2::"),
            ("64:ff9b::192.0.2.1", "192.0.2.1"),
            ("64:ff9b::192.0.2.2", "192.0.2.2"),
            // All 96 bits of the prefix must match.
            ("64:ff9b:0:0:0:1:192.0.2.1", "64:ff9b::"),
            // In the local-use prefix (RFC 8215) the place of the IPv4 address is not known.
            ("64:ff9b:1::192.0.2.1", "64:ff9b:1::"),
        ] {
            let of_address = client_network(address.parse().expect("an address"));
            assert_eq!(of_address.to_string(), network, "{address}");
        }
    }
}
