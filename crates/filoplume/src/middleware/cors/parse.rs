//! Reads the headers of a cross-origin request.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_of_tokens_are_mirrored() {
        assert!(is_token_list("PUT"));
        assert!(is_token_list("content-type, x-a ,x-b"));
        for bad in ["", ",", "a,,b", "a b", "a: b", "ä", "<script>"] {
            assert!(!is_token_list(bad), "{bad}");
        }
    }
}
