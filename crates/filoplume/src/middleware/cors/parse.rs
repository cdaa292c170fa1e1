//! Reads the headers of a cross-origin request, and checks the origins that the program allows.

use filoplume_runtime::{Method, Request};

pub(super) fn is_preflight(request: &Request) -> bool {
    *request.method() == Method::OPTIONS
        && request.headers().contains("origin")
        && request.headers().contains("access-control-request-method")
}

/// Returns the origin, if there is exactly one: with two, a cache might choose the other one.
pub(super) fn origin_of(request: &Request) -> Option<&str> {
    let mut origins = request.headers().get_all("origin");
    let origin = std::str::from_utf8(origins.next()?).ok()?;
    origins.next().is_none().then_some(origin)
}

/// Returns the value of a header, if it is a list of tokens, as browsers send it. Other values are
/// not mirrored.
pub(super) fn token_list<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    request.headers().get_str(name).filter(|value| is_token_list(value))
}

fn is_token_list(value: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    value.split(',').all(|item| {
        let item = item.trim_matches([' ', '\t']);
        !item.is_empty() && item.bytes().all(is_token_byte)
    })
}

/// Returns what is wrong with an origin that the program allows.
pub(super) fn check_origin(origin: &str) -> Result<(), &'static str> {
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
    fn only_lists_of_tokens_are_mirrored() {
        assert!(is_token_list("PUT"));
        assert!(is_token_list("content-type, x-a ,x-b"));
        for bad in ["", ",", "a,,b", "a b", "a: b", "ä", "<script>"] {
            assert!(!is_token_list(bad), "{bad}");
        }
    }
}
