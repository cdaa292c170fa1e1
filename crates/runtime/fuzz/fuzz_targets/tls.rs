//! A TLS connection reads what its client has sent and nothing else: at every cut, with any record
//! changed on the way, and whatever records the client seals.

#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};

use filoplume_runtime::Tls;
use filoplume_runtime::fuzzing::{TlsConnection, TlsServer};
use libfuzzer_sys::fuzz_target;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring as provider;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, DigitallySignedStruct, Error,
    SignatureScheme,
};

/// The maximum number of bytes that a connection may hold unread: the records of an incomplete
/// handshake message, one record, and the content of one read of the socket.
const HELD_BYTES_MAX: usize = 256 * 1024;

/// Accepts any certificate, because the server is tested and not the client.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

static SERVER: LazyLock<TlsServer> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("it is made");
    let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem());
    TlsServer::new(tls).expect("the certificate is right")
});

fn client_config(version: &'static rustls::SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut provider = provider::default_provider();
    if version.version == rustls::ProtocolVersion::TLSv1_3 {
        provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256];
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("the versions are known")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

static TLS_1_3: LazyLock<Arc<ClientConfig>> =
    LazyLock::new(|| client_config(&rustls::version::TLS13));
static TLS_1_2: LazyLock<Arc<ClientConfig>> =
    LazyLock::new(|| client_config(&rustls::version::TLS12));

/// A connection with its client's end of the socket.
struct Line {
    server: TlsConnection,
    wire: UnixStream,
    is_secure: bool,
    /// What the server has read.
    content: Vec<u8>,
    has_ended: bool,
    has_failed: bool,
}

impl Line {
    fn new() -> Self {
        let (wire, end) = UnixStream::pair().expect("a pair of sockets");
        wire.set_nonblocking(true).expect("it is a socket");
        Self {
            server: SERVER.accept(end).expect("it is a socket"),
            wire,
            is_secure: false,
            content: Vec::new(),
            has_ended: false,
            has_failed: false,
        }
    }

    /// Sends bytes as they are, in pieces of at most `cut` bytes, and lets the server read each.
    fn send(&mut self, bytes: &[u8], cut: usize) {
        for piece in bytes.chunks(cut.max(1)) {
            if self.has_failed || self.has_ended {
                return;
            }
            self.wire.write_all(piece).expect("the socket has room");
            self.take_turn();
        }
    }

    /// Lets the server read what has arrived.
    fn take_turn(&mut self) {
        if !self.is_secure {
            match self.server.shake_hands() {
                Ok(is_secure) => self.is_secure = is_secure,
                Err(_) => self.has_failed = true,
            }
        }
        let mut buffer = [0; 5000];
        while self.is_secure && !self.has_ended && !self.has_failed {
            match self.server.read(&mut buffer) {
                Ok(0) => self.has_ended = true,
                Ok(read) => self.content.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(!self.server.has_more(), "content was left behind");
                    break;
                }
                Err(_) => self.has_failed = true,
            }
        }
        assert!(self.server.held_bytes() <= HELD_BYTES_MAX, "{}", self.server.held_bytes());
    }

    /// Returns what the server has sent.
    fn sent(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        match self.wire.read_to_end(&mut sent) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            Ok(_) => unreachable!("the server still has its end"),
        }
        sent
    }

    /// Returns a line whose handshake is complete, and its client.
    fn secured(config: &Arc<ClientConfig>, cut: usize) -> (Self, ClientConnection) {
        let name = ServerName::try_from("localhost").expect("it is a name");
        let mut client = ClientConnection::new(Arc::clone(config), name).expect("it is right");
        let mut line = Self::new();
        while client.is_handshaking() || !line.is_secure {
            let flight = take_output(&mut client);
            line.send(&flight, cut);
            assert!(!line.has_failed, "the handshake has failed");
            receive(&mut client, &line.sent());
        }
        (line, client)
    }
}

fn take_output(client: &mut ClientConnection) -> Vec<u8> {
    let mut out = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut out).expect("a vector takes all");
    }
    out
}

fn receive(client: &mut ClientConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("the client reads");
        client.process_new_packets().expect("the server sends what the client understands");
        match client.reader().read_to_end(&mut content) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            Ok(_) => {}
        }
    }
    content
}

/// Sends bytes as the beginning of a connection. The server must not read them as content.
fn opening(bytes: &[u8], cut: usize) {
    let mut line = Line::new();
    line.send(bytes, cut);
    assert!(!line.is_secure && line.content.is_empty(), "nobody has the keys");
}

/// A correct client exchanges content with the server in both directions. With `changes`, an
/// attacker on the way replaces bytes that the client sends after the handshake.
fn conversation(config: &Arc<ClientConfig>, content: &[u8], cut: usize, changes: &[[u8; 3]]) {
    let (mut line, mut client) = Line::secured(config, cut);
    let mut expected = Vec::new();
    for piece in content.split(|&byte| byte == 0) {
        client.writer().write_all(piece).expect("it is buffered");
        expected.extend_from_slice(piece);
        if piece.len() % 5 == 3 && config.supports_key_update() {
            client.refresh_traffic_keys().expect("TLS 1.3 can do that");
        }
    }
    client.send_close_notify();
    let mut bytes = take_output(&mut client);
    let genuine = bytes.clone();
    for &[high, low, byte] in changes {
        let at = usize::from(u16::from_be_bytes([high, low])) % bytes.len();
        bytes[at] = byte;
    }
    line.send(&bytes, cut);
    if bytes != genuine {
        assert!(expected.starts_with(&line.content), "nothing can be forged");
        assert!(!line.has_ended || line.content == expected, "nothing can be cut off");
        return;
    }
    assert!(line.has_ended && line.content == expected, "{} bytes", line.content.len());

    // The client's direction has ended. The server can still send.
    let mut left = expected.as_slice();
    let mut answer = Vec::new();
    while !left.is_empty() {
        let written = line.server.write(left).expect("the socket has room");
        left = &left[written..];
        answer.extend_from_slice(&receive(&mut client, &line.sent()));
    }
    line.server.farewell();
    answer.extend_from_slice(&receive(&mut client, &line.sent()));
    assert!(answer == expected, "the client reads what the server writes");
}

trait SupportsKeyUpdate {
    fn supports_key_update(&self) -> bool;
}

impl SupportsKeyUpdate for Arc<ClientConfig> {
    fn supports_key_update(&self) -> bool {
        Arc::ptr_eq(self, &TLS_1_3)
    }
}

/// Encrypts records of a client that no library would send.
struct Sealer {
    key: LessSafeKey,
    iv: [u8; 12],
    number: u64,
}

impl Sealer {
    fn new(client: ClientConnection) -> Self {
        let secrets = client.dangerous_extract_secrets().expect("the handshake is complete");
        let (number, ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets.tx else {
            unreachable!("there is one cipher suite")
        };
        let key = UnboundKey::new(&AES_128_GCM, &key.as_ref()[..16]).expect("its length is right");
        let iv = iv.as_ref().try_into().expect("it has twelve bytes");
        Self { key: LessSafeKey::new(key), iv, number }
    }

    fn seal(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) {
        let mut inner = [content, &[kind]].concat();
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        self.number += 1;
        let length = u16::try_from(inner.len() + 16).expect("records are short").to_be_bytes();
        let header = [23, 3, 3, length[0], length[1]];
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(header), &mut inner)
            .expect("the record is short");
        out.extend_from_slice(&header);
        out.extend_from_slice(&inner);
    }
}

/// A client that has the keys sends arbitrary records. The input has the kind and the length of
/// each, and how often it is repeated.
fn sealed_records(input: &[u8], cut: usize) {
    let (mut line, client) = Line::secured(&TLS_1_3, usize::MAX);
    let mut sealer = Sealer::new(client);
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    let mut left = input;
    while let Some((&[kind, length, times], rest)) = left.split_first_chunk::<3>() {
        let (content, rest) = rest.split_at(rest.len().min(usize::from(length)));
        left = rest;
        let kind = [23, 22, 21, 20, 24, kind][usize::from(kind) % 6];
        for _ in 0..=times % 80 {
            sealer.seal(kind, content, &mut bytes);
            if kind == 23 {
                expected.extend_from_slice(content);
            }
        }
    }
    bytes.truncate(100_000);
    line.send(&bytes, cut);
    assert!(expected.starts_with(&line.content), "only content is read");
}

fuzz_target!(|input: &[u8]| {
    let Some((&[mode, cut], input)) = input.split_first_chunk::<2>() else { return };
    // Long inputs are not cut into single bytes, which would take long.
    let cut = usize::from(cut).max(1) * (1 + input.len() / 200);
    match mode % 6 {
        0 => {
            opening(input, cut);
            opening(input, usize::MAX);
            opening(&[b"\x16\x03\x01".as_slice(), input].concat(), cut);
        }
        1 => conversation(&TLS_1_3, input, cut, &[]),
        2 => conversation(&TLS_1_2, input, cut, &[]),
        3 | 4 => {
            let (changes, content) = input.split_at(input.len().min(6) / 3 * 3);
            let config = if mode % 6 == 3 { &TLS_1_3 } else { &TLS_1_2 };
            conversation(config, content, cut, changes.as_chunks().0);
        }
        _ => {
            sealed_records(input, cut);
            sealed_records(input, usize::MAX);
        }
    }
});
