//! Keeps cookies as a browser does (RFC 6265), for one host that is always called over HTTPS.
//!
//! They are parsed here rather than by a crate, so that the test client keeps cookies whatever
//! features are on.

use std::fmt;
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
    /// Stores the cookie of a `Set-Cookie` in a response to a request for `path`. A cookie that
    /// browsers refuse is ignored, and one that has expired removes the stored one.
    pub(super) fn store(&mut self, set_cookie: &str, path: &str) {
        let Some(cookie) = parse(set_cookie, path) else { return };
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

/// Parses a `Set-Cookie` (RFC 6265, 5.2).
fn parse(set_cookie: &str, path: &str) -> Option<Cookie> {
    let mut parts = set_cookie.split(';').map(str::trim);
    let (name, value) = parts.next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() {
        return None;
    }
    let mut cookie = Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        path: default_path(path),
        expires: None,
    };
    let (mut is_secure, mut has_domain, mut is_for_all_paths) = (false, false, false);
    let mut max_age = None;
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
            ("domain", _) => has_domain = true,
            _ => {}
        }
    }
    // `Max-Age` takes precedence over `Expires`. With zero or less, the cookie has expired.
    if let Some(max_age) = max_age {
        let age = Duration::from_secs(u64::try_from(max_age).unwrap_or(0));
        cookie.expires = SystemTime::now().checked_add(age);
    }
    let is_refused = (name.starts_with("__Secure-") && !is_secure)
        || (name.starts_with("__Host-") && !(is_secure && is_for_all_paths && !has_domain));
    (!is_refused).then_some(cookie)
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
        jar.store("a=1; Path=/", "/");
        jar.store("b=2; Path=/admin", "/");
        jar.store("c=3", "/admin/login");
        assert_eq!(sent(&jar, "/"), "a=1");
        assert_eq!(sent(&jar, "/admin"), "b=2; c=3; a=1");
        assert_eq!(sent(&jar, "/admin/users"), "b=2; c=3; a=1");
        assert_eq!(sent(&jar, "/administrator"), "a=1");
    }

    #[test]
    fn a_cookie_is_replaced_and_removed_by_name_and_path() {
        let mut jar = CookieJar::default();
        jar.store("a=1; Path=/", "/");
        jar.store("a=2; Path=/; Max-Age=3600; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "/");
        assert_eq!(sent(&jar, "/"), "a=2", "Max-Age takes precedence over Expires");
        jar.store("a=; Path=/other; Max-Age=0", "/");
        assert_eq!(sent(&jar, "/"), "a=2", "the removed cookie had another path");
        jar.store("a=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "/");
        assert_eq!(sent(&jar, "/"), "");
        jar.store("a=3; Path=/", "/");
        jar.store("a=; Path=/; Max-Age=-1", "/");
        assert_eq!(sent(&jar, "/"), "");
    }

    #[test]
    fn cookies_that_browsers_refuse_are_not_kept() {
        let mut jar = CookieJar::default();
        for refused in
            ["__Host-a=1; Path=/", "__Host-a=1; Secure; Path=/x", "__Secure-a=1", "novalue", "=1"]
        {
            jar.store(refused, "/");
        }
        assert_eq!(sent(&jar, "/"), "");
        jar.store("__Host-a=1; Secure; Path=/", "/");
        assert_eq!(sent(&jar, "/"), "__Host-a=1");
    }
}
