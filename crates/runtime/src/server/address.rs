//! Addresses to listen on, in the forms in which programs have them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::vec;

use crate::error::{Kind, Result};

/// A type that names a host and a port to listen on: a text such as `127.0.0.1:5000` or
/// `localhost:5000`, a [`SocketAddr`], or a pair of a host and a port.
///
/// It replaces [`ToSocketAddrs`] in bounds, so that compiler errors and errors at the start say how
/// an address is written.
///
/// ```
/// use filoplume_runtime::Server;
///
/// let port = std::env::var("PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(0);
/// let server = Server::bind(("127.0.0.1", port))?;
/// # drop(server);
/// let error = Server::bind("5000").unwrap_err();
/// assert!(error.to_string().contains("write a host and a port, such as 127.0.0.1:5000"));
/// # Ok::<(), filoplume_runtime::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an address to listen on",
    label = "not a host and a port",
    note = "write a host and a port: `\"127.0.0.1:5000\"`, or `(\"127.0.0.1\", port)` with a \
            `port: u16`",
    note = "with a port that is a text, such as that of the variable `PORT`: \
            `format!(\"127.0.0.1:{{port}}\")`",
    note = "a server at `127.0.0.1` can be reached from this machine only, one at `0.0.0.0` from \
            others too"
)]
pub trait IntoAddress {
    /// Returns the address as a text, such as `127.0.0.1:5000`, `[::1]:5000` or `localhost:5000`.
    fn into_address(self) -> String;
}

/// Returns what an address stands for: at least one socket address, to be tried in turn.
///
/// # Errors
///
/// Returns an error that says how an address is written, or that the name is unknown.
pub(super) fn resolve(address: &str) -> Result<vec::IntoIter<SocketAddr>> {
    // The advice comes first: to ask the network for a wrong name can take seconds.
    let resolved = match advice(address) {
        Some(advice) => Err(io::Error::new(io::ErrorKind::InvalidInput, advice)),
        None => address.to_socket_addrs(),
    };
    resolved
        .and_then(|addresses| match addresses.as_slice() {
            [] => Err(io::ErrorKind::AddrNotAvailable.into()),
            _ => Ok(addresses),
        })
        .map_err(|source| Kind::Resolve { address: address.to_owned(), source }.into())
}

/// Returns what to write in place of a text that is no address.
fn advice(text: &str) -> Option<&'static str> {
    if text.contains('/') {
        return Some(if text.starts_with("http") {
            "write only the host and the port"
        } else {
            "for a Unix socket use `listen_unix` or `bind_unix`"
        });
    }
    // An IPv6 address without brackets ends with a part that looks like a port.
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_ipv6 = host.parse::<Ipv6Addr>().is_ok();
    if host.is_empty() || (host.ends_with(':') && !is_ipv6) {
        return Some("write a host and a port, such as 127.0.0.1:5000");
    }
    port.parse::<u16>().is_err().then_some("a port is a number of at most 65535")
}

impl IntoAddress for &str {
    fn into_address(self) -> String {
        self.to_owned()
    }
}

impl IntoAddress for String {
    fn into_address(self) -> String {
        self
    }
}

impl IntoAddress for SocketAddr {
    fn into_address(self) -> String {
        self.to_string()
    }
}

impl IntoAddress for (&str, u16) {
    fn into_address(self) -> String {
        let (host, port) = self;
        match host.parse::<IpAddr>() {
            Ok(host) => (host, port).into_address(),
            Err(_) => format!("{host}:{port}"),
        }
    }
}

impl IntoAddress for (String, u16) {
    fn into_address(self) -> String {
        (&*self.0, self.1).into_address()
    }
}

impl IntoAddress for (&String, u16) {
    fn into_address(self) -> String {
        (&**self.0, self.1).into_address()
    }
}

macro_rules! socket_addresses {
    ($($type:ty),+ $(,)?) => {
        $(
            impl IntoAddress for $type {
                fn into_address(self) -> String {
                    SocketAddr::from(self).to_string()
                }
            }
        )+
    };
}

socket_addresses!(SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

#[diagnostic::do_not_recommend]
impl<T: IntoAddress + Clone> IntoAddress for &T {
    fn into_address(self) -> String {
        self.clone().into_address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: impl IntoAddress, expected: &str) {
        let resolved = resolve(&address.into_address()).map(|addresses| {
            let addresses: Vec<_> = addresses.map(|address| address.to_string()).collect();
            addresses.join(" ")
        });
        assert_eq!(resolved.unwrap_or_else(|error| error.to_string()), expected);
    }

    #[test]
    #[expect(
        clippy::needless_borrows_for_generic_args,
        reason = "whether references are addresses is what is tested"
    )]
    fn a_host_and_a_port_have_many_forms() {
        let four = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5000);
        let six = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 5000, 0, 0);
        check("127.0.0.1:5000", "127.0.0.1:5000");
        check(&"127.0.0.1:5000", "127.0.0.1:5000");
        check(String::from("[::1]:5000"), "[::1]:5000");
        check(&String::from("[::1]:5000"), "[::1]:5000");
        // A host without brackets, as from a variable.
        check(":::5000", "[::]:5000");
        check(four, "127.0.0.1:5000");
        check(six, "[::1]:5000");
        check(&SocketAddr::from(six), "[::1]:5000");
        check(("127.0.0.1", 5000), "127.0.0.1:5000");
        check(&("::1", 5000), "[::1]:5000");
        check(("[::1]", 5000), "[::1]:5000");
        check((String::from("127.0.0.1"), 5000), "127.0.0.1:5000");
        check((&String::from("127.0.0.1"), 5000), "127.0.0.1:5000");
        check((Ipv4Addr::LOCALHOST, 5000), "127.0.0.1:5000");
        check(&(Ipv6Addr::LOCALHOST, 5000), "[::1]:5000");
        check((IpAddr::V4(Ipv4Addr::LOCALHOST), 5000), "127.0.0.1:5000");
    }

    #[test]
    fn a_text_that_is_no_address_is_explained() {
        let rows = [
            ("5000", "write a host and a port, such as 127.0.0.1:5000"),
            ("localhost", "write a host and a port, such as 127.0.0.1:5000"),
            (":5000", "write a host and a port, such as 127.0.0.1:5000"),
            ("127.0.0.1", "write a host and a port, such as 127.0.0.1:5000"),
            ("::1", "write a host and a port, such as 127.0.0.1:5000"),
            ("", "write a host and a port, such as 127.0.0.1:5000"),
            ("127.0.0.1:99999", "a port is a number of at most 65535"),
            ("localhost:http", "a port is a number of at most 65535"),
            ("/run/x.sock", "for a Unix socket use `listen_unix` or `bind_unix`"),
            ("http://127.0.0.1:5000", "write only the host and the port"),
        ];
        for (text, advice) in rows {
            check(text, &format!("cannot listen on {text}: {advice}"));
        }
        check(("", 80), "cannot listen on :80: write a host and a port, such as 127.0.0.1:5000");
    }
}
