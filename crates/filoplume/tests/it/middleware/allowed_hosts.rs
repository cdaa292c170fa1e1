//! Checks of the requested host.

use filoplume::extract::Proxies;
use filoplume::middleware::AllowedHosts;
use filoplume::prelude::*;

use super::{ask, mistakes};

fn app() -> App {
    App::new()
        .get("/", |client: ClientAddr| client.host().unwrap_or("none").to_owned())
        .with(AllowedHosts::new(["example.org", "*.example.net", "[::1]"]))
}

/// Returns the status of the response to a raw request.
fn status_of(request: &str) -> u16 {
    let answer = ask(&app().build().unwrap(), "192.0.2.1:1000", request);
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_host_that_is_not_on_the_list_gets_a_421() {
    let client = app().test();
    for host in ["example.org", "EXAMPLE.ORG.", "example.org:8080", "a.b.example.net", "[0::1]:80"]
    {
        client.get("/").header("host", host).send().assert_status(200).assert_text(host);
    }
    for host in [
        "evil.example",
        "example.net",
        "example.org.evil.example",
        "[::2]",
        "127.0.0.1",
        "localhost",
    ] {
        let answer = client.get("/").header("host", host).send();
        answer.assert_status(421);
        assert!(
            !answer.text().contains(host),
            "the host is not repeated to the client: {}",
            answer.text()
        );
        // A path without a route is refused as well.
        client.get("/nowhere").header("host", host).send().assert_status(421);
    }
}

#[test]
fn target_and_host_must_both_be_on_the_list() {
    let close = "Connection: close\r\n\r\n";
    for (head, expected) in [
        ("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n", 200),
        ("GET http://EXAMPLE.org:80/ HTTP/1.1\r\nHost: a.example.net\r\n", 200),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: example.org\r\n", 421),
        ("GET http://example.org/ HTTP/1.1\r\nHost: evil.example\r\n", 421),
        ("GET http://example.org/ HTTP/1.0\r\n", 200),
        ("GET / HTTP/1.0\r\nHost: example.org\r\n", 200),
        ("GET / HTTP/1.0\r\nHost: evil.example\r\n", 421),
        ("GET / HTTP/1.0\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n", 400),
        ("GET / HTTP/1.1\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: example.org\r\nHost: evil.example\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: example.org\r\n", 204),
        ("OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n", 421),
    ] {
        assert_eq!(status_of(&format!("{head}{close}")), expected, "{head}");
    }
}

#[test]
fn the_host_that_a_trusted_proxy_names_is_checked_too() {
    let client = app().trust_proxies(Proxies::loopback().x_forwarded_host()).test();
    let status = |host: &str, forwarded: &str| {
        client
            .get("/")
            .header("host", host)
            .header("x-forwarded-host", forwarded)
            .send()
            .status()
            .as_u16()
    };
    assert_eq!(status("example.org", "a.example.net"), 200);
    assert_eq!(status("example.org", "evil.example"), 421);
    assert_eq!(status("evil.example", "example.org"), 421);
    // Without trust, the header is ignored.
    let client = app().test();
    let answer = client
        .get("/")
        .header("host", "example.org")
        .header("x-forwarded-host", "evil.example")
        .send();
    answer.assert_text("example.org");
}

#[test]
fn an_app_with_an_invalid_pattern_does_not_start() {
    let start =
        |pattern: &str| mistakes(App::new().get("/", || "hi").with(AllowedHosts::new([pattern])));
    assert!(start("https://example.org").contains("`https://example.org` is not a host"));
    assert!(start("*").contains("every host"));
}
