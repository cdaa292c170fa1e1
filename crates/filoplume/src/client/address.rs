//! Who asks.

use std::net::IpAddr;

use filoplume_runtime::{Peer, Request};

use crate::semantics::authority::split_port;

/// Who asks: the client's address, and the scheme and host of its request, as far as they are
/// known.
///
/// Without proxies it is the peer of the connection. Proxies that are named to
/// [`App::trust_proxies`](crate::App::trust_proxies) are asked on whose behalf they are there;
/// nobody else's word counts. An address that cannot be read ends the walk: the last proxy that
/// could be read is the client then.
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
/// Middleware asks [`Context::client`](crate::Context::client), or
/// [`Context::client_ip`](crate::Context::client_ip) for the address alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddr {
    pub(super) ip: Option<IpAddr>,
    is_https: bool,
    host: Option<String>,
}

impl ClientAddr {
    /// The peer of the connection.
    pub(crate) fn of_peer(request: &Request) -> Self {
        let ip = match request.peer() {
            Peer::Tcp(address) => Some(address.ip().to_canonical()),
            _ => None,
        };
        Self { ip, is_https: false, host: request.authority().map(str::to_owned) }
    }

    /// Returns the address; `None` if the client came over a Unix socket and nobody said more.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Returns the scheme that the client used: `https` if a proxy says so, else `http`.
    pub fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    /// Returns whether the client used `https`, as a proxy says.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the host, and the port if there is one, that the client asked for: as a proxy says,
    /// else as the request says. The client can say whatever it likes.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub(super) fn set_scheme(&mut self, scheme: Option<&str>) {
        if let Some(scheme) = scheme {
            self.is_https = scheme.eq_ignore_ascii_case("https");
        }
    }

    pub(super) fn set_host(&mut self, host: Option<&str>) {
        if let Some(host) = host.filter(|host| split_port(host).is_some()) {
            self.host = Some(host.to_owned());
        }
    }
}

/// The address, or `unknown`.
impl std::fmt::Display for ClientAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ip {
            Some(ip) => ip.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}
