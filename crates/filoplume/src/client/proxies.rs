//! Trusted proxies, and their headers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use filoplume_runtime::{Peer, Request};

use super::ClientAddr;
use crate::semantics::authority::split_port;
use crate::semantics::media_type::trim;

/// The proxies that are trusted to name the client, for
/// [`App::trust_proxies`](crate::App::trust_proxies).
///
/// A network is written as `10.0.0.0/8` or `fd00::/8`, an address as `192.0.2.7`, and `unix` stands
/// for all peers on a Unix socket. Any other peer is the client itself, whatever its headers say.
///
/// Only one header is read: `X-Forwarded-For`, or [`Forwarded`](Self::forwarded). They are never
/// combined, because a proxy writes one of them and passes on what the client wrote into the other.
///
/// ```
/// use filoplume::prelude::*;
/// use filoplume::extract::Proxies;
///
/// // nginx on this machine, and the load balancers in front of it. Both write X-Forwarded-For and
/// // X-Forwarded-Proto.
/// let proxies = Proxies::loopback().network("10.20.0.0/16").x_forwarded_proto();
/// let app = App::new()
///     .get("/", |client: ClientAddr| format!("{:?}", client.ip()))
///     .trust_proxies(proxies);
/// # app.build()?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "proxies are believed once they are given to `App::trust_proxies`"]
pub struct Proxies {
    networks: Vec<Network>,
    trusts_unix: bool,
    source: Source,
    reads_proto: bool,
    reads_host: bool,
    pub(crate) mistakes: Vec<String>,
}

/// The header to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    #[default]
    XForwardedFor,
    Forwarded,
}

impl Proxies {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the proxies on this machine: `127.0.0.0/8`, `::1`, and Unix sockets.
    pub fn loopback() -> Self {
        Self::from(["127.0.0.0/8", "::1", "unix"])
    }

    /// Returns the proxies on this machine and in private networks (RFC 1918, RFC 4193). Use this
    /// only if no client can connect from such a network.
    pub fn private() -> Self {
        let private = Self::from(["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]);
        ["127.0.0.0/8", "::1", "unix"].into_iter().fold(private, Self::network)
    }

    /// Adds a network, an address, or `unix`. With any other text the app does not start.
    pub fn network(mut self, network: &str) -> Self {
        if network == "unix" {
            self.trusts_unix = true;
            return self;
        }
        match network.parse() {
            Ok(network) => self.networks.push(network),
            Err(mistake) => {
                self.mistakes.push(format!("the network \"{network}\" of proxies: {mistake}"));
            }
        }
        self
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`. It also contains the scheme and
    /// the host.
    pub fn forwarded(mut self) -> Self {
        self.source = Source::Forwarded;
        self
    }

    /// Reads the client's scheme from `X-Forwarded-Proto`. The nearest proxy must set this header;
    /// otherwise it is what the client wrote. Default: not read.
    pub fn x_forwarded_proto(mut self) -> Self {
        self.reads_proto = true;
        self
    }

    /// Reads the host of the request from `X-Forwarded-Host`. The nearest proxy must set this
    /// header; otherwise it is what the client wrote. Default: not read.
    pub fn x_forwarded_host(mut self) -> Self {
        self.reads_host = true;
        self
    }

    /// Returns the client, as far as the proxies are trusted.
    pub(crate) fn client(&self, request: &Request) -> ClientAddr {
        let mut client = ClientAddr::of_peer(request);
        if self.trusts_peer(request.peer()) {
            match self.source {
                Source::XForwardedFor => self.follow_x_forwarded(request, &mut client),
                Source::Forwarded => self.follow_forwarded(request, &mut client),
            }
        } else {
            self.warn_of_untrusted(request);
        }
        client
    }

    /// Like [`client`](Self::client), but returns the address only.
    pub(crate) fn client_ip(&self, request: &Request) -> Option<IpAddr> {
        self.client_of_connection(request.peer()).or_else(|| self.client(request).ip())
    }

    /// Returns the client of a connection that comes from no trusted proxy.
    pub(crate) fn client_of_connection(&self, peer: Peer) -> Option<IpAddr> {
        let Peer::Tcp(address) = peer else { return None };
        Some(address.ip().to_canonical()).filter(|ip| !self.trusts(*ip))
    }

    pub(super) fn trusts_peer(&self, peer: Peer) -> bool {
        match peer {
            Peer::Tcp(address) => self.trusts(address.ip().to_canonical()),
            Peer::Unix => self.trusts_unix,
            _ => false,
        }
    }

    /// Returns whether a proxy with this address is trusted. The address must not be an IPv4-mapped
    /// IPv6 address.
    pub(crate) fn trusts(&self, ip: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(ip))
    }

    /// Each proxy appends the address of its peer. So the last entry is from our peer, the one
    /// before it is from the proxy that the last entry names, and so on. The first address that is
    /// not a trusted proxy is the client.
    fn follow_x_forwarded(&self, request: &Request, client: &mut ClientAddr) {
        let mut entries_seen = 0;
        for entry in entries_from_the_end(request, "x-forwarded-for") {
            let Some(ip) = std::str::from_utf8(entry).ok().and_then(node_ip) else { break };
            client.ip = Some(ip);
            entries_seen += 1;
            if !self.trusts(ip) {
                break;
            }
        }
        // Proxies set these headers, or append to them as to the addresses. In the second case, the
        // entry at the position of the client's address is the right one. If there are fewer
        // entries, that of the nearest proxy is used.
        let entry = |name| {
            let entries: Vec<_> = entries_from_the_end(request, name).collect();
            let entry = entries.get(usize::max(entries_seen, 1) - 1).or(entries.first());
            entry.and_then(|entry| std::str::from_utf8(entry).ok()).map(str::to_owned)
        };
        if self.reads_proto {
            client.set_scheme(entry("x-forwarded-proto").as_deref());
        }
        if self.reads_host {
            client.set_host(entry("x-forwarded-host").as_deref());
        }
    }

    fn follow_forwarded(&self, request: &Request, client: &mut ClientAddr) {
        for entry in entries_from_the_end(request, "forwarded") {
            let Some(element) = std::str::from_utf8(entry).ok().and_then(Element::parse) else {
                break;
            };
            client.set_scheme(element.proto.as_deref());
            client.set_host(element.host.as_deref());
            let Some(ip) = element.node.as_deref().and_then(node_ip) else { break };
            client.ip = Some(ip);
            if !self.trusts(ip) {
                break;
            }
        }
    }
}

impl From<&str> for Proxies {
    fn from(network: &str) -> Self {
        Self::new().network(network)
    }
}

impl<const N: usize> From<[&str; N]> for Proxies {
    fn from(networks: [&str; N]) -> Self {
        networks.into_iter().fold(Self::new(), Self::network)
    }
}

impl From<Vec<String>> for Proxies {
    fn from(networks: Vec<String>) -> Self {
        networks.iter().fold(Self::new(), |proxies, network| proxies.network(network))
    }
}

/// Returns the entries of a list from the end: the last one of the last header first.
///
/// They are split from the end, because trusted proxies append there: an open quote that a client
/// put at the beginning must not swallow their entries.
fn entries_from_the_end<'r>(request: &'r Request, name: &str) -> impl Iterator<Item = &'r [u8]> {
    let mut lines: Vec<&[u8]> = request.headers().get_all(name).collect();
    std::iter::from_fn(move || {
        let line = lines.pop()?;
        let comma = last_comma(line);
        if let Some(comma) = comma {
            lines.push(&line[..comma]);
        }
        Some(line[comma.map_or(0, |comma| comma + 1)..].trim_ascii())
    })
}

/// Returns the position of the last comma outside of quotes.
fn last_comma(line: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    for (at, byte) in line.iter().enumerate().rev() {
        match byte {
            b'"' if line[..at].iter().rev().take_while(|&&before| before == b'\\').count() % 2
                == 0 =>
            {
                is_quoted = !is_quoted;
            }
            b',' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// An element of `Forwarded` (RFC 7239, 4).
#[derive(Debug, Default)]
struct Element {
    node: Option<String>,
    proto: Option<String>,
    host: Option<String>,
}

impl Element {
    fn parse(text: &str) -> Option<Self> {
        let mut element = Self::default();
        // In other headers, parameters begin after a `;`.
        let text = format!(";{text}");
        for parameter in crate::semantics::media_type::parameters(&text) {
            let (name, value) = parameter.ok()?;
            let slot = match name.to_ascii_lowercase().as_str() {
                "for" => &mut element.node,
                "proto" => &mut element.proto,
                "host" => &mut element.host,
                _ => continue,
            };
            // A parameter must not occur twice in an element.
            if slot.replace(value.into_owned()).is_some() {
                return None;
            }
        }
        Some(element)
    }
}

/// Returns the address of a node, without its port.
fn node_ip(node: &str) -> Option<IpAddr> {
    let node = trim(node);
    let ip = match node.parse::<IpAddr>() {
        Ok(ip) => ip,
        Err(_) => {
            let (host, port) = split_port(node)?;
            // RFC 7239, 6.3 also allows obfuscated ports: `_` and a name.
            if !port.is_none_or(|port| port.parse::<u16>().is_ok() || port.starts_with('_')) {
                return None;
            }
            host.trim_start_matches('[').trim_end_matches(']').parse().ok()?
        }
    };
    Some(ip.to_canonical())
}

/// Addresses with a common prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    fn contains(self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(Ipv4Addr::BITS - self.prefix_bits).unwrap_or(0);
                (network.to_bits() ^ ip.to_bits()) & mask == 0
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(Ipv6Addr::BITS - self.prefix_bits).unwrap_or(0);
                (network.to_bits() ^ ip.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| {
            "write an IP address, such as 10.0.0.7 or 10.0.0.0/8: names are not looked up"
                .to_owned()
        })?;
        if address != address.to_canonical() {
            return Err(format!("write it as the IPv4 address {}", address.to_canonical()));
        }
        let bits_max = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        let prefix_bits = match prefix {
            None => bits_max,
            Some(prefix) => {
                let bits = prefix.parse().ok().filter(|&bits: &u32| bits <= bits_max);
                bits.ok_or_else(|| {
                    format!("the number after the `/` must be from 0 to {bits_max}")
                })?
            }
        };
        Ok(Self { address, prefix_bits })
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_in(network: &str, ip: &str) -> bool {
        network.parse::<Network>().unwrap().contains(ip.parse().unwrap())
    }

    #[test]
    fn networks_are_prefixes() {
        assert!(is_in("10.0.0.0/8", "10.255.0.1"));
        assert!(!is_in("10.0.0.0/8", "11.0.0.1"));
        assert!(is_in("172.16.0.0/12", "172.31.255.255"));
        assert!(!is_in("172.16.0.0/12", "172.32.0.0"));
        assert!(is_in("192.0.2.7", "192.0.2.7"));
        assert!(!is_in("192.0.2.7", "192.0.2.6"));
        assert!(is_in("0.0.0.0/0", "203.0.113.1"));
        assert!(!is_in("0.0.0.0/0", "::1"));
        assert!(is_in("fc00::/7", "fd12::1"));
        assert!(is_in("::/0", "2001:db8::1"));
        for wrong in [
            "",
            "10.0.0/8",
            "10.0.0.0/33",
            "::1/129",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "::ffff:10.0.0.1",
            "proxy",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn nodes_are_addresses_with_or_without_ports() {
        let ip = |node| node_ip(node).map(|ip| ip.to_string());
        for (node, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:4711", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:4711", Some("2001:db8::1")),
            ("[2001:db8::1]:_hidden", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("_secret", None),
            ("192.0.2.1:", None),
            ("192.0.2.1:99999", None),
            ("[192.0.2.1]", None),
            ("192.0.2.1, 10.0.0.1", None),
            ("", None),
        ] {
            assert_eq!(ip(node).as_deref(), expected, "{node}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            text in "[\",;=\\\\\\[\\]:./ a-f0-9]{0,40}",
        ) {
            let _ = last_comma(&bytes);
            let _ = Element::parse(&text);
            let _ = node_ip(&text);
            let _ = text.parse::<Network>();
        }
    }
}
