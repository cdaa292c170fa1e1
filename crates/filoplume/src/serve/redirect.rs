//! Redirects from plain HTTP to the same place over TLS.

use filoplume_runtime::{Request, Response};

use crate::semantics::authority::split_port;
use crate::semantics::uri::encoded;

/// The port of `https`, which URLs leave out.
const HTTPS: u16 = 443;

/// Returns the response to a request that should have come over TLS. The method and the content
/// stay the same (RFC 9110, section 15.4.9).
pub(super) fn to_https(request: &Request, port: u16) -> Response {
    let host = request.authority().and_then(split_port).map(|(host, _)| host);
    let Some(host) = host.filter(|host| is_host(host)) else {
        let mut response = Response::new(400);
        response.set_text("The request names no valid host, so it cannot be redirected to https.");
        return response;
    };
    let port = if port == HTTPS { String::new() } else { format!(":{port}") };
    // The `*` of `OPTIONS *` is not a path.
    let path = if request.path().starts_with('/') { request.path() } else { "/" };
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(308);
    let location = encoded(&format!("https://{host}{port}{path}{query}")).into_owned();
    // The value has only characters that a field may have. Even without the field, the status says
    // enough.
    let _ = response.set_header("location", &location);
    response
}

/// Returns whether a host is an address in brackets, or a name or address without characters that
/// some client may read as another part of the URL.
fn is_host(host: &str) -> bool {
    let is_address = host.starts_with('[');
    is_address || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location_of(request: http::request::Builder, port: u16) -> Option<String> {
        let request = request.body(Vec::new()).expect("it is valid");
        let request = Request::try_from(request).expect("it is valid");
        to_https(&request, port).headers().get_str("location").map(str::to_owned)
    }

    #[test]
    fn a_redirect_leads_to_the_same_place() {
        let get = |host: &str| http::Request::get("/a?b").header("host", host);
        let rows = [
            ("example.org", 443, Some("https://example.org/a?b")),
            ("example.org:80", 8443, Some("https://example.org:8443/a?b")),
            ("[::1]:80", 443, Some("https://[::1]/a?b")),
            ("a@b", 443, None),
        ];
        for (host, port, expected) in rows {
            assert_eq!(location_of(get(host), port).as_deref(), expected, "{host}");
        }
        let options = http::Request::options("*").header("host", "example.org");
        assert_eq!(location_of(options, 443).as_deref(), Some("https://example.org/"));
    }
}
