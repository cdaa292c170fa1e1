//! A warning about a proxy that the app does not trust: all its clients then look like one.

use std::sync::atomic::{AtomicBool, Ordering};

use filoplume_runtime::{Incomplete, Peer, Request};

use super::Proxies;
use crate::log::log_without_subscriber;

/// The headers by which proxies name the client.
const HEADERS: [&str; 2] = ["X-Forwarded-For", "Forwarded"];

/// Set by the warning. One is enough: the mistake is the same for each request.
static HAS_WARNED: AtomicBool = AtomicBool::new(false);

impl Proxies {
    /// Warns, once in a process, if the peer names a client and is probably a proxy, but is not
    /// trusted. This is called only where the client matters, because it looks at the headers.
    #[cold]
    pub(crate) fn warn_of_untrusted(&self, request: &Request) {
        let peer = request.peer();
        if HAS_WARNED.load(Ordering::Relaxed) || !self.may_be_an_unlisted_proxy(peer) {
            return;
        }
        if let Some(header) = HEADERS.into_iter().find(|name| request.headers().contains(name)) {
            warn(peer, header, "App::trust_proxies");
        }
    }

    /// As [`warn_of_untrusted`](Self::warn_of_untrusted), for a request that was refused before it
    /// was complete: a PROXY header where none is expected looks like a malformed request.
    pub(crate) fn warn_of_proxy_header(&self, incomplete: &Incomplete<'_>) {
        let peer = incomplete.peer();
        if is_proxy_header(incomplete.first_line())
            && !HAS_WARNED.load(Ordering::Relaxed)
            && peer.is_private()
        {
            warn(peer, "a PROXY header", "ServerBuilder::proxy_protocol");
        }
    }

    /// Returns whether the peer may be a proxy of the app that is missing in the list. Only a peer
    /// with a private address can be: scanners on the internet send such headers too.
    fn may_be_an_unlisted_proxy(&self, peer: Peer) -> bool {
        !self.trusts_peer(peer) && peer.is_private()
    }
}

#[cold]
fn warn(peer: Peer, sent: &str, remedy: &str) {
    if HAS_WARNED.swap(true, Ordering::Relaxed) {
        return;
    }
    let peer = match peer {
        Peer::Tcp(address) => address.ip().to_canonical().to_string(),
        _ => "a Unix socket".to_owned(),
    };
    tracing::warn!(
        peer,
        sent,
        remedy,
        "a proxy that is not trusted: all its clients count as one client"
    );
    log_without_subscriber(&format!(
        "{peer} sends {sent} but is not trusted as a proxy: all its clients count as one client. \
         If it is your proxy, see `{remedy}`."
    ));
}

/// Returns whether this is the first line of a PROXY header. The binary version of the
/// header begins with line ends, which the engine skips, and its next line is `\0`.
fn is_proxy_header(line: &[u8]) -> bool {
    line.starts_with(b"PROXY TCP") || line.starts_with(b"PROXY UNKNOWN") || line == b"\0"
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn peer(ip: &str) -> Peer {
        Peer::Tcp((ip.parse::<IpAddr>().unwrap(), 4711).into())
    }

    #[test]
    fn only_near_peers_that_are_not_trusted_may_be_an_unlisted_proxy() {
        let none = Proxies::new();
        for near in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.0.1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(none.may_be_an_unlisted_proxy(peer(near)), "{near}");
        }
        for far in ["192.0.2.1", "172.32.0.1", "100.128.0.1", "8.8.8.8", "2001:db8::1"] {
            assert!(!none.may_be_an_unlisted_proxy(peer(far)), "{far}");
        }
        assert!(none.may_be_an_unlisted_proxy(Peer::Unix));
        assert!(!Proxies::loopback().may_be_an_unlisted_proxy(peer("127.0.0.1")));
        assert!(!Proxies::loopback().may_be_an_unlisted_proxy(Peer::Unix));
        assert!(Proxies::loopback().may_be_an_unlisted_proxy(peer("10.1.2.3")));
    }

    #[test]
    fn a_proxy_header_is_known_by_its_first_line() {
        for line in [&b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2"[..], b"PROXY UNKNOWN", b"\0"] {
            assert!(is_proxy_header(line), "{}", line.escape_ascii());
        }
        for line in [&b""[..], b"PROXY /a HTTP/1.1", b"GET / HTTP/1.1", b"\0\0"] {
            assert!(!is_proxy_header(line), "{}", line.escape_ascii());
        }
    }
}
