//! Whether the page that sent a request belongs to the host it was sent to.

/// Returns whether an origin belongs to the host of the request. The scheme is not compared,
/// because a proxy may have ended TLS. The origin `null` belongs to no host.
pub(crate) fn is_origin_of(origin: &str, authority: &str) -> bool {
    let Some((scheme, host)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let bare = |authority: &str| {
        authority.strip_suffix(default_port).unwrap_or(authority).to_ascii_lowercase()
    };
    !host.is_empty() && bare(host) == bare(authority)
}
