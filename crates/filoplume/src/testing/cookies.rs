//! Keeps cookies as a browser does (RFC 6265bis), for one host that is always called over HTTPS.
//!
//! They are parsed here rather than by a crate, so that the test client keeps cookies whatever
//! features are on.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

/// The cookies of a client.
#[derive(Debug, Default)]
pub(super) struct CookieJar {
    cookies: Vec<Cookie>,
}

struct Cookie {
    name: String,
    value: String,
    path: String,
    expires: Option<SystemTime>,
}

impl fmt::Debug for Cookie {
    // Values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookie")
            .field("name", &self.name)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Cookie {
    fn is_alive(&self) -> bool {
        self.expires.is_none_or(|expires| expires > SystemTime::now())
    }
}

impl CookieJar {
    /// Stores the cookie of a `Set-Cookie` in a response to a request for `path` at `host`. A
    /// cookie that browsers refuse is ignored, and one that has expired removes the stored one.
    pub(super) fn store(&mut self, set_cookie: &str, path: &str, host: &str) {
        let Some(cookie) = parse(set_cookie, path, host) else { return };
        self.cookies.retain(|other| (&other.name, &other.path) != (&cookie.name, &cookie.path));
        if cookie.is_alive() {
            self.cookies.push(cookie);
        }
    }

    /// Returns the cookies for a path, those with longer paths first (RFC 6265, 5.4).
    pub(super) fn cookies_for(&self, path: &str) -> Vec<(String, String)> {
        let mut matching: Vec<_> = self
            .cookies
            .iter()
            .filter(|cookie| cookie.is_alive() && path_matches(&cookie.path, path))
            .collect();
        matching.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        matching.iter().map(|cookie| (cookie.name.clone(), cookie.value.clone())).collect()
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut alive = self.cookies.iter().filter(|cookie| cookie.is_alive());
        alive.find(|cookie| cookie.name == name).map(|cookie| cookie.value.as_str())
    }

    pub(super) fn clear(&mut self) {
        self.cookies.clear();
    }
}

/// The longest name and value of a cookie that browsers keep, together (RFC 6265bis, 5.6).
const NAME_AND_VALUE_BYTES_MAX: usize = 4096;

/// Parses a `Set-Cookie` (RFC 6265bis, 5.6). Returns `None` if browsers refuse it (5.7).
fn parse(set_cookie: &str, path: &str, host: &str) -> Option<Cookie> {
    let mut parts = set_cookie.split(';').map(str::trim);
    let (name, value) = parts.next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || name.len() + value.len() > NAME_AND_VALUE_BYTES_MAX {
        return None;
    }
    let mut cookie = Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        path: default_path(path),
        expires: None,
    };
    let (mut is_secure, mut is_for_all_paths, mut is_cross_site) = (false, false, false);
    let (mut domain, mut max_age) = ("", None);
    for part in parts {
        let (attribute, value) = part.split_once('=').unwrap_or((part, ""));
        match (attribute.trim().to_ascii_lowercase().as_str(), value.trim()) {
            ("path", value) if value.starts_with('/') => {
                cookie.path = value.to_owned();
                is_for_all_paths = value == "/";
            }
            ("max-age", value) => max_age = value.parse::<i64>().ok(),
            ("expires", value) => cookie.expires = httpdate::parse_http_date(value).ok(),
            ("secure", _) => is_secure = true,
            ("domain", value) => domain = value,
            ("samesite", value) => is_cross_site = value.eq_ignore_ascii_case("none"),
            _ => {}
        }
    }
    // `Max-Age` takes precedence over `Expires`. With zero or less, the cookie has expired.
    if let Some(max_age) = max_age {
        let age = Duration::from_secs(u64::try_from(max_age).unwrap_or(0));
        cookie.expires = SystemTime::now().checked_add(age);
    }
    let has_prefix = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
    };
    let is_refused = (is_cross_site && !is_secure)
        || !domain_matches(domain, host)
        || (has_prefix("__Secure-") && !is_secure)
        || (has_prefix("__Host-") && !(is_secure && is_for_all_paths && domain.is_empty()));
    (!is_refused).then_some(cookie)
}

/// Returns whether a host may set a cookie for this domain: for itself, or for a domain that it
/// belongs to (RFC 6265bis, 5.1.3). There is no list of public suffixes here, such as `co.uk`. Only
/// those without a dot are recognised.
fn domain_matches(domain: &str, host: &str) -> bool {
    if domain.is_empty() {
        return true;
    }
    let domain = domain.strip_prefix('.').unwrap_or(domain).to_ascii_lowercase();
    let host = without_port(host).to_ascii_lowercase();
    if host == domain {
        return true;
    }
    let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
    let is_within = host.strip_suffix(&domain).is_some_and(|name| name.ends_with('.'));
    is_within && !is_address && domain.contains('.')
}

fn without_port(host: &str) -> &str {
    let end = match host.find(']') {
        Some(end) => end + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    &host[..end]
}

/// Returns the folder of the requested path (RFC 6265, 5.1.4).
fn default_path(path: &str) -> String {
    match path.rfind('/') {
        Some(0) | None => "/".to_owned(),
        Some(end) => path[..end].to_owned(),
    }
}

fn path_matches(cookie_path: &str, path: &str) -> bool {
    path.strip_prefix(cookie_path)
        .is_some_and(|rest| rest.is_empty() || cookie_path.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(jar: &CookieJar, path: &str) -> String {
        let cookies = jar.cookies_for(path);
        cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn cookies_are_sent_to_their_paths_longer_ones_first() {
        let mut jar = CookieJar::default();
        jar.store("a=1; Path=/", "/", "localhost");
        jar.store("b=2; Path=/admin", "/", "localhost");
        jar.store("c=3", "/admin/login", "localhost");
        assert_eq!(sent(&jar, "/"), "a=1");
        assert_eq!(sent(&jar, "/admin"), "b=2; c=3; a=1");
        assert_eq!(sent(&jar, "/admin/users"), "b=2; c=3; a=1");
        assert_eq!(sent(&jar, "/administrator"), "a=1");
    }

    #[test]
    fn a_cookie_is_replaced_and_removed_by_name_and_path() {
        let mut jar = CookieJar::default();
        jar.store("a=1; Path=/", "/", "localhost");
        jar.store(
            "a=2; Path=/; Max-Age=3600; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "/",
            "localhost",
        );
        assert_eq!(sent(&jar, "/"), "a=2", "Max-Age takes precedence over Expires");
        jar.store("a=; Path=/other; Max-Age=0", "/", "localhost");
        assert_eq!(sent(&jar, "/"), "a=2", "the removed cookie had another path");
        jar.store("a=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "/", "localhost");
        assert_eq!(sent(&jar, "/"), "");
        jar.store("a=3; Path=/", "/", "localhost");
        jar.store("a=; Path=/; Max-Age=-1", "/", "localhost");
        assert_eq!(sent(&jar, "/"), "");
    }

    #[test]
    fn cookies_that_browsers_refuse_are_not_kept() {
        let long = format!("a={}", "x".repeat(4096));
        for refused in [
            "__Host-a=1; Path=/",
            "__Host-a=1; Secure; Path=/x",
            "__Host-a=1; Secure; Path=/; Domain=www.example.org",
            "__host-a=1; Path=/",
            "__Secure-a=1",
            "__SECURE-a=1",
            "novalue",
            "=1",
            "a=1; SameSite=None",
            "a=1; SameSite=Lax; samesite = NONE",
            &long,
            "a=1; Domain=example.com",
            "a=1; Domain=example.org; Domain=example.com",
            "a=1; Domain=ample.org",
            "a=1; Domain=m.www.example.org",
            "a=1; Domain=org",
            "a=1; Domain=.",
        ] {
            let mut jar = CookieJar::default();
            jar.store(refused, "/", "www.example.org");
            assert_eq!(sent(&jar, "/"), "", "{refused:.80}");
        }
        for (host, kept) in [
            ("localhost", "__Host-a=1; Secure; Path=/"),
            ("localhost", "a=1; SameSite=None; Secure"),
            ("localhost", "a=1; SameSite=None; SameSite=Strict"),
            ("localhost", &long[..4097]),
            ("localhost:8080", "a=1; Domain=LocalHost"),
            ("localhost", "a=1; Domain="),
            ("WWW.example.org:443", "a=1; Domain=.Example.ORG"),
            ("www.example.org", "a=1; Domain=www.example.org"),
            ("[::1]:80", "a=1; Domain=[::1]"),
            ("127.0.0.1:80", "a=1; Domain=127.0.0.1"),
        ] {
            let mut jar = CookieJar::default();
            jar.store(kept, "/", host);
            assert_ne!(sent(&jar, "/"), "", "{host} {kept:.80}");
        }
        let mut jar = CookieJar::default();
        jar.store("a=1; Domain=0.0.1", "/", "127.0.0.1");
        assert_eq!(sent(&jar, "/"), "", "an address has no domains");
    }
}
