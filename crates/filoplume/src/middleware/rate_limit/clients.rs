//! The client whose buckets a request takes tokens from.

use std::net::{IpAddr, Ipv6Addr};

use filoplume_runtime::{Request, client_network};

use super::KeyOf;
use crate::core::context::Context;

/// Length in bytes up to which keys are distinguished. Longer keys with the same beginning share a
/// bucket.
const KEY_BYTES_MAX: usize = 256;

/// The beginning of a key from the program.
const KEY: &str = "key:";

/// The bits of an address after the first 48.
const NETWORK_HOST_BITS: u32 = 128 - 48;

/// The keys of the buckets. A key from the program never equals one from an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) key: String,
    /// The key of the IPv6 network of 48 bits, if the client is known by its address.
    pub(super) network: Option<String>,
}

impl Client {
    pub(super) fn of(request: &Request, context: Context<'_>, key: Option<&KeyOf>) -> Self {
        match key.and_then(|key| key(request)) {
            Some(key) => Self::with_key(key),
            None => Self::with_address(context.client_ip(request)),
        }
    }

    /// Returns whether the client is known by its address.
    pub(super) fn is_an_address(&self) -> bool {
        !self.key.starts_with(KEY)
    }

    fn with_key(mut key: String) -> Self {
        let end =
            (0..=KEY_BYTES_MAX).rev().find(|&end| key.is_char_boundary(end)).unwrap_or_default();
        key.truncate(end);
        Self { key: format!("{KEY}{key}"), network: None }
    }

    fn with_address(address: Option<IpAddr>) -> Self {
        match address.map(client_network) {
            Some(IpAddr::V6(client)) => {
                let bits = u128::from(client) >> NETWORK_HOST_BITS << NETWORK_HOST_BITS;
                let network = Ipv6Addr::from(bits);
                Self { key: format!("ip:{client}"), network: Some(format!("net:{network}")) }
            }
            Some(client) => Self { key: format!("ip:{client}"), network: None },
            None => Self { key: "unix".to_owned(), network: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ipv6_client_has_a_network() {
        for (address, key, network) in [
            ("192.0.2.7", "ip:192.0.2.7", None),
            ("::ffff:192.0.2.7", "ip:192.0.2.7", None),
            ("64:ff9b::192.0.2.7", "ip:192.0.2.7", None),
            ("2001:db8:1:2:3:4:5:6", "ip:2001:db8:1:2::", Some("net:2001:db8:1::")),
            ("2001:db8:1:0:3:4:5:6", "ip:2001:db8:1::", Some("net:2001:db8:1::")),
        ] {
            let client = Client::with_address(Some(address.parse().unwrap()));
            assert_eq!((&*client.key, client.network.as_deref()), (key, network), "{address}");
        }
        assert_eq!(Client::with_address(None).network, None);
        assert_eq!(Client::with_key("2001:db8::".to_owned()).network, None);
    }

    #[test]
    fn no_key_of_the_program_is_that_of_an_address() {
        let by_address = Client::with_address(Some("192.0.2.7".parse().unwrap()));
        let by_key = Client::with_key("ip:192.0.2.7".to_owned());
        assert_ne!(by_key.key, by_address.key, "each has a bucket of its own");
        assert!(by_address.is_an_address() && !by_key.is_an_address());
    }
}
