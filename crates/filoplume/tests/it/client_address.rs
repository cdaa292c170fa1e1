//! The address of the client, behind trusted and untrusted proxies.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::net::SocketAddr;

use filoplume::Peer;
use filoplume::extract::Proxies;
use filoplume::prelude::*;

/// Returns the client that an app with these proxies sees.
#[track_caller]
fn client(proxies: impl Into<Proxies>, peer: &str, headers: &[&str]) -> String {
    let show = |client: ClientAddr| {
        format!("{} {} {}", client, client.scheme(), client.host().unwrap_or("-"))
    };
    let service = App::new().get("/", show).trust_proxies(proxies).build().unwrap();
    let peer = match peer {
        "unix" => Peer::Unix,
        peer => Peer::Tcp(SocketAddr::new(peer.parse().unwrap(), 4711)),
    };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let request = format!("GET / HTTP/1.1\r\nHost: own.example\r\n{headers}\r\n");
    let config = ServerConfig::default();
    let answer = filoplume_runtime::answer_in_process(&service, peer, request.as_bytes(), &config);
    let answer = String::from_utf8(answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[track_caller]
fn check_ip(peer: &str, headers: &[&str], expected: &str) {
    let found = client(["10.0.0.0/8", "2001:db8:a::/48", "unix"], peer, headers);
    assert_eq!(found.split(' ').next().unwrap(), expected);
}

#[track_caller]
fn check_forwarded(peer: &str, headers: &[&str], expected: &str) {
    let proxies = Proxies::from(["10.0.0.0/8", "2001:db8:a::/48"]).forwarded();
    assert_eq!(client(proxies, peer, headers), expected);
}

#[test]
fn without_proxies_the_client_is_the_peer() {
    let headers =
        ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.2", "X-Forwarded-Proto: https"];
    assert_eq!(client(Proxies::new(), "127.0.0.1", &headers), "127.0.0.1 http own.example");
    assert_eq!(client(Proxies::new(), "unix", &headers), "unknown http own.example");
    assert_eq!(client(Proxies::new(), "::ffff:192.0.2.9", &headers), "192.0.2.9 http own.example");
}

#[test]
fn headers_of_an_untrusted_peer_are_ignored() {
    check_ip("192.0.2.9", &["X-Forwarded-For: 10.0.0.1"], "192.0.2.9");
    check_ip("11.0.0.1", &["X-Forwarded-For: 192.0.2.1"], "11.0.0.1");
}

#[test]
fn trusted_hops_are_skipped_from_the_right() {
    check_ip("10.0.0.1", &[], "10.0.0.1");
    check_ip("10.0.0.1", &["X-Forwarded-For: 192.0.2.1"], "192.0.2.1");
    check_ip("unix", &["X-Forwarded-For: 192.0.2.1"], "192.0.2.1");
    check_ip("::ffff:10.0.0.1", &["X-Forwarded-For: 192.0.2.1"], "192.0.2.1");
    check_ip("2001:db8:a::1", &["X-Forwarded-For: [2001:db8:b::1]:443"], "2001:db8:b::1");
    check_ip(
        "10.0.0.1",
        &["X-Forwarded-For: 1.1.1.1, 192.0.2.1, 10.0.0.2,10.0.0.3:99"],
        "192.0.2.1",
    );
    check_ip(
        "10.0.0.1",
        &["X-Forwarded-For: 1.1.1.1, 192.0.2.1", "X-Forwarded-For: 10.0.0.2"],
        "192.0.2.1",
    );
    check_ip("10.0.0.1", &["X-Forwarded-For: 10.0.0.3, 10.0.0.2"], "10.0.0.3");
}

#[test]
fn a_malformed_address_ends_the_search() {
    check_ip("10.0.0.1", &["X-Forwarded-For: 192.0.2.1, unknown"], "10.0.0.1");
    check_ip("10.0.0.1", &["X-Forwarded-For: 192.0.2.1, x, 10.0.0.2"], "10.0.0.2");
    check_ip("10.0.0.1", &["X-Forwarded-For: 192.0.2.1,, 10.0.0.2"], "10.0.0.2");
    check_ip("10.0.0.1", &["X-Forwarded-For: "], "10.0.0.1");
    check_ip("10.0.0.1", &["X-Forwarded-For: 192.0.2.1:"], "10.0.0.1");
    check_ip("10.0.0.1", &["X-Forwarded-For: \"1.1.1.1, 192.0.2.1"], "192.0.2.1");
}

#[test]
fn only_the_configured_header_is_read() {
    check_ip("10.0.0.1", &["Forwarded: for=1.1.1.1", "X-Forwarded-For: 192.0.2.1"], "192.0.2.1");
    check_ip(
        "10.0.0.1",
        &["Forwarded: for=1.1.1.1", "X-Real-IP: 1.1.1.1", "Client-IP: 1.1.1.1"],
        "10.0.0.1",
    );
    check_forwarded(
        "10.0.0.1",
        &["X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: https"],
        "10.0.0.1 http own.example",
    );
    let found = client(
        "10.0.0.0/8",
        "10.0.0.1",
        &["X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: a"],
    );
    assert_eq!(found, "192.0.2.1 http own.example", "scheme and host are asked for one by one");
}

#[test]
fn scheme_and_host_are_those_of_the_clients_request() {
    let proxies = || Proxies::from("10.0.0.0/8").x_forwarded_proto().x_forwarded_host();
    let found = |headers: &[&str]| client(proxies(), "10.0.0.1", headers);
    assert_eq!(
        found(&[
            "X-Forwarded-For: 192.0.2.1",
            "X-Forwarded-Proto: HTTPS",
            "X-Forwarded-Host: a.org:8443"
        ]),
        "192.0.2.1 https a.org:8443"
    );
    // With the second one, a link to `https://{host}/` would lead to `b.org`.
    for no_host in ["a b", "a.org:@b.org", "a.org:<b>", "a.org:1234567"] {
        let host = format!("X-Forwarded-Host: {no_host}");
        assert_eq!(found(&["X-Forwarded-For: 192.0.2.1", &host]), "192.0.2.1 http own.example");
    }
    let chain =
        ["X-Forwarded-For: 1.1.1.1, 192.0.2.1, 10.0.0.2", "X-Forwarded-Proto: http, https, http"];
    assert_eq!(found(&chain), "192.0.2.1 https own.example");
    assert_eq!(
        client(proxies(), "192.0.2.1", &["X-Forwarded-Proto: https"]),
        "192.0.2.1 http own.example"
    );
}

#[test]
fn forwarded_is_read_according_to_rfc_7239() {
    check_forwarded(
        "10.0.0.1",
        &["Forwarded: for=192.0.2.1;proto=https;by=10.0.0.1;host=a.org"],
        "192.0.2.1 https a.org",
    );
    check_forwarded(
        "10.0.0.1",
        &["Forwarded: For=\"[2001:db8:cafe::17]:4711\""],
        "2001:db8:cafe::17 http own.example",
    );
    check_forwarded(
        "10.0.0.1",
        &[
            "forwarded: for=1.1.1.1;proto=http, for=192.0.2.1;proto=https",
            "Forwarded: for=\"10.0.0.2:99\" ; proto=http",
        ],
        "192.0.2.1 https own.example",
    );
    check_forwarded(
        "10.0.0.1",
        &["Forwarded: for=192.0.2.1, for=unknown;proto=https"],
        "10.0.0.1 https own.example",
    );
    check_forwarded(
        "10.0.0.1",
        &["Forwarded: for=192.0.2.1, for=_hidden"],
        "10.0.0.1 http own.example",
    );
    check_forwarded(
        "10.0.0.1",
        &["Forwarded: for=192.0.2.1;for=1.1.1.1"],
        "10.0.0.1 http own.example",
    );
    check_forwarded(
        "10.0.0.1",
        &["Forwarded: for=\"1.1.1.1, for=192.0.2.1"],
        "192.0.2.1 http own.example",
    );
    check_forwarded(
        "10.0.0.1",
        &["Forwarded: for=\"x\\\", for=192.0.2.1"],
        "192.0.2.1 http own.example",
    );
    check_forwarded("10.0.0.1", &["Forwarded: nonsense"], "10.0.0.1 http own.example");
    check_forwarded("192.0.2.9", &["Forwarded: for=10.0.0.1"], "192.0.2.9 http own.example");
}

#[test]
fn there_are_lists_of_common_proxies() {
    let headers = ["X-Forwarded-For: 192.0.2.1"];
    for (proxies, peer, is_trusted) in [
        (Proxies::loopback(), "127.0.0.1", true),
        (Proxies::loopback(), "::1", true),
        (Proxies::loopback(), "unix", true),
        (Proxies::loopback(), "10.0.0.1", false),
        (Proxies::private(), "127.8.0.1", true),
        (Proxies::private(), "192.168.3.4", true),
        (Proxies::private(), "fd00::1", true),
        (Proxies::private(), "172.32.0.1", false),
        (Proxies::private(), "2001:db8::1", false),
    ] {
        let found = client(proxies, peer, &headers);
        assert_eq!(found.starts_with("192.0.2.1 "), is_trusted, "{peer}: {found}");
    }
}

#[test]
fn an_app_with_an_invalid_network_does_not_start() {
    let app = App::new().get("/", || "").trust_proxies(["10.0.0.0/8", "10.0.0.0/40", "proxy"]);
    let error = format!("{:?}", app.build().unwrap_err());
    assert!(
        error.contains("\"10.0.0.0/40\" of proxies") && error.contains("\"proxy\" of proxies"),
        "{error}"
    );
}

#[test]
fn middleware_knows_the_client_too() {
    let app = App::new()
        .get("/", || "")
        .with(|request: Request, next: Next<'_>| {
            let context = next.context();
            let found =
                format!("{:?} {}", context.client_ip(&request), context.client(&request).scheme());
            let mut response = next.run(request);
            response.set_header("x-client", found)?;
            Ok::<_, Error>(response)
        })
        .trust_proxies(Proxies::loopback());
    let answer = app.test().get("/").header("x-forwarded-for", "192.0.2.1").send();
    answer.assert_header("x-client", "Some(192.0.2.1) http");
}
