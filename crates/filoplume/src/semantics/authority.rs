//! Hosts and ports in fields and targets.

use std::net::Ipv6Addr;

/// Splits an authority into host and port (RFC 3986, 3.2.2 and 3.2.3). Returns `None` if it is
/// invalid.
pub(crate) fn split_port(host: &str) -> Option<(&str, Option<&str>)> {
    if host.starts_with('[') {
        let (address, rest) = host.split_at(host.find(']')? + 1);
        address[1..address.len() - 1].parse::<Ipv6Addr>().ok()?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((address, Some(port))),
            None => rest.is_empty().then_some((address, None)),
        };
    }
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte));
    is_name.then_some((name, port))
}
