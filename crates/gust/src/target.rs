//! The server that a URL on the command line names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// How long to try each address of a name that has several.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// The protocol on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    /// HTTP over TLS.
    Https,
    /// A WebSocket.
    Ws,
    /// A WebSocket over TLS.
    Wss,
    /// An echo: the server sends back the bytes that it receives.
    Tcp,
}

/// A parsed URL, before its name is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: Scheme,
    pub(crate) host: Host,
    /// The value of `Host`.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Name(String, u16),
    Unix(PathBuf),
}

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Target {
    /// Parses `http://host[:port][/path]`, `https://`, `ws://`, `wss://`, `tcp://host:port`,
    /// `unix:/socket[:/path]` or `:port[/path]`.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        for (prefix, scheme) in [
            ("http://", Scheme::Http),
            ("https://", Scheme::Https),
            ("ws://", Scheme::Ws),
            ("wss://", Scheme::Wss),
        ] {
            if let Some(rest) = url.strip_prefix(prefix) {
                return Self::http(url, scheme, rest);
            }
        }
        if let Some(rest) = url.strip_prefix(':') {
            return Self::http(url, Scheme::Http, &format!("127.0.0.1:{rest}"));
        }
        if let Some(rest) = url.strip_prefix("tcp://") {
            let (host, port) = host_and_port(url, rest.trim_end_matches('/'), None)?;
            let authority = rest.to_owned();
            return Ok(Self {
                scheme: Scheme::Tcp,
                host: Host::Name(host, port),
                authority,
                path: String::new(),
            });
        }
        if let Some(rest) = url.strip_prefix("unix:") {
            let (socket, path) = match rest.split_once(":/") {
                Some((socket, path)) => (socket, format!("/{path}")),
                None => (rest, "/".to_owned()),
            };
            if socket.is_empty() {
                return Err(format!(
                    "{url:?} names no socket; write unix:/path/to/socket or \
                     unix:/path/to/socket:/path"
                ));
            }
            let authority = "localhost".to_owned();
            return Ok(Self {
                scheme: Scheme::Http,
                host: Host::Unix(socket.into()),
                authority,
                path,
            });
        }
        Err(format!(
            "{} is not a URL; write http://host:port/path, or with https, ws or wss, \
             tcp://host:port, unix:/path/to/socket or :port",
            without_password(url)
        ))
    }

    fn http(url: &str, scheme: Scheme, rest: &str) -> Result<Self, String> {
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = host_and_port(url, authority, Some(scheme.port()))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let authority = authority.to_owned();
        Ok(Self { scheme, host: Host::Name(host, port), authority, path })
    }
}

impl Scheme {
    /// Returns the port of a URL that names none.
    fn port(self) -> u16 {
        if self.is_secure() { 443 } else { 80 }
    }

    /// Returns whether the connection is encrypted.
    pub(crate) fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Wss)
    }
}

impl Host {
    /// Returns the name as it is in a certificate.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Name(name, _) => name,
            Self::Unix(_) => "localhost",
        }
    }

    /// Looks the name up. If it has several addresses, the first one that accepts a connection is
    /// used.
    pub(crate) fn resolve(&self) -> Result<Address, String> {
        let (name, port) = match self {
            Self::Unix(path) => return Ok(Address::Unix(path.clone())),
            Self::Name(name, port) => (name.as_str(), *port),
        };
        let found = (name, port)
            .to_socket_addrs()
            .map_err(|error| format!("cannot look up {name}: {error}"))?;
        let addresses: Vec<_> = found.collect();
        choose(&addresses).map(Address::Tcp).ok_or_else(|| format!("{name} has no address"))
    }
}

/// Returns the only address, or the first one that accepts a connection.
fn choose(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let accepts = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY_TIMEOUT).is_ok();
    let chosen = match addresses {
        [only] => Some(only),
        several => several.iter().find(accepts).or_else(|| several.first()),
    };
    chosen.copied()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

fn host_and_port(
    url: &str,
    authority: &str,
    default: Option<u16>,
) -> Result<(String, u16), String> {
    let bad = |what: &str| Err(format!("{} {what}", without_password(url)));
    if authority.contains('@') {
        return bad("has a user name; send it as a header: set GUST_AUTHORIZATION, or add \
             -H 'Authorization: ...'");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) => {
                (host, port.strip_prefix(':').or((!port.is_empty()).then_some("?")))
            }
            None => return bad("has an unclosed bracket"),
        },
        None => {
            authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        }
    };
    let port = match (port, default) {
        (Some(port), _) => match port.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return bad("has an invalid port"),
        },
        (None, Some(port)) => port,
        (None, None) => return bad("has no port"),
    };
    let is_valid = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '%');
    match host {
        // No host means this machine, as in `:8080` on a server.
        "" if default.is_none() => Ok((IpAddr::V4(Ipv4Addr::LOCALHOST).to_string(), port)),
        "" => bad("has no host"),
        _ if host.chars().all(is_valid) => Ok((host.to_owned(), port)),
        _ => bad("has an invalid host"),
    }
}

/// Returns a URL as an error shows it. All text before the last `@` may belong to a password, even
/// text after a `/`, because a password may not have been escaped.
fn without_password(url: &str) -> String {
    let Some((before, after)) = url.rsplit_once('@') else { return format!("{url:?}") };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    let is_scheme = |scheme: &&str| scheme.chars().all(|c| c.is_ascii_alphanumeric());
    match scheme.filter(is_scheme) {
        Some(scheme) => format!("{:?}", format!("{scheme}://***@{after}")),
        None => format!("{:?}", format!("***@{after}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn http(host: &str, port: u16, authority: &str, path: &str) -> Target {
        let host = Host::Name(host.to_owned(), port);
        Target {
            scheme: Scheme::Http,
            host,
            authority: authority.to_owned(),
            path: path.to_owned(),
        }
    }

    #[test]
    fn urls_have_five_forms() {
        let check =
            |url: &str, expected: Target| assert_eq!(Target::parse(url), Ok(expected), "{url}");
        check("http://h", http("h", 80, "h", "/"));
        check("http://h:8080/a/b?c#d", http("h", 8080, "h:8080", "/a/b?c"));
        check("http://h?c", http("h", 80, "h", "/?c"));
        let secure = |target: Target| Target { scheme: Scheme::Https, ..target };
        check("https://h/a", secure(http("h", 443, "h", "/a")));
        let socket = Target { scheme: Scheme::Ws, ..http("h", 80, "h", "/a") };
        check("ws://h/a", socket);
        let secure_socket = Target { scheme: Scheme::Wss, ..http("h", 443, "h", "/") };
        check("wss://h", secure_socket);
        check("https://[::1]:8443", secure(http("::1", 8443, "[::1]:8443", "/")));
        check("http://[::1]:81/a", http("::1", 81, "[::1]:81", "/a"));
        check(":8080", http("127.0.0.1", 8080, "127.0.0.1:8080", "/"));
        check(":8080/x", http("127.0.0.1", 8080, "127.0.0.1:8080", "/x"));
        let tcp = Target::parse("tcp://h:7/").unwrap();
        assert_eq!((tcp.scheme, tcp.host), (Scheme::Tcp, Host::Name("h".to_owned(), 7)));
        assert_eq!(Target::parse("tcp://:7").unwrap().host, Host::Name("127.0.0.1".to_owned(), 7));
        let unix = Target::parse("unix:/run/app.sock").unwrap();
        assert_eq!((unix.host, unix.path.as_str()), (Host::Unix("/run/app.sock".into()), "/"));
        assert_eq!(Target::parse("unix:a.sock:/b?c").unwrap().path, "/b?c");
    }

    #[test]
    fn the_error_for_a_bad_url_says_what_is_wrong() {
        let says = |url: &str, part: &str| {
            let error = Target::parse(url).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        };
        says("localhost:8080", "is not a URL; write http://");
        says("", "is not a URL");
        says("https://", "has no host");
        says("http://", "has no host");
        says("http://h:0/", "port");
        says("http://h:99999/", "port");
        says("http://h:x/", "port");
        says("http://[::1", "bracket");
        says("http://[::1]x", "port");
        says("http://a b/", "invalid host");
        says("http://me:secret@h/", "-H 'Authorization");
        says("tcp://h", "has no port");
        says("unix:", "names no socket");
    }

    #[test]
    fn no_error_shows_a_password() {
        for (url, shown) in [
            ("http://admin:secret@h:1/a", "\"http://***@h:1/a\" has a user name"),
            ("http://admin:se/secret@h/", "\"http://***@h/\" has an invalid port"),
            ("http://admin:secret@a@h/", "\"http://***@h/\" has a user name"),
            ("tcp://admin:secret@h:1", "\"tcp://***@h:1\" has a user name"),
            ("admin:secret@h/", "\"***@h/\" is not a URL"),
            ("htp://admin:secret@h/", "\"htp://***@h/\" is not a URL"),
            ("admin:secret://b@h/", "\"***@h/\" is not a URL"),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(error.starts_with(shown) && !error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn a_number_needs_no_lookup() {
        let address = Target::parse(":5000").unwrap().host.resolve();
        assert_eq!(address.unwrap().to_string(), "127.0.0.1:5000");
        assert!(
            Host::Name("does-not-exist.invalid".into(), 1)
                .resolve()
                .unwrap_err()
                .contains("cannot look up")
        );
    }
    #[test]
    fn of_several_addresses_the_first_that_accepts_is_used() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = server.local_addr().unwrap();
        // Nothing can listen on port 0.
        let closed = SocketAddr::from(([127, 0, 0, 1], 0));
        let other = SocketAddr::from(([127, 0, 0, 2], 0));
        assert_eq!(choose(&[closed, open]), Some(open));
        assert_eq!(choose(&[closed, other]), Some(closed), "the error is that of the first");
        assert_eq!(choose(&[closed]), Some(closed));
        assert_eq!(choose(&[]), None);
    }
}
