//! A check for consoles that need no password: whether a request comes from this machine.

use std::net::IpAddr;

use filoplume_runtime::{Peer, Request, Response};

use crate::core::error::{Error, Result};
use crate::core::middleware::Next;
use crate::semantics::origin::is_origin_of;

/// The host names of this machine. A request for any other name could come from a page of another
/// site (DNS rebinding).
pub(super) const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The fields that proxies add. Behind a proxy on this machine, every client seems to have the
/// address of the proxy.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

pub(super) fn only_this_machine(request: Request, next: Next<'_>) -> Result<Response> {
    let is_direct = FORWARDED.iter().all(|name| !request.headers().contains(name));
    if is_direct && is_loopback(request.peer()) && is_of_this_site(&request) {
        return Ok(next.run(request));
    }
    Err(Error::forbidden(
        "this console is only for browsers on the machine of the server: \
         `Console::with_password` is for others",
    ))
}

/// Returns whether no page of another site has sent the request. Such a page could read the
/// response if the app has a `Cors` that allows it, because that applies to the console too.
fn is_of_this_site(request: &Request) -> bool {
    let host = request.authority().unwrap_or_default();
    let is_own = |origin| std::str::from_utf8(origin).is_ok_and(|it| is_origin_of(it, host, false));
    request.headers().get_all("origin").all(is_own)
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
    use crate::middleware::Cors;
    use crate::{App, Console};

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

    #[test]
    fn no_page_of_another_site_reads_a_local_console_of_an_app_that_allows_all_origins() {
        let app = App::new()
            .get("/", || "for all")
            .console("/console", Console::local())
            .with(Cors::new().allow_any_origin());
        let client = app.test();
        let ask = |path, origin| {
            client.get(path).header("host", "localhost:5000").header("origin", origin).send()
        };
        ask("/", "https://evil.example").assert_status(200);
        for path in ["/console", "/console/events"] {
            ask(path, "http://localhost:5000").assert_status(200);
            for foreign in ["https://evil.example", "http://localhost:5001", "null", "\u{fc}"] {
                ask(path, foreign).assert_status(403);
            }
        }
    }
}
