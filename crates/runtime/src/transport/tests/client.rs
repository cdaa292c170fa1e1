//! The client of a TLS session, in memory. A [`Sealer`] seals what no library would.

use std::io::{Read, Write};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::version::TLS12;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType,
    ProtocolVersion, RootCertStore, ServerConfig, SupportedProtocolVersion,
};

use crate::transport::records::Records;
use crate::transport::session::Session;
use crate::transport::tls_info::TlsInfo;

/// The client of a session whose handshake is complete.
pub(crate) struct Client(ClientConnection);

/// Completes a handshake.
pub(crate) fn connect(version: &'static SupportedProtocolVersion) -> (Records, Client) {
    let (mut records, mut client) = begin(version);
    let mut input = Vec::new();
    loop {
        client.0.write_tls(&mut input).unwrap();
        let mut output = Vec::new();
        let used = records.shake_hands(&mut input, &mut output).unwrap();
        input.drain(..used);
        if output.is_empty() && !client.0.wants_write() {
            break;
        }
        client.receive(&output).unwrap();
    }
    assert!(input.is_empty() && !records.is_handshaking());
    (records, client)
}

/// Returns both sides before a handshake.
pub(crate) fn begin(version: &'static SupportedProtocolVersion) -> (Records, Client) {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| {
        matches!(
            suite.suite(),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        )
    });
    let provider = Arc::new(provider);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(client), name).unwrap();
    let server = UnbufferedServerConnection::new(Arc::new(server)).unwrap();
    (Records::new(server), Client(client))
}

pub(crate) fn session(records: Records) -> Session {
    let info = TlsInfo::new(records.state(), None);
    Session::new(records, info)
}

impl Client {
    /// Returns records with this content.
    pub(crate) fn seal(&mut self, content: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        self.0.set_buffer_limit(None);
        self.0.writer().write_all(content).unwrap();
        while self.0.wants_write() {
            self.0.write_tls(&mut records).unwrap();
        }
        records
    }

    /// Returns the end of the client's direction.
    pub(crate) fn seal_goodbye(&mut self) -> Vec<u8> {
        self.0.send_close_notify();
        self.seal(b"")
    }

    /// Returns a `KeyUpdate` that asks for one of the server.
    pub(crate) fn seal_key_update(&mut self) -> Vec<u8> {
        self.0.refresh_traffic_keys().unwrap();
        self.seal(b"")
    }

    /// Opens what the server has sent. Returns its content, and whether the server has ended its
    /// direction.
    pub(crate) fn open(&mut self, records: &[u8]) -> (Vec<u8>, bool) {
        self.receive(records).unwrap()
    }

    /// Returns the error that the server's records are for the client, such as an alert.
    pub(crate) fn fail_to_open(&mut self, records: &[u8]) -> rustls::Error {
        self.receive(records).unwrap_err()
    }

    fn receive(&mut self, mut records: &[u8]) -> Result<(Vec<u8>, bool), rustls::Error> {
        let (mut content, mut has_ended) = (Vec::new(), false);
        while !records.is_empty() && !has_ended {
            self.0.read_tls(&mut records).unwrap();
            has_ended = self.0.process_new_packets()?.peer_has_closed();
            let _ = self.0.reader().read_to_end(&mut content);
        }
        assert!(records.is_empty(), "nothing follows the end");
        Ok((content, has_ended))
    }

    /// Continues with records that are sealed one by one.
    pub(crate) fn into_sealer(self) -> Sealer {
        let suite = self.0.negotiated_cipher_suite().unwrap();
        let is_tls12 = self.0.protocol_version() == Some(ProtocolVersion::TLSv1_2);
        let (number, keys) = self.0.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = keys else {
            panic!("no other cipher was offered")
        };
        let encrypter = if is_tls12 {
            let rustls::SupportedCipherSuite::Tls12(suite) = suite else { panic!("{TLS12:?}") };
            suite.aead_alg.encrypter(key, iv.as_ref(), &[])
        } else {
            suite.tls13().unwrap().aead_alg.encrypter(key, iv)
        };
        Sealer { encrypter, number }
    }
}

/// Seals single records.
pub(crate) struct Sealer {
    encrypter: Box<dyn MessageEncrypter>,
    number: u64,
}

impl Sealer {
    pub(crate) fn seal(&mut self, kind: ContentType, content: &[u8]) -> Vec<u8> {
        let payload = OutboundChunks::Single(content);
        let version = ProtocolVersion::TLSv1_2;
        let record = OutboundPlainMessage { typ: kind, version, payload };
        let sealed = self.encrypter.encrypt(record, self.number).unwrap();
        self.number += 1;
        sealed.encode()
    }
}
