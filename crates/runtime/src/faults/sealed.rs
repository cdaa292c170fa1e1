//! The writes of a TLS session to its socket: how many a short connection needs, and that each may
//! fail for a while.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustix::io::Errno;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use super::{Call, Fault, Plan};
use crate::{Request, Server, ServerConfig, Tls};

/// More than a socket takes at once.
const LONG: usize = 4 << 20;

/// Sends a request that asks for the end of the connection, and returns the number of bytes of the
/// response. The response must be followed by the alert `close_notify`, which ends the session. The
/// request is sent with the last message of the handshake, as soon as the version allows that.
fn ask(version: &'static SupportedProtocolVersion, plan: &Arc<Plan>, path: &str) -> usize {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut config = ServerConfig::default().event_loops(1);
    config.faults = Some(Arc::clone(plan));
    let tls = Tls::from_pem(certificate.pem(), key.serialize_pem());
    let server =
        Server::builder().bind_tls("127.0.0.1:0", tls).unwrap().config(config).build().unwrap();
    let long = |request: Request| "x".repeat(if request.path() == "/long" { LONG } else { 5 });
    server.spawn(long).unwrap();

    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    session.writer().write_all(head.as_bytes()).unwrap();
    let stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut response = Vec::new();
    StreamOwned::new(session, stream).read_to_end(&mut response).unwrap();
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
    let head = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    response.len() - head - 4
}

#[test]
fn tickets_a_short_response_and_the_goodbye_are_one_write() {
    // With TLS 1.2 the client waits for the end of the handshake before it asks.
    for (version, writes) in [(&TLS12, 3), (&TLS13, 2)] {
        let plan = Arc::new(Plan::new(Call::Write, u64::MAX, 0, Fault::OneByte));
        assert_eq!(ask(version, &plan, "/"), 5);
        assert_eq!(plan.calls(), writes, "{version:?}");
    }
}

#[test]
fn the_goodbye_is_behind_all_content_whichever_writes_fail_for_a_while() {
    for version in [&TLS12, &TLS13] {
        for fault in [Fault::OneByte, Fault::Error(Errno::AGAIN)] {
            for first in 1..=4 {
                for (path, length) in [("/", 5), ("/long", LONG)] {
                    let plan = Arc::new(Plan::new(Call::Write, first, 2, fault));
                    assert_eq!(ask(version, &plan, path), length, "{version:?} {first} {fault:?}");
                }
            }
        }
    }
}
