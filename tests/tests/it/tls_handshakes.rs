//! Handshakes: peers that stall, disconnect, send garbage or something other than TLS, and what the
//! server demands of them.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use filoplume_runtime::{Refusal, Request, Server, ServerBuilder, ServerConfig, Tls};
use filoplume_tests::tls::{Authority, TlsServer, bound};
use filoplume_tests::{Client, Gate, eventually, site};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection};

fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Returns the records that a client sends next.
fn flight(session: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut records).unwrap();
    }
    records
}

/// Reads until the server closes.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut rest);
    rest
}

fn refusals(server: &TlsServer, of: Refusal) -> u64 {
    let metrics = server.server.metrics();
    metrics.refusals().find(|(refusal, _)| *refusal == of).map_or(0, |(_, count)| count)
}

/// Returns the description of a fatal alert, if the records are one.
fn alert(records: &[u8]) -> Option<u8> {
    match records {
        [0x15, 3, _, 0, 2, 2, description] => Some(*description),
        _ => None,
    }
}

#[test]
fn a_request_without_tls_is_told_so() {
    let server = TlsServer::start(site);
    for start in ["GET / HTTP/1.1\r\nHost: t\r\n\r\n", "P", "post"] {
        let mut client = server.server.client();
        client.send(start);
        let response = client.response();
        assert_eq!(response.status, 400);
        assert!(response.text().contains("https://"), "{response:?}");
        client.is_closed();
    }
    assert_eq!(refusals(&server, Refusal::NotTls), 3);
}

#[test]
fn garbage_gets_an_alert_and_the_end() {
    let server = TlsServer::start(site);
    for garbage in [
        &b"\x80\x2e\x01\x00\x02"[..],
        b"\x00\x00\x00\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x09\x01\x00\x05hello",
        b"\x16\x03\x01\x00\x05\xff\xff\xff\xff\xff",
        b"\x17\x03\x03\x00\x05hello",
        b"\x15\x03\x03\x00\x05hello",
    ] {
        let mut stream = server.server.stream();
        stream.write_all(garbage).unwrap();
        let rest = rest(stream);
        assert!(alert(&rest).is_some(), "{}: {}", garbage.escape_ascii(), rest.escape_ascii());
    }
    assert_eq!(refusals(&server, Refusal::Handshake), 7);
    server.client().is_alive();
}

#[test]
fn a_handshake_cut_at_any_byte_disturbs_nobody() {
    let server = TlsServer::start(site);
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(server.authority.client(version));
        let hello = flight(&mut session(&config));
        for length in 0..hello.len() {
            let mut stream = server.server.stream();
            stream.write_all(&hello[..length]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rest(stream), b"", "{length} bytes of a hello are not answered");
        }
    }
    server.client().is_alive();
    server.server.is_left_by_all();
}

/// Completes a handshake and a request. Everything that the client sends is cut into pieces.
fn exchange(stream: &mut TcpStream, session: &mut ClientConnection, piece: usize) {
    let mut is_asked = false;
    loop {
        let records = flight(session);
        for piece in records.chunks(piece) {
            stream.write_all(piece).unwrap();
        }
        if !session.is_handshaking() && !is_asked {
            session.writer().write_all(b"GET /x HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
            is_asked = true;
            continue;
        }
        assert!(session.read_tls(stream).unwrap() > 0, "the server has closed");
        session.process_new_packets().unwrap();
        let mut answer = [0; 1000];
        if let Ok(read) = session.reader().read(&mut answer) {
            assert!(answer[..read].ends_with(b"GET /x"), "{}", answer[..read].escape_ascii());
            return;
        }
    }
}

#[test]
fn records_in_pieces_of_any_size_are_understood() {
    let server = TlsServer::start(site);
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(server.authority.client(version));
        for piece in [1, 2, 3, 5, 7, 50, 1000] {
            exchange(&mut server.server.stream(), &mut session(&config), piece);
        }
        // A hello in many records, each with a few bytes.
        let mut config = server.authority.client(version);
        config.max_fragment_size = Some(32);
        exchange(&mut server.server.stream(), &mut session(&Arc::new(config)), 10_000);
    }
}

#[test]
fn peers_that_stall_in_the_handshake_are_closed_in_time() {
    let config = ServerConfig::default().handshake_timeout(Duration::from_millis(300));
    let server = TlsServer::with(config, site);
    for version in [&TLS12, &TLS13] {
        let settings = Arc::new(server.authority.client(version));
        let hello = flight(&mut session(&settings));
        for sent in [0, 1, hello.len() / 2, hello.len() - 1, hello.len()] {
            let mut stream = server.server.stream();
            stream.write_all(&hello[..sent]).unwrap();
            // If the hello is complete, the server sends its flight. Then it closes.
            let answer = rest(stream);
            assert_eq!(answer.is_empty(), sent < hello.len(), "{sent} bytes");
        }
    }
    assert!(server.server.metrics().timed_out >= 10);
    assert_eq!(refusals(&server, Refusal::LateHandshake), 10);
    assert_eq!(refusals(&server, Refusal::Handshake), 0);
    // The deadline of the handshake is not that of requests: a session stays open although a peer
    // that connected later is closed.
    let mut client = server.client();
    assert_eq!(rest(server.server.stream()), b"");
    client.is_alive();
}

#[test]
fn a_client_that_offers_only_other_protocols_is_refused() {
    let server = TlsServer::start(site);
    for version in [&TLS12, &TLS13] {
        let mut config = server.authority.client(version);
        config.alpn_protocols = vec![b"h2".to_vec(), b"spdy/3".to_vec()];
        let error =
            Client::try_connect_tls(server.server.address(), "localhost", &Arc::new(config));
        let error = error.unwrap_err().to_string();
        // RFC 7301, section 3.2.
        assert!(error.contains("NoApplicationProtocol"), "{error}");
    }
}

#[test]
fn handshakes_succeed_while_all_threads_are_blocked() {
    let gate = Gate::new();
    let config = ServerConfig::default().threads_max(2).event_loops(1);
    let server = TlsServer::with(config, {
        let gate = gate.clone();
        move |request: Request| {
            if request.path() == "/wait" {
                gate.pass();
            }
            site(request)
        }
    });
    let mut blocked: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut blocked {
        client.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    gate.holds(2);
    for _ in 0..10 {
        server.client().is_alive();
    }
    gate.open();
    for client in &mut blocked {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn many_handshakes_at_once_all_succeed() {
    let server = TlsServer::with(ServerConfig::default().handshakes_max(1), site);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| server.client().is_alive()));
        }
    });
    assert_eq!(server.server.metrics().handshakes, 160);
    server.server.is_left_by_all();
}

#[test]
fn a_renegotiation_is_refused_and_the_connection_goes_on() {
    let server = TlsServer::start(site);
    let Ok(mut openssl) = std::process::Command::new("openssl")
        .args(["s_client", "-tls1_2", "-connect", &server.server.address().to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
    else {
        return skip::without("openssl");
    };
    let mut input = openssl.stdin.take().unwrap();
    eventually("the session is complete", || server.server.metrics().handshakes == 1);
    input.write_all(b"R\n").unwrap();
    let mut said = String::new();
    openssl.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    openssl.wait().unwrap();
    assert!(said.contains("no renegotiation"), "{said}");
    server.client().is_alive();
}

#[test]
fn the_name_decides_on_the_certificate() {
    let authority = Authority::new();
    let tls = authority.issue("first", &["localhost"]).tls();
    let second = authority.issue("second", &["example.com", "*.example.com"]);
    let server =
        bound(ServerConfig::default(), tls.add_pem_files(&second.certificate, &second.key));
    server.spawn(site).unwrap();
    let address = server.local_addr().unwrap();
    let config = Arc::new(authority.client(&TLS13));
    for (name, is_served) in [
        ("localhost", true),
        ("example.com", true),
        ("a.example.com", true),
        ("A.Example.COM", true),
        ("a.b.example.com", false),
        ("example.org", false),
    ] {
        let connected = Client::try_connect_tls(address, name, &config);
        assert_eq!(connected.is_ok(), is_served, "{name}: {connected:?}");
    }
    server.shutdown_handle().shutdown_within(Duration::ZERO);
}

#[test]
fn a_client_presents_its_certificate() {
    let authority = Authority::new();
    let others = Authority::new();
    let client = authority.issue_client("alice");
    let stranger = others.issue_client("mallory");
    let tls = || authority.issue("localhost", &["localhost"]).tls();
    let optional = tls().optional_client_certificates(authority.file());
    let required = tls().required_client_certificates(authority.file());
    for (tls, without) in [(optional, true), (required, false)] {
        let server = bound(ServerConfig::default(), tls);
        server
            .spawn(|request: Request| {
                format!("{:?}", request.tls().unwrap().client_certificate().map(<[u8]>::len))
            })
            .unwrap();
        let address = server.local_addr().unwrap();
        for version in [&TLS12, &TLS13] {
            let length = fs::read_to_string(&client.certificate).unwrap();
            let length = rustls::pki_types::pem::PemObject::from_pem_slice(length.as_bytes())
                .map(|der: rustls::pki_types::CertificateDer<'_>| der.len())
                .unwrap();
            for (config, expected) in [
                (authority.client(version), without.then(|| "None".to_owned())),
                (authority.client_with(version, &client), Some(format!("Some({length})"))),
                (authority.client_with(version, &stranger), None),
            ] {
                let config = Arc::new(config);
                // With TLS 1.3 the client learns of a refusal after its own handshake. The second
                // connection resumes the session of the first.
                for _ in 0..2 {
                    let answer = Client::try_connect_tls(address, "localhost", &config)
                        .and_then(|mut client| {
                            client.try_send("GET / HTTP/1.1\r\nHost: t\r\n\r\n")?;
                            client
                                .try_response()
                                .map_err(|ended| io::Error::other(ended.to_string()))
                        })
                        .map(|response| response.text().to_owned());
                    assert_eq!(answer.ok(), expected);
                }
            }
        }
        server.shutdown_handle().shutdown_within(Duration::ZERO);
    }
}

#[test]
fn changed_files_are_loaded_and_broken_ones_are_not() {
    let authority = Authority::new();
    let files = authority.issue("site", &["old.example"]);
    let tls = files.tls().reload_interval(Duration::ZERO);
    let server = bound(ServerConfig::default(), tls);
    server.spawn(site).unwrap();
    let address = server.local_addr().unwrap();
    let config = Arc::new(authority.client(&TLS13));
    let serves = |name| Client::try_connect_tls(address, name, &config).is_ok();
    assert!(serves("old.example") && !serves("new.example"));
    fs::write(&files.certificate, "broken").unwrap();
    assert!(serves("old.example"), "the old certificate stays in use");
    assert!(server.reload_tls().unwrap_err().to_string().contains("site.pem"));
    authority.issue("site", &["new.example"]);
    assert!(serves("new.example") && !serves("old.example"));
    server.shutdown_handle().shutdown_within(Duration::ZERO);
}

#[test]
fn metrics_tell_when_the_first_certificate_expires_and_that_changed_ones_were_not_loaded() {
    let authority = Authority::new();
    let files = authority.issue_until("site", "localhost", (2031, 5, 6));
    let later = authority.issue_until("later", "later.example", (2032, 7, 8));
    let server = Server::builder()
        .bind_tls("127.0.0.1:0", later.tls())
        .and_then(|server| server.bind_tls("127.0.0.1:0", files.tls()))
        .and_then(ServerBuilder::build)
        .unwrap();
    server.spawn(site).unwrap();
    let state = || {
        let metrics = server.metrics().unwrap();
        let expires = metrics.certificates_expire.unwrap().duration_since(UNIX_EPOCH).unwrap();
        (expires.as_secs(), metrics.certificate_loads_failed)
    };
    assert_eq!(state(), (1_935_792_000, 0));
    fs::write(&files.certificate, "broken").unwrap();
    server.reload_tls().unwrap_err();
    assert_eq!(state(), (1_935_792_000, 1), "the old one stays in use");
    authority.issue_until("site", "localhost", (2033, 1, 1));
    server.reload_tls().unwrap();
    assert_eq!(state(), (1_972_857_600, 1));
    server.shutdown_handle().shutdown_within(Duration::ZERO);
}

#[test]
fn unusable_files_are_named_at_the_start() {
    let authority = Authority::new();
    let files = authority.issue("site", &["localhost"]);
    let other = authority.issue("other", &["localhost"]);
    let folder = files.key.parent().unwrap();
    let write = |name: &str, content: &str| {
        fs::write(folder.join(name), content).unwrap();
        folder.join(name)
    };
    let encrypted = write(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let empty = write("empty.pem", "");
    let missing = folder.join("missing.pem");
    for (tls, expected) in [
        (Tls::from_pem_files(&missing, &files.key), &["missing.pem", "cannot read"][..]),
        (Tls::from_pem_files(&empty, &files.key), &["empty.pem", "BEGIN CERTIFICATE"]),
        (Tls::from_pem_files(&files.certificate, &empty), &["empty.pem", "BEGIN PRIVATE KEY"]),
        (Tls::from_pem_files(&files.certificate, &encrypted), &["encrypted.key", "openssl pkey"]),
        (Tls::from_pem_files(&files.certificate, &other.key), &["other.key", "does not belong"]),
        (files.tls().required_client_certificates(&missing), &["missing.pem"]),
    ] {
        let error = Server::builder().bind_tls("127.0.0.1:0", tls).unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    }
    let broken = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let tls = Tls::from_pem_files(write("broken.pem", broken), &files.key);
    let error = Server::builder().bind_tls("127.0.0.1:0", tls).unwrap_err().to_string();
    assert!(error.contains("broken.pem"), "{error}");
    assert!(!error.contains("RSA"), "nothing is wrong with the key: {error}");
}

#[test]
fn a_proxy_header_precedes_the_handshake() {
    let authority = Authority::new();
    let tls = authority.issue("site", &["localhost"]).tls();
    let server = Server::builder()
        .bind_tls("127.0.0.1:0", tls)
        .unwrap()
        .proxy_protocol()
        .unwrap()
        .build()
        .unwrap();
    server.spawn(|request: Request| request.peer().to_string()).unwrap();
    let config = Arc::new(authority.client(&TLS13));
    let mut session = session(&config);
    let mut stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let header = b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 443\r\n";
    stream.write_all(&[&header[..], &flight(&mut session)].concat()).unwrap();
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    tls.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    tls.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("192.0.2.9:4711"), "{answer}");
    server.shutdown_handle().shutdown_within(Duration::ZERO);
}

#[test]
fn keys_may_change_between_requests() {
    let server = TlsServer::start(site);
    let mut client = server.client();
    for _ in 0..5 {
        client.refresh_keys();
        client.is_alive();
    }
}
