//! The address of the client.

use std::net::IpAddr;

use filoplume_runtime::{Peer, Request};

use crate::semantics::authority::split_port;
#[cfg(any(feature = "sessions", feature = "websocket"))]
use crate::semantics::origin::is_origin_of;

/// The address of the client, and the scheme and host of its request.
///
/// Without proxies, the client is the peer of the connection. If the peer is a proxy that
/// [`App::trust_proxies`](crate::App::trust_proxies) names, its header says who the client is;
/// headers of other peers are ignored. If an address in the header is invalid, the last valid proxy
/// counts as the client.
///
/// ```
/// use filoplume::extract::Proxies;
/// use filoplume::prelude::*;
///
/// let app = App::new()
///     .get("/", |client: ClientAddr| format!("{} over {}", client, client.scheme()))
///     .trust_proxies(Proxies::loopback());
/// let client = app.test();
/// client
///     .get("/")
///     .header("x-forwarded-for", "10.1.2.3, 192.0.2.60")
///     .send()
///     .assert_text("192.0.2.60 over http");
/// ```
///
/// Middleware calls [`Context::client`](crate::Context::client), or
/// [`Context::client_ip`](crate::Context::client_ip) for the address alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddr {
    pub(super) ip: Option<IpAddr>,
    is_https: bool,
    host: Option<String>,
}

/// Returns whether the request came over TLS to this server.
pub(crate) fn is_over_tls(request: &Request) -> bool {
    #[cfg(feature = "tls")]
    let is_over_tls = request.tls().is_some();
    #[cfg(not(feature = "tls"))]
    let is_over_tls = {
        let _ = request;
        false
    };
    is_over_tls
}

impl ClientAddr {
    /// Returns the peer of the connection.
    pub(crate) fn of_peer(request: &Request) -> Self {
        let ip = match request.peer() {
            Peer::Tcp(address) => Some(address.ip().to_canonical()),
            _ => None,
        };
        Self { ip, is_https: is_over_tls(request), host: request.authority().map(str::to_owned) }
    }

    /// Returns the address, or `None` if the client is connected over a Unix socket and no proxy
    /// named it.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Returns the scheme that the client used: `https` if the connection came over TLS or a proxy
    /// says so, otherwise `http`.
    pub fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    /// Returns whether the client used `https`, on this connection or according to a proxy.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the host of the request, with its port if there is one. It comes from a trusted
    /// proxy, or from the request. The client chooses this value.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns whether an origin is this site's. It may name the host of the request, which a proxy
    /// may have changed, or the host that the client used according to a proxy. A page of another
    /// site can set neither.
    #[cfg(any(feature = "sessions", feature = "websocket"))]
    pub(crate) fn is_own_origin(&self, origin: &str, request: &Request) -> bool {
        let mut hosts = request.authority().into_iter().chain(self.host());
        hosts.any(|host| is_origin_of(origin, host, self.is_https))
    }

    pub(super) fn set_scheme(&mut self, scheme: Option<&str>) {
        if let Some(scheme) = scheme {
            self.is_https = scheme.eq_ignore_ascii_case("https");
        }
    }

    pub(super) fn set_host(&mut self, host: Option<&str>) {
        if let Some(host) = host.filter(|host| is_authority(host)) {
            self.host = Some(host.to_owned());
        }
    }
}

/// Returns whether a text is a host, or a host with a port. Anything else could send a client that
/// follows a link to this host elsewhere: in `https://a.example:@b.example`, `a.example` is a user.
fn is_authority(text: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|it| it.is_ascii_digit()) && port.len() <= 5;
    split_port(text).is_some_and(|(_, port)| port.is_none_or(is_port))
}

/// Displays the address, or `unknown`.
impl std::fmt::Display for ClientAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ip {
            Some(ip) => ip.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}
