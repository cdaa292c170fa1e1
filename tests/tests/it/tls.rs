//! Requests over TLS: each kind of content and end, as over a plain socket.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use filoplume_runtime::{BlockingStream, Plan, Request, Response, ServerConfig, Service, tcp};
use filoplume_tests::tls::TlsServer;
use filoplume_tests::{Client, Ended, Gate, eventually, site};
use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};

/// Around the length of a record, and more than the socket's buffers hold.
const LENGTHS: [usize; 8] = [0, 1, 16_383, 16_384, 16_385, 65_536, 1 << 20, 20 << 20];

/// Answers `/echo` with the content, which it reads as it arrives.
struct Streams;

impl Service for Streams {
    fn config(&self) -> Option<ServerConfig> {
        None
    }

    fn plan(&self, request: &mut Request) -> Plan {
        if request.path() == "/echo" { Plan::new().streamed() } else { Plan::new() }
    }

    fn call(&self, request: Request) -> Response {
        site(request)
    }
}

/// Returns pseudo-random bytes, so that a test notices lost, repeated or exchanged ones.
fn content(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    let mut content = Vec::with_capacity(length + 4);
    while content.len() < length {
        content.extend(next());
    }
    content.truncate(length);
    content
}

fn config() -> ServerConfig {
    ServerConfig::default().content_bytes_max(1 << 26).buffered_content_bytes_max(1 << 26)
}

/// Sends a content, and returns the content of the response.
fn echoed(client: &mut Client, content: &[u8]) -> Vec<u8> {
    let head =
        format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", content.len());
    client.send(head);
    client.send(content);
    let response = client.response();
    assert_eq!(response.status, 200);
    response.body
}

#[test]
fn contents_of_each_length_arrive_and_return_unchanged() {
    for version in [&TLS12, &TLS13] {
        let buffered = TlsServer::with(config(), site);
        let streamed = TlsServer::with(config(), Streams);
        for server in [buffered, streamed] {
            let settings = Arc::new(server.authority.client(version));
            let mut client = server.client_as(&settings);
            for length in LENGTHS {
                let content = content(length);
                assert!(echoed(&mut client, &content) == content, "{length} bytes differ");
            }
            assert_eq!(server.server.metrics().handshakes, 1, "one connection serves all");
        }
    }
}

#[test]
fn bodies_from_readers_are_complete_with_and_without_a_length() {
    let server = TlsServer::start(site);
    let mut client = server.client();
    for length in LENGTHS {
        for path in ["large", "stream"] {
            let response = client.get(&format!("/{path}?n={length}"));
            assert_eq!(response.body.len(), length);
            assert!(response.body.iter().all(|&byte| byte == b'x'));
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = TlsServer::start(site);
    let mut client = server.client();
    let requests: String =
        (0..500).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: t\r\n\r\n")).collect();
    client.send(requests);
    for n in 0..500 {
        assert_eq!(client.response().text(), format!("GET /{n}"));
    }
}

#[test]
fn requests_that_come_byte_by_byte_are_answered() {
    let server = TlsServer::start(site);
    let mut client = server.client();
    for byte in b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello" {
        client.send([*byte]);
    }
    assert_eq!(client.response().text(), "hello");
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let server = TlsServer::start(site);
    let mut client = server.client();
    client.send("GET /large?n=8000000 HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut left = 8_000_000;
    let mut head = client.read_head_only().unwrap();
    assert_eq!(head.header("content-length"), Some("8000000"));
    head.body.clear();
    while left > 0 {
        let piece = left.min(100_000);
        assert_eq!(client.read_exactly(piece).len(), piece);
        thread::sleep(Duration::from_millis(1));
        left -= piece;
    }
    client.is_alive();
}

#[test]
fn a_request_knows_its_session() {
    let server = TlsServer::start(|request: Request| {
        let tls = request.tls().unwrap();
        let protocol = tls.protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        format!("{} {:?} {:?} {}", tls.version(), tls.server_name(), protocol, tls.is_resumed())
    });
    for (version, name) in [(&TLS12, "TLSv1.2"), (&TLS13, "TLSv1.3")] {
        let mut settings = server.authority.client(version);
        settings.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let settings = Arc::new(settings);
        let first = server.client_as(&settings).get("/").text().to_owned();
        assert_eq!(first, format!("{name} Some(\"localhost\") Some(\"http/1.1\") false"));
        let mut second = server.client_as(&settings);
        assert_eq!(second.session().handshake_kind(), Some(HandshakeKind::Resumed));
        assert_eq!(
            second.get("/").text(),
            format!("{name} Some(\"localhost\") Some(\"http/1.1\") true")
        );
    }
}

#[test]
fn a_closed_connection_ends_with_close_notify() {
    let server = TlsServer::start(site);
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().status, 200);
    // Without close_notify this is an error of the client's session.
    client.is_closed();
    // A content with neither a length nor chunks ends with close_notify as well.
    let mut client = server.client();
    client.send("GET /stream?n=100000 HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!(response.body.len(), 100_000);
}

#[test]
fn a_response_that_is_cut_short_does_not_look_complete() {
    struct Fails(usize);
    impl Read for Fails {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(ErrorKind::Other)?;
            buffer[0] = b'x';
            Ok(1)
        }
    }
    let server = TlsServer::start(|_: Request| {
        let mut response = Response::default();
        response.set_stream(Fails(3));
        response
    });
    let mut client = server.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let ended = client.try_response().unwrap_err();
    assert!(matches!(ended, Ended::Reset(_)), "{ended}");
}

#[test]
fn a_drain_finishes_requests_and_ends_connections_with_close_notify() {
    let gate = Gate::default();
    let server = TlsServer::start({
        let gate = gate.clone();
        move |request: Request| {
            if request.path() == "/wait" {
                gate.pass();
            }
            site(request)
        }
    });
    let mut idle = server.client();
    idle.is_alive();
    let mut busy = server.client();
    busy.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    gate.holds(1);
    server.server.server().shutdown_handle().shutdown();
    idle.is_closed();
    gate.open();
    assert_eq!(busy.response().text(), "GET /wait");
    busy.is_closed();
}

/// Sends its input back, on the event loop.
struct Echo;

impl tcp::Protocol for Echo {
    fn data(&mut self, bytes: &[u8], io: &mut tcp::Io<'_>) -> usize {
        io.send(bytes);
        bytes.len()
    }
}

fn echo(mut socket: BlockingStream) {
    let mut other = socket.try_clone().unwrap();
    let mut buffer = [0; 1000];
    while let Ok(read @ 1..) = socket.read(&mut buffer) {
        if other.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
}

#[test]
fn an_upgraded_connection_stays_in_its_session() {
    let server = TlsServer::start(|request: Request| {
        let mut response = match request.path() {
            "/thread" => Response::upgrade(echo),
            _ => Response::upgrade_to(Echo),
        };
        response.add_header("upgrade", "echo").unwrap();
        response
    });
    for path in ["/thread", "/loop"] {
        let mut client = server.client();
        let upgrade = format!(
            "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
        );
        client.send([upgrade.as_bytes(), b"early"].concat());
        assert_eq!(client.response().status, 101);
        assert_eq!(client.read_exactly(5), b"early");
        for length in [1, 1000, 16_385, 300_000] {
            let content = content(length);
            client.send(&content);
            assert!(client.read_exactly(length) == content, "{path}: {length} bytes differ");
        }
        client.finish();
        client.is_closed();
    }
}

#[test]
fn a_raw_service_is_told_of_an_end_without_close_notify() {
    use std::sync::Mutex;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = TlsServer::raw(ServerConfig::default(), {
        let seen = Arc::clone(&seen);
        tcp::blocking(move |mut socket: BlockingStream| {
            let mut received = Vec::new();
            let result = socket.read_to_end(&mut received);
            seen.lock().unwrap().push((received.len(), result.map_err(|error| error.kind())));
        })
    });
    let mut complete = server.client();
    complete.send("hello").finish();
    eventually("the end is seen", || seen.lock().unwrap().len() == 1);
    let mut cut = server.client();
    cut.send("hello");
    cut.tcp().shutdown(std::net::Shutdown::Write).unwrap();
    eventually("the cut is seen", || seen.lock().unwrap().len() == 2);
    assert_eq!(*seen.lock().unwrap(), [(5, Ok(5)), (5, Err(ErrorKind::UnexpectedEof))]);
}
