//! Apps over TLS: several addresses, redirects, client certificates, and what an app knows of its
//! session. Real clients check the handshake too.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use filoplume::prelude::*;
use filoplume::{ClientCertificate, Listen, RunningApp, Tls};
use filoplume_tests::tls::Authority;
use filoplume_tests::{Client, free_address, installed};
use rustls::version::{TLS12, TLS13};

fn start(app: App, authority: &Authority) -> RunningApp {
    let tls = authority.issue("localhost", &["localhost"]).tls();
    let listen = Listen::new()
        .https("127.0.0.1:0", tls)
        .http("127.0.0.1:0")
        .redirect_to_https("127.0.0.1:0");
    app.start_on(listen).unwrap()
}

fn scheme() -> App {
    App::new().get("/", |client: ClientAddr| client.scheme())
}

#[test]
fn an_app_serves_plain_tls_and_unix_addresses_at_once() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let tls = authority.issue("localhost", &["localhost"]).tls();
    let listen = Listen::new().http("127.0.0.1:0").https("127.0.0.1:0", tls).unix(&path);
    let app = scheme().start_on(listen).unwrap();
    let [plain, secure] = app.server().local_addrs() else { panic!("two TCP addresses") };
    let config = Arc::new(authority.client(&TLS13));
    assert_eq!(Client::connect(*plain).get("/").text(), "http");
    let mut client = Client::try_connect_tls(*secure, "localhost", &config).unwrap();
    assert_eq!(client.get("/").text(), "https");
    assert_eq!(Client::connect_unix(&path).get("/").text(), "http");
    assert_eq!(app.url(), format!("http://{plain}"));
}

#[test]
fn plain_requests_are_redirected_and_never_elsewhere() {
    let authority = Authority::new();
    let app = start(scheme(), &authority);
    let port = app.local_addr().port();
    let ask = |target: &str, host: &str| {
        let mut client = Client::connect(app.redirect_addr().unwrap());
        client.send(format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let response = client.response();
        (response.status, response.header("location").map(str::to_owned))
    };
    for (target, host, expected) in [
        ("/", "example.org", "https://example.org:{}/"),
        ("/a/b?c=d&e", "example.org:8080", "https://example.org:{}/a/b?c=d&e"),
        ("//evil.example/x", "example.org", "https://example.org:{}//evil.example/x"),
        ("/", "[::1]:80", "https://[::1]:{}/"),
        ("http://example.org/x?y", "example.org", "https://example.org:{}/x?y"),
        ("/%0d%0aSet-Cookie:x", "example.org", "https://example.org:{}/%0d%0aSet-Cookie:x"),
    ] {
        let location = expected.replace("{}", &port.to_string());
        assert_eq!(ask(target, host), (308, Some(location)), "{target} at {host}");
    }
    for host in
        ["", "user@evil.example", "a/b", "a\\b", "a b", "a?b", "a#b", "ex%61mple.org", "a,b"]
    {
        assert_eq!(ask("/", host), (400, None), "{host:?}");
    }
}

#[test]
fn an_address_to_redirect_from_needs_one_to_redirect_to() {
    let listen = Listen::new().http("127.0.0.1:0").redirect_to_https("127.0.0.1:0");
    let error = scheme().start_on(listen).unwrap_err();
    assert!(format!("{error:?}").contains("add an address with `https`"), "{error:?}");
}

#[test]
fn a_new_process_takes_over_the_address_that_redirects() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let [secure, plain] = [free_address(), free_address()];
    let start = || {
        let tls = authority.issue("localhost", &["localhost"]).tls();
        let listen = Listen::new()
            .hot_restart(folder.path().join("app.sock"))
            .https(secure, tls)
            .redirect_to_https(plain);
        scheme().start_on(listen).unwrap()
    };
    let redirects = || assert_eq!(Client::connect(plain).get("/").status, 308);
    let old = start();
    redirects();
    let new = start();
    old.shutdown();
    redirects();
    new.shutdown();
}

#[test]
fn a_handler_knows_the_client_by_its_certificate() {
    let authority = Authority::new();
    let tls = authority.issue("localhost", &["localhost"]).tls();
    let listen =
        Listen::new().https("127.0.0.1:0", tls.optional_client_certificates(authority.file()));
    let app = App::new()
        .get("/", |client: ClientCertificate| {
            assert_eq!(client.issuer(), "CN=Test authority");
            assert!(!client.serial_number().is_empty() && !client.der().is_empty());
            assert!(client.emails().is_empty() && client.uris().is_empty());
            format!("{:?} {} {:?}", client.common_name(), client.subject(), client.dns_names())
        })
        .get("/anyone", |client: Option<ClientCertificate>| client.is_some().to_string())
        .start_on(listen)
        .unwrap();
    let alice = authority.issue_client("alice");
    for version in [&TLS12, &TLS13] {
        let known = Arc::new(authority.client_with(version, &alice));
        let unknown = Arc::new(authority.client(version));
        let connect =
            |config| Client::try_connect_tls(app.local_addr(), "localhost", config).unwrap();
        let response = connect(&known).get("/");
        assert_eq!(response.text(), "Some(\"alice\") CN=alice [\"alice.example\"]");
        assert_eq!(connect(&unknown).get("/").status, 403);
        assert_eq!(connect(&known).get("/anyone").text(), "true");
        assert_eq!(connect(&unknown).get("/anyone").text(), "false");
    }
}

#[test]
fn session_cookies_are_secure_over_tls_even_in_development() {
    let authority = Authority::new();
    let app = App::new()
        .get("/", |session: Session| session.insert("seen", true))
        .with(middleware::Sessions::in_cookie(filoplume::Key::generate()))
        .development(true);
    let app = start(app, &authority);
    let config = Arc::new(authority.client(&TLS13));
    let mut client = Client::try_connect_tls(app.local_addr(), "localhost", &config).unwrap();
    let cookie = client.get("/").header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("Secure"), "{cookie}");
    let plain = Client::connect(app.server().local_addrs()[1]).get("/");
    assert!(!plain.header("set-cookie").unwrap().contains("Secure"));
}

#[test]
fn the_metrics_tell_when_the_certificate_expires() {
    let authority = Authority::new();
    let app = start(scheme().metrics("/metrics"), &authority);
    let text = Client::connect(app.server().local_addrs()[1]).get("/metrics").text().to_owned();
    let name = "filoplume_tls_certificate_expiry_timestamp_seconds ";
    let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    // The end of the year 4095, which is the default of the test authority.
    assert_eq!(value, "67090118400");
    assert!(text.contains("filoplume_tls_certificate_loads_failed_total 0\n"), "{text}");
}

#[test]
fn a_development_certificate_is_only_for_this_machine() {
    let listen = Listen::new().https("127.0.0.1:0", Tls::development().unwrap());
    let app = scheme().start_on(listen).unwrap();
    assert!(app.url().starts_with("https://127.0.0.1:"));
    let everyone = Listen::new().https("0.0.0.0:0", Tls::development().unwrap());
    let error = scheme().start_on(everyone).unwrap_err();
    assert!(format!("{error:?}").contains("addresses of this machine"), "{error:?}");
}

/// Runs curl and returns its output, or `None` if it failed.
fn curl(authority: &Path, url: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "30", "--cacert"])
        .arg(authority)
        .args(arguments)
        .arg(url)
        .output()
        .unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn curl_verifies_the_certificate_and_follows_the_redirect() {
    if !installed("curl") {
        return;
    }
    let authority = Authority::new();
    let app = start(scheme(), &authority);
    let url = format!("https://localhost:{}/", app.local_addr().port());
    for version in [["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3", "--tls-max", "1.3"]] {
        assert_eq!(curl(&authority.file(), &url, &version).as_deref(), Some("https"));
    }
    // Old versions are refused, and so is another authority's certificate.
    assert_eq!(curl(&authority.file(), &url, &["--tls-max", "1.1"]), None);
    assert_eq!(curl(&Authority::new().file(), &url, &[]), None);
    let plain = format!("http://localhost:{}/", app.redirect_addr().unwrap().port());
    let followed = curl(&authority.file(), &plain, &["--location"]);
    assert_eq!(followed.as_deref(), Some("https"));
    let download = App::new().get("/", || "x".repeat(20_000_000));
    let app = start(download, &authority);
    let url = format!("https://localhost:{}/", app.local_addr().port());
    assert_eq!(curl(&authority.file(), &url, &[]).map(|text| text.len()), Some(20_000_000));
}

#[test]
fn openssl_resumes_its_sessions() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skip::without("openssl");
    }
    let authority = Authority::new();
    let app = App::new()
        .get("/", |request: Request| format!("resumed: {}", request.tls().unwrap().is_resumed()));
    let app = start(app, &authority);
    let folder = tempfile::tempdir().unwrap();
    let ask = |version: &str, option: &str, session: &Path| {
        use std::io::{Read, Write};
        use std::process::Stdio;
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-no_ign_eof", version, "-servername", "localhost"])
            .arg("-connect")
            .arg(app.local_addr().to_string())
            .args(["-verify_return_error", "-CAfile"])
            .arg(authority.file())
            .arg(option)
            .arg(session)
            .args(["-alpn", "http/1.1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = client.stdin.take().unwrap();
        input.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        let mut output = String::new();
        client.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        client.wait().unwrap();
        output
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let session = folder.path().join(version);
        let first = ask(version, "-sess_out", &session);
        assert!(first.ends_with("resumed: false"), "{version}: {first}");
        let second = ask(version, "-sess_in", &session);
        assert!(second.ends_with("resumed: true"), "{version}: {second}");
    }
}
