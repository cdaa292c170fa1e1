//! Sessions between two ends in memory, with bytes that come in any pieces.

use std::collections::VecDeque;

use rcgen::generate_simple_self_signed;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

use super::*;

/// A non-blocking socket in memory, whose other end is a server.
struct Peer {
    server: ServerConnection,
    /// Bytes for the client, in pieces of this length.
    to_client: VecDeque<u8>,
    piece: usize,
    /// How many bytes the server sends before it closes.
    left: usize,
}

impl Peer {
    fn new(piece: usize, left: usize) -> Self {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let server = ServerConnection::new(Arc::new(config)).unwrap();
        Self { server, to_client: VecDeque::new(), piece, left }
    }
}

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut out = Vec::new();
        while self.server.wants_write() {
            self.server.write_tls(&mut out)?;
        }
        self.to_client.extend(out);
        if self.left == 0 {
            return Ok(0);
        }
        if self.to_client.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = self.piece.min(buffer.len()).min(self.to_client.len()).min(self.left);
        for (place, byte) in buffer.iter_mut().zip(self.to_client.drain(..most)) {
            *place = byte;
        }
        self.left -= most;
        Ok(most)
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = &bytes[..self.piece.min(bytes.len())];
        let length = taken.len();
        while !taken.is_empty() {
            self.server.read_tls(&mut taken)?;
            self.server.process_new_packets().map_err(io::Error::other)?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn insecure() -> Tls {
    Tls::new("localhost", &TlsSettings { is_insecure: true, ..TlsSettings::default() }).unwrap()
}

/// Shakes hands and exchanges a message in each direction.
fn exchange(tls: &Tls, peer: Peer) -> io::Result<Vec<u8>> {
    let mut stream = tls.begin(peer)?;
    for _ in 0..10_000 {
        match stream.shake_hands() {
            Ok(()) => break,
            Err(error) if is_would_block(&error) => {}
            Err(error) => return Err(error),
        }
    }
    assert!(!stream.session.is_handshaking());
    stream.write_all(b"ping")?;
    Write::flush(&mut stream)?;
    let mut ping = [0; 4];
    stream.socket.server.reader().read_exact(&mut ping)?;
    assert_eq!(&ping, b"ping");
    stream.socket.server.writer().write_all(&[b'x'; 40_000])?;
    stream.socket.server.send_close_notify();
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    Ok(received)
}

#[test]
fn a_session_works_with_bytes_in_any_pieces() {
    for piece in [1, 2, 7, 100, 5000, usize::MAX] {
        let received = exchange(&insecure(), Peer::new(piece, usize::MAX)).unwrap();
        assert_eq!(received, [b'x'; 40_000], "{piece}");
    }
}

#[test]
fn a_server_that_closes_at_any_byte_ends_the_session() {
    let mut outcomes = [0, 0];
    for left in (0..2000).step_by(13).chain((2000..40_000).step_by(997)) {
        match exchange(&insecure(), Peer::new(usize::MAX, left)) {
            Ok(received) => {
                assert!(received.len() < 40_000 && received.iter().all(|&byte| byte == b'x'));
                outcomes[0] += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{left}: {error}");
                outcomes[1] += 1;
            }
        }
    }
    assert!(outcomes[0] > 10 && outcomes[1] > 10, "{outcomes:?}");
}

#[test]
fn a_read_that_does_not_fill_the_buffer_has_emptied_the_socket() {
    let mut stream = insecure().begin(Peer::new(333, usize::MAX)).unwrap();
    while stream.session.is_handshaking() {
        let _ = stream.shake_hands();
    }
    stream.socket.server.writer().write_all(&[b'x'; 20_000]).unwrap();
    let mut buffer = [0; 8192];
    let reads: Vec<_> = (0..4).map(|_| stream.read(&mut buffer).ok()).collect();
    assert_eq!(reads, [Some(8192), Some(8192), Some(20_000 - 16_384), None]);
}

#[test]
fn an_unknown_authority_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.pem");
    let other = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&file, other.cert.pem()).unwrap();
    let files = TlsFiles { authorities: Some(file), ..TlsFiles::default() };
    let tls = Tls::new("localhost", &TlsSettings { files, ..TlsSettings::default() }).unwrap();
    let error = exchange(&tls, Peer::new(usize::MAX, usize::MAX)).unwrap_err();
    assert!(error.to_string().contains("--cacert"), "{error}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nothing.pem");
    std::fs::write(&file, "nothing").unwrap();
    let authorities = TlsFiles { authorities: Some(file.clone()), ..TlsFiles::default() };
    let certificate = TlsFiles { certificate: Some(file), ..TlsFiles::default() };
    for (files, is_insecure) in [(authorities, false), (certificate, true)] {
        let settings = TlsSettings { files, is_insecure, is_always_full: false };
        let error = Tls::new("localhost", &settings).unwrap_err();
        assert!(error.contains("cannot read a certificate in"), "{error}");
        assert!(error.contains("nothing.pem"), "{error}");
    }
    assert!(Tls::new("not a name", &TlsSettings::default()).is_err());
}
