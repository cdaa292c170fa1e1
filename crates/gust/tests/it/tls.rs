//! `https://`: certificates, resumption, and servers that break off.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{CertificateParams, CertifiedIssuer, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::program::{count, errors, gust, measure, number};
use crate::servers::{HELLO, answer_all, each_connection};

/// An authority with a certificate for `localhost` and one for a client, in files.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    pub(crate) server: Arc<ServerConfig>,
    /// Asks clients for a certificate.
    strict: Arc<ServerConfig>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let (chain, key) = issued(&issuer, "localhost");
        let (client, client_key) = issued(&issuer, "client");
        let write = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        write("ca.pem", issuer.pem());
        write("client.pem", client.pem());
        write("client.key", client_key.serialize_pem());
        write("both.pem", client.pem() + &client_key.serialize_pem());
        let mut roots = RootCertStore::empty();
        roots.add(issuer.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .unwrap();
        let config = |verifier| {
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .unwrap();
            let builder = match verifier {
                Some(verifier) => builder.with_client_cert_verifier(verifier),
                None => builder.with_no_client_auth(),
            };
            let mut config = builder.with_single_cert(vec![chain.der().clone()], key).unwrap();
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Arc::new(config)
        };
        let (server, strict) = (config(None), config(Some(verifier)));
        Self { folder, server, strict }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn issued(issuer: &Issuer<'_, KeyPair>, name: &str) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, issuer).unwrap(), key)
}

/// A connection that several functions may write to and read from.
struct Secure(Mutex<StreamOwned<ServerConnection, TcpStream>>);

impl Secure {
    fn new(config: &Arc<ServerConfig>, stream: TcpStream) -> Self {
        Self(Mutex::new(session(config, stream)))
    }
}

/// Begins a session on an accepted connection.
pub(crate) fn session(
    config: &Arc<ServerConfig>,
    stream: TcpStream,
) -> StreamOwned<ServerConnection, TcpStream> {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream)
}

impl Read for Secure {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.lock().unwrap().read(buffer)
    }
}

impl Write for &Secure {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().flush()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        let mut stream = self.0.lock().unwrap();
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }
}

/// Starts a server that answers each request over TLS with the same bytes.
fn secure(config: &Arc<ServerConfig>, answer: &'static [u8]) -> u16 {
    let config = Arc::clone(config);
    each_connection(move |stream| {
        answer_all(Secure::new(&config, stream), &|_| answer.to_vec());
    })
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn requests_are_answered_over_tls() {
    let authority = Authority::new();
    let ca = authority.file("ca.pem");
    let port = secure(&authority.server, HELLO);
    let trust = format!("--cacert {}", shown(&ca));
    for more in [
        &*trust,
        "--insecure",
        "-k -p 8",
        "-k -r 1000",
        "-k --blocking-threads 2",
        "-k --no-keepalive",
        "-k --no-keepalive --blocking-threads 2",
    ] {
        let (run, outcome) =
            measure(&format!("https://localhost:{port}/ -c 4 -n 200 --verify {more}"));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (200, 0), "{more}: {run}");
        assert_eq!(run["load"]["protocol"], "https");
        let handshakes = count(&run, "handshakes.full") + count(&run, "handshakes.resumed");
        let expected = if more.contains("no-keepalive") { 200..=204 } else { 1..=4 };
        assert!(expected.contains(&handshakes), "{more}: {run}");
    }
}

#[test]
fn long_contents_pass_in_both_directions() {
    let authority = Authority::new();
    let config = Arc::clone(&authority.server);
    let port = each_connection(move |stream| {
        answer_all(Secure::new(&config, stream), &|request| {
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", request.content.len());
            [head.as_bytes(), &request.content].concat()
        });
    });
    let file = authority.file("content");
    std::fs::write(&file, (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>())
        .unwrap();
    for more in ["", "--blocking-threads 2"] {
        let (run, outcome) = measure(&format!(
            "https://localhost:{port}/ -k -c 2 -n 4 --verify=echo -B {} {more}",
            shown(&file)
        ));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (4, 0), "{run}");
    }
}

#[test]
fn sessions_are_resumed_unless_each_handshake_is_to_be_a_full_one() {
    let authority = Authority::new();
    let port = secure(&authority.server, HELLO);
    let load = format!("https://localhost:{port}/ -k -c 2 -n 100 --no-keepalive");
    let (run, _) = measure(&load);
    assert!(count(&run, "handshakes.resumed") > 80, "{run}");
    let (run, _) = measure(&format!("{load} --no-resumption"));
    assert_eq!(count(&run, "handshakes.resumed"), 0, "{run}");
    assert!((100..=102).contains(&count(&run, "handshakes.full")), "{run}");
    let text = gust(&format!("{load} --no-resumption --quiet")).stdout;
    assert!(text.contains("handshakes, ") && text.contains("0 % resumed"), "{text}");
}

#[test]
fn a_client_shows_its_certificate() {
    let authority = Authority::new();
    let port = secure(&authority.strict, HELLO);
    let (certificate, key) = (authority.file("client.pem"), authority.file("client.key"));
    let both = authority.file("both.pem");
    for with in [
        format!("--cert {} --key {}", shown(&certificate), shown(&key)),
        format!("--cert {}", shown(&both)),
    ] {
        let (run, outcome) = measure(&format!("https://localhost:{port}/ -k -c 2 -n 10 {with}"));
        outcome.assert_code(0);
        assert_eq!((count(&run, "responses"), errors(&run)), (10, 0), "{run}");
    }
    // With TLS 1.3 the client is refused after its handshake.
    let (run, outcome) = measure(&format!("https://localhost:{port}/ -k -c 2 -n 10"));
    outcome.assert_code(1);
    // A connection may end before its request is sent.
    assert_eq!(count(&run, "responses"), 0, "{run}");
    assert!(errors(&run) >= 10, "{run}");
}

#[test]
fn what_is_wrong_with_a_server_is_said_in_one_line() {
    let authority = Authority::new();
    let ca = authority.file("ca.pem");
    let port = secure(&authority.server, HELLO);
    let plain = each_connection(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let closing = each_connection(drop);
    let mut only_h2 = (*authority.server).clone();
    only_h2.alpn_protocols = vec![b"h2".to_vec()];
    let only_h2 = secure(&Arc::new(only_h2), HELLO);
    for (target, more, says) in [
        (format!("https://localhost:{port}"), String::new(), "--cacert"),
        // The certificate is for another name.
        (format!("https://127.0.0.1:{port}"), format!("--cacert {}", shown(&ca)), "--insecure"),
        (format!("https://localhost:{plain}"), "-k".to_owned(), "does not speak TLS"),
        (format!("https://localhost:{closing}"), "-k".to_owned(), "cannot connect"),
        (format!("https://localhost:{only_h2}"), "-k".to_owned(), "HTTP/1.1"),
    ] {
        for threads in ["", "--blocking-threads 1"] {
            let outcome = gust(&format!("{target} -c 1 -n 3 {more} {threads}"));
            outcome.assert_code(2).assert_says(says);
        }
    }
}

#[test]
fn a_server_that_closes_in_the_middle_is_counted() {
    let authority = Authority::new();
    for answer in [&b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nHello"[..], b"HTTP/1.1 200 O"] {
        let config = Arc::clone(&authority.server);
        let port = each_connection(move |stream| {
            let mut reader = io::BufReader::new(Secure::new(&config, stream));
            crate::servers::read_request(&mut reader);
            let _ = reader.get_ref().write_all(answer);
        });
        for more in ["", "--blocking-threads 2"] {
            let (run, outcome) = measure(&format!("https://localhost:{port} -k -c 2 -n 10 {more}"));
            outcome.assert_code(1);
            assert_eq!((count(&run, "errors.closed_early"), errors(&run)), (10, 10), "{run}");
        }
    }
}

#[test]
fn a_handshake_that_never_ends_times_out() {
    let port = each_connection(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for more in ["", "--blocking-threads 1"] {
        let outcome =
            gust(&format!("https://localhost:{port} -k -c 1 -n 2 --timeout 300ms {more}"));
        outcome.assert_code(2).assert_says("timed out");
        assert!(outcome.took < Duration::from_secs(10), "{:?}", outcome.took);
    }
}

#[test]
fn the_latency_of_a_connection_per_request_includes_the_handshake() {
    let authority = Authority::new();
    for more in ["", "--blocking-threads 1"] {
        let config = Arc::clone(&authority.server);
        let port = each_connection(move |stream| {
            // This is what the test measures.
            std::thread::sleep(Duration::from_millis(50));
            answer_all(Secure::new(&config, stream), &|_| HELLO.to_vec());
        });
        let load = format!("https://localhost:{port} -k -c 1 -n 3 --no-keepalive {more}");
        let (run, outcome) = measure(&load);
        outcome.assert_code(0);
        assert!(number(&run, "latency.min") >= 50e6, "{more}: {run}");
    }
}
