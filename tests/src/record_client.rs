//! A TLS client that seals each record itself, so that it may send what no library would: messages
//! cut at any byte, records without content, and floods of either.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use harness::DEADLINE;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use rustls::pki_types::ServerName;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ConnectionTrafficSecrets, KeyLog,
    SupportedProtocolVersion,
};

use crate::tls::Authority;

/// The types of records (RFC 8446, section 5.1).
pub const ALERT: u8 = 21;
/// A handshake message, or a part of one.
pub const HANDSHAKE: u8 = 22;
/// Content.
pub const DATA: u8 = 23;

/// `KeyUpdate`, without and with the request that the server does the same.
pub const KEY_UPDATE: [[u8; 5]; 2] = [[24, 0, 0, 1, 0], [24, 0, 0, 1, 1]];

const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;

/// A connection whose handshake is complete.
#[derive(Debug)]
pub struct RecordClient {
    stream: TcpStream,
    is_tls13: bool,
    sending: Keys,
    receiving: Keys,
}

/// The keys of one direction.
#[derive(Debug)]
struct Keys {
    key: LessSafeKey,
    iv: [u8; 12],
    number: u64,
    /// The secret from which the next keys are derived. Empty with TLS 1.2.
    secret: Vec<u8>,
}

/// The secrets of a session with TLS 1.3.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<(String, Vec<u8>)>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0.lock().unwrap().push((label.to_owned(), secret.to_vec()));
    }
}

impl Secrets {
    fn of(&self, label: &str) -> Vec<u8> {
        let all = self.0.lock().unwrap();
        all.iter().find(|(known, _)| known == label).map_or(Vec::new(), |(_, one)| one.clone())
    }
}

impl RecordClient {
    /// Connects to `localhost` at this address.
    pub fn connect(
        address: SocketAddr,
        authority: &Authority,
        version: &'static SupportedProtocolVersion,
    ) -> Self {
        let secrets = Arc::new(Secrets::default());
        let mut config = authority.client_with_suites(version, |suite| {
            matches!(
                suite,
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
                    | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            )
        });
        config.key_log = Arc::clone(&secrets) as _;
        config.enable_secret_extraction = true;
        let (stream, session) = shake_hands(address, config);
        let is_tls13 = session.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
        let extracted = session.dangerous_extract_secrets().unwrap();
        let [sending, receiving] =
            [(extracted.tx, "CLIENT_TRAFFIC_SECRET_0"), (extracted.rx, "SERVER_TRAFFIC_SECRET_0")]
                .map(|((number, keys), label)| Keys::of(number, &keys, secrets.of(label)));
        Self { stream, is_tls13, sending, receiving }
    }

    /// Seals a record.
    pub fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut sealed = content.to_vec();
        if self.is_tls13 {
            sealed.push(kind);
        }
        let length = u16::try_from(sealed.len() + TAG_BYTES).unwrap().to_be_bytes();
        let kind = if self.is_tls13 { DATA } else { kind };
        let header = [kind, 3, 3, length[0], length[1]];
        let aad = aad(self.is_tls13, self.sending.number, header);
        let nonce = self.sending.next_nonce();
        self.sending.key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed).unwrap();
        [&header[..], &sealed].concat()
    }

    /// Uses the next keys for records that are sealed from now on, as a sender must after a
    /// `KeyUpdate`.
    pub fn update_keys(&mut self) {
        self.sending = self.sending.next();
    }

    /// Seals a `KeyUpdate`, and uses the next keys from then on.
    pub fn seal_key_update(&mut self, is_requested: bool) -> Vec<u8> {
        let sealed = self.seal(HANDSHAKE, &KEY_UPDATE[usize::from(is_requested)]);
        self.update_keys();
        sealed
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// Those of the socket: the server may have closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads and opens the next record. Follows the server's changes of keys.
    ///
    /// # Errors
    ///
    /// Those of the socket, and its end.
    pub fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let mut sealed = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        self.stream.read_exact(&mut sealed)?;
        let aad = aad(self.is_tls13, self.receiving.number, header);
        let nonce = self.receiving.next_nonce();
        let opened = self.receiving.key.open_in_place(nonce, Aad::from(aad), &mut sealed).unwrap();
        let mut content = opened.to_vec();
        let kind = if self.is_tls13 { content.pop().unwrap() } else { header[0] };
        if kind == HANDSHAKE && content.first() == Some(&24) {
            self.receiving = self.receiving.next();
        }
        Ok((kind, content))
    }

    /// Receives content until it ends with `end`. Skips handshake messages and warnings.
    #[track_caller]
    pub fn receive_until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let (kind, content) = self.receive().unwrap_or_else(|e| panic!("{e} after {text:?}"));
            match kind {
                DATA => text.push_str(std::str::from_utf8(&content).unwrap()),
                HANDSHAKE => {}
                ALERT if content[0] == 1 => {}
                _ => panic!("a record of type {kind}: {content:?} after {text:?}"),
            }
        }
        text
    }

    /// Receives until the server ends the connection. Returns the content.
    #[track_caller]
    pub fn receive_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.receive() {
                Ok((DATA, content)) => all.extend(content),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("it stays open"),
                Err(_) => return all,
            }
        }
    }
}

/// Completes a handshake without reading what follows it.
fn shake_hands(address: SocketAddr, config: ClientConfig) -> (TcpStream, ClientConnection) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    while session.is_handshaking() || session.wants_write() {
        if session.wants_write() {
            session.write_tls(&mut stream).unwrap();
        } else {
            assert!(session.read_tls(&mut stream).unwrap() > 0, "the server has closed");
            session.process_new_packets().unwrap();
        }
    }
    (stream, session)
}

/// The data that is authenticated beside a record: its header, and with TLS 1.2 its number and the
/// length without the tag (RFC 5246, section 6.2.3.3).
fn aad(is_tls13: bool, number: u64, header: [u8; HEADER_BYTES]) -> Vec<u8> {
    if is_tls13 {
        return header.to_vec();
    }
    let length = u16::from_be_bytes([header[3], header[4]]) - u16::try_from(TAG_BYTES).unwrap();
    [&number.to_be_bytes()[..], &header[..3], &length.to_be_bytes()].concat()
}

impl Keys {
    fn of(number: u64, keys: &ConnectionTrafficSecrets, secret: Vec<u8>) -> Self {
        let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = keys else {
            panic!("only this cipher was offered")
        };
        Self::new(number, key.as_ref(), iv.as_ref(), secret)
    }

    fn new(number: u64, key: &[u8], iv: &[u8], secret: Vec<u8>) -> Self {
        let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).unwrap());
        Self { key, iv: iv.try_into().unwrap(), number, secret }
    }

    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        self.number += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// The keys after a `KeyUpdate` (RFC 8446, section 7.2).
    fn next(&self) -> Self {
        let secret = expand(&self.secret, "traffic upd", 32);
        Self::new(0, &expand(&secret, "key", 32), &expand(&secret, "iv", 12), secret)
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446, section 7.1).
fn expand(secret: &[u8], label: &str, length: u8) -> Vec<u8> {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let label = format!("tls13 {label}");
    let info = [&[0, length, u8::try_from(label.len()).unwrap()], label.as_bytes(), &[0]];
    let mut expanded = vec![0; usize::from(length)];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    prk.expand(&info, Length(expanded.len())).unwrap().fill(&mut expanded).unwrap();
    expanded
}
