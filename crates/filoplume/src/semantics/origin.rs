//! Whether the page that sent a request belongs to the host it was sent to, and how origins are
//! written.

/// Returns whether an origin belongs to the host of the request. If the request is known to have
/// come over HTTPS, the page must have come over HTTPS too: anyone on the network path can alter a
/// page of `http`. An origin of `https` is accepted for any request, because a proxy that the app
/// does not know may have ended TLS. The origin `null` belongs to no host.
#[cfg(any(feature = "console", feature = "sessions", feature = "websocket"))]
pub(crate) fn is_origin_of(origin: &str, authority: &str, is_https: bool) -> bool {
    let Some((scheme, host)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" if is_https => return false,
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let bare = |authority: &str| {
        authority.strip_suffix(default_port).unwrap_or(authority).to_ascii_lowercase()
    };
    !host.is_empty() && bare(host) == bare(authority)
}

/// Returns what is wrong with an origin that the program allows.
pub(crate) fn check_origin(origin: &str) -> Result<(), &'static str> {
    match origin {
        "*" => return Err("use `allow_any_origin` to allow all"),
        "null" => return Err("every site can send it"),
        _ => {}
    }
    let Some((scheme, host)) = origin.split_once("://") else {
        return Err("it must begin with a scheme, such as `https://`");
    };
    if scheme.is_empty()
        || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    {
        return Err("its scheme is invalid");
    }
    if host.contains(['/', '?', '#']) {
        return Err("it must end with the host and the port, without a slash or a path");
    }
    if host.contains('*') {
        return Err("use `allow_origins_if` to allow many");
    }
    if host.is_empty() || !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
    {
        return Err("its host is not written as browsers write it");
    }
    if (scheme == "https" && host.ends_with(":443")) || (scheme == "http" && host.ends_with(":80"))
    {
        return Err("browsers omit the default port of the scheme");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_that_no_browser_sends_is_invalid() {
        for good in
            ["https://a.example", "http://localhost:3000", "http://[::1]:8080", "tauri://localhost"]
        {
            assert_eq!(check_origin(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "*",
            "null",
            "a.example",
            "https://",
            "https://a/",
            "https://a/b",
            "https://*.a.example",
            "https://a:443",
            "https://a b",
            "https://a\r\nx",
            "://a",
            "https://ä.example",
        ] {
            assert!(check_origin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    #[cfg(any(feature = "console", feature = "sessions", feature = "websocket"))]
    fn an_origin_is_compared_with_the_host() {
        for (origin, authority, expected) in [
            ("https://a.example", "a.example", true),
            ("https://A.example", "a.Example:443", true),
            ("http://a.example:8080", "a.example:8080", true),
            ("http://a.example:8080", "a.example", false),
            ("https://a.example.evil", "a.example", false),
            ("https://evil/a.example", "a.example", false),
            ("null", "a.example", false),
            ("https://", "", false),
            ("", "", false),
            ("file://", "", false),
        ] {
            assert_eq!(is_origin_of(origin, authority, false), expected, "{origin} {authority}");
            let is_https = origin.starts_with("https:");
            let of_https = is_origin_of(origin, authority, true);
            assert_eq!(of_https, expected && is_https, "{origin} {authority}");
        }
    }
}
