//! Checks which hosts an app answers for.

use std::net::Ipv6Addr;

use filoplume_runtime::{Request, Response, StatusCode};

use crate::core::error::{Error, Result};
use crate::core::middleware::{Middleware, Next};
use crate::core::options::RouteOptions;
use crate::semantics::authority::split_port;

/// Answers requests for the listed hosts only, and refuses others with `421` (RFC 9110, 7.4 and
/// 15.5.20).
///
/// The client chooses the host of its request. If an app puts the host into links, mails or
/// redirects, an attacker can make it send people to another site. A page whose host name resolves
/// to a local server can read what that server answers (DNS rebinding).
///
/// ```
/// use filoplume::middleware::AllowedHosts;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", || "hi").with(AllowedHosts::new([
///     "example.org",
///     "*.example.org",
///     "localhost",
///     "[::1]:8080",
/// ]));
/// let client = app.test();
/// client.get("/").header("host", "Example.org").send().assert_status(200);
/// client.get("/").header("host", "a.b.example.org:8080").send().assert_status(200);
/// client.get("/").header("host", "[0:0::1]:8080").send().assert_status(200);
/// client.get("/").header("host", "evil.example").send().assert_status(421);
/// client.get("/").header("host", "example.org.evil.example").send().assert_status(421);
/// ```
///
/// A pattern has one of these forms, in upper or lower case, with or without a dot at its end:
///
/// | pattern | hosts |
/// |---|---|
/// | `example.org`, `192.0.2.1`, `[::1]` | this host, at any port |
/// | `example.org:8080` | this host at this port; `:80` and `:443` also match a host without a port |
/// | `*.example.org` | all subdomains of any depth, but not `example.org` itself |
///
/// Write names with characters outside of ASCII as browsers send them: `xn--caf-dma.example`. An
/// app with any other pattern, or with an empty list, does not start.
///
/// Every host that a handler may read is checked: `Host`, the host of a target in absolute form,
/// and the one that a [trusted proxy](crate::App::trust_proxies) names. If a proxy sets `Host` to
/// an internal name, add that name to the list. A request of HTTP/1.0 without a host is a `400`;
/// for HTTP/1.1 the engine refuses it. If a health check sends no host, give this middleware to a
/// router that does not contain its route.
#[derive(Clone, Debug)]
pub struct AllowedHosts {
    patterns: Vec<Pattern>,
    /// Invalid patterns, reported when the app starts.
    mistakes: Vec<String>,
}

#[derive(Clone, Debug)]
struct Pattern {
    host: HostPattern,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    /// A name or an IPv4 address, in lower case.
    Name(String),
    /// The suffix of all subdomains: `.example.org`.
    SubdomainsOf(String),
    Ipv6(Ipv6Addr),
}

impl AllowedHosts {
    /// Returns middleware that accepts requests for these hosts.
    pub fn new<P: AsRef<str>>(patterns: impl IntoIterator<Item = P>) -> Self {
        let mut hosts = Self { patterns: Vec::new(), mistakes: Vec::new() };
        for pattern in patterns {
            let text = pattern.as_ref();
            match Pattern::parse(text) {
                Ok(pattern) => hosts.patterns.push(pattern),
                Err(mistake) => {
                    hosts
                        .mistakes
                        .push(format!("AllowedHosts: `{}` {mistake}", text.escape_debug()));
                }
            }
        }
        if hosts.patterns.is_empty() && hosts.mistakes.is_empty() {
            hosts
                .mistakes
                .push("AllowedHosts: the list is empty, so nothing would be answered".to_owned());
        }
        hosts
    }

    /// Refuses a request with a host that is not on the list. `client_host` is the host that a
    /// trusted proxy names, if there is one.
    fn check(&self, request: &Request, client_host: Option<&str>) -> Result<()> {
        let Some(authority) = request.authority() else {
            return Err(Error::bad_request("the request names no host"));
        };
        // A target in absolute form takes precedence over `Host`, but handlers may read either.
        let fields = request.headers().get_all("host");
        let fields = fields.map(|host| std::str::from_utf8(host).unwrap_or_default());
        if fields.chain([authority]).chain(client_host).all(|host| self.contains(host)) {
            return Ok(());
        }
        let detail = "this server does not answer for the host that the request names";
        Err(Error::new(StatusCode::MISDIRECTED_REQUEST, detail))
    }

    /// Returns whether a host, with its port if there is one, is on the list.
    fn contains(&self, host: &str) -> bool {
        let Some((name, port)) = split_port(host) else { return false };
        let port = port.filter(|port| !port.is_empty());
        let Ok(port) = port.map(str::parse::<u16>).transpose() else { return false };
        let host = HostPattern::exact(name);
        self.patterns.iter().any(|pattern| pattern.matches(&host, port))
    }
}

impl Middleware for AllowedHosts {
    fn handle(&self, request: Request, next: Next<'_>) -> Result<Response> {
        self.check(&request, next.context().client(&request).host())?;
        Ok(next.run(request))
    }

    fn configure(&self, options: &mut RouteOptions) {
        for mistake in &self.mistakes {
            options.mistake(mistake);
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains("://") || text.contains('/') {
            return Err("is not a host: write it without scheme and path");
        }
        if !text.is_ascii() {
            return Err("has letters outside of ASCII: write it as browsers send it, with `xn--`");
        }
        if text == "*" {
            return Err("allows every host: leave the middleware out instead");
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err("is an IPv6 address: write it in brackets");
        }
        let (below, rest) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        let (name, port) = split_port(rest).ok_or("is not a host")?;
        let port = match port {
            None => None,
            Some(port) => Some(
                port.parse()
                    .ok()
                    .filter(|port| *port != 0)
                    .ok_or("has no valid port after its colon")?,
            ),
        };
        let host = match (HostPattern::exact(name), below) {
            (HostPattern::Name(name), _) if !is_domain(&name) => {
                return Err(if name.contains('*') {
                    "has a `*` that is not its first label: write `*.example.org`"
                } else {
                    "is not a host"
                });
            }
            (HostPattern::Name(name), true) => HostPattern::SubdomainsOf(format!(".{name}")),
            (HostPattern::Ipv6(_), true) => return Err("has a `*` before an address"),
            (host, _) => host,
        };
        Ok(Self { host, port })
    }

    fn matches(&self, host: &HostPattern, port: Option<u16>) -> bool {
        let is_port = match (self.port, port) {
            (None, _) => true,
            // Clients leave out the default port of the scheme.
            (Some(wanted), None) => matches!(wanted, 80 | 443),
            (Some(wanted), Some(port)) => wanted == port,
        };
        is_port
            && match (&self.host, host) {
                (HostPattern::SubdomainsOf(end), HostPattern::Name(name)) => {
                    name.strip_suffix(&**end).is_some_and(is_domain)
                }
                (own, host) => own == host,
            }
    }
}

impl HostPattern {
    /// Returns a host without its port, in the form in which hosts are compared.
    fn exact(name: &str) -> Self {
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        match address.and_then(|address| address.parse().ok()) {
            Some(address) => Self::Ipv6(address),
            None => Self::Name(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()),
        }
    }
}

/// Returns whether a name consists of valid labels of a host name.
fn is_domain(name: &str) -> bool {
    let is_label_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_label_byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_as_names_and_addresses() {
        let rows = [
            ("example.org", "example.org", true),
            ("example.org", "EXAMPLE.org.", true),
            ("Example.ORG.", "example.org:8080", true),
            ("example.org", "example.org:", true),
            ("example.org", "example.org..", false),
            ("example.org", "www.example.org", false),
            ("example.org", "example.org.evil.example", false),
            ("example.org", "notexample.org", false),
            ("example.org", "ex%61mple.org", false),
            ("example.org", "", false),
            ("example.org", "example.org:99999", false),
            ("example.org", "evil.example#example.org", false),
            ("example.org", "evil.example@example.org", false),
            ("example.org:8080", "example.org:8080", true),
            ("example.org:8080", "example.org", false),
            ("example.org:8080", "example.org:80", false),
            ("example.org:80", "example.org", true),
            ("example.org:443", "example.org", true),
            ("example.org:443", "example.org:443", true),
            ("example.org:443", "example.org:444", false),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "a.b.Example.org.:1", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("*.example.org", "a..example.org", false),
            ("*.example.org", "evilexample.org", false),
            ("*.example.org", "%2e.example.org", false),
            ("*.example.org:81", "a.example.org:81", true),
            ("*.example.org:81", "a.example.org:82", false),
            ("192.0.2.1", "192.0.2.1:80", true),
            ("192.0.2.1", "192.0.2.10", false),
            ("[::1]", "[::1]", true),
            ("[::1]", "[0:0:0:0:0:0:0:1]:80", true),
            ("[::1]", "[::2]", false),
            ("[2001:DB8::a]:81", "[2001:db8::A]:81", true),
            ("[::1]", "::1", false),
            ("localhost", "localhost", true),
            ("my_service", "my_service:8080", true),
        ];
        for (pattern, host, expected) in rows {
            let hosts = AllowedHosts::new([pattern]);
            assert_eq!(hosts.mistakes, Vec::<String>::new());
            assert_eq!(hosts.contains(host), expected, "{host:?} by {pattern}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_a_mistake_of_the_app() {
        for (pattern, expected) in [
            ("", "is not a host"),
            ("*", "every host"),
            ("*.", "is not a host"),
            ("https://example.org", "without scheme"),
            ("example.org/path", "without scheme and path"),
            ("café.example", "xn--"),
            ("::1", "in brackets"),
            ("[::1", "is not a host"),
            ("[::x]", "is not a host"),
            ("*.[::1]", "before an address"),
            ("www.*.org", "`*.example.org`"),
            ("*example.org", "`*.example.org`"),
            ("a..b", "is not a host"),
            ("a b", "is not a host"),
            ("example.org:", "no valid port"),
            ("example.org:0", "no valid port"),
            ("example.org:http", "no valid port"),
            ("example.org:65536", "no valid port"),
            ("example.org\r\n", "is not a host"),
        ] {
            let mistakes = AllowedHosts::new([pattern]).mistakes.join("");
            assert!(mistakes.contains(expected), "{pattern:?}: {mistakes}");
        }
        assert!(AllowedHosts::new::<&str>([]).mistakes.join("").contains("empty"));
    }
}
