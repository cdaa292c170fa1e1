//! A check for consoles that need no password: whether a request comes from this machine.

use std::net::IpAddr;

use filoplume_runtime::{Peer, Request, Response};

use crate::core::error::{Error, Result};
use crate::core::middleware::Next;

/// The host names of this machine. A request for any other name could come from a page of another
/// site (DNS rebinding).
pub(super) const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The fields that proxies add. Behind a proxy on this machine, every client seems to have the
/// address of the proxy.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

pub(super) fn only_this_machine(request: Request, next: Next<'_>) -> Result<Response> {
    let is_direct = FORWARDED.iter().all(|name| !request.headers().contains(name));
    if is_direct && is_loopback(request.peer()) {
        return Ok(next.run(request));
    }
    Err(Error::forbidden(
        "this console is only for browsers on the machine of the server: \
         `Console::with_password` is for others",
    ))
}

/// Returns whether the peer is on this machine. A Unix socket does not count: its peers are
/// proxies.
fn is_loopback(peer: Peer) -> bool {
    match peer {
        // A socket for both families sees IPv4 addresses inside of IPv6 ones.
        Peer::Tcp(address) => IpAddr::is_loopback(&address.ip().to_canonical()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_this_machine() {
        for (address, expected) in [
            ("127.0.0.1:1", true),
            ("127.8.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("[::ffff:192.0.2.1]:1", false),
            ("192.168.0.1:1", false),
            ("[fe80::1]:1", false),
        ] {
            assert_eq!(is_loopback(Peer::Tcp(address.parse().unwrap())), expected, "{address}");
        }
        assert!(!is_loopback(Peer::Unix));
    }
}
