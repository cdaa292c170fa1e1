//! Slow clients do not keep places of a `ConcurrencyLimit` from others.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use filoplume::RunningApp;
use filoplume::middleware::ConcurrencyLimit;
use filoplume::prelude::*;
use filoplume::response::Reader;

/// Longer than any test, so that no usual timeout is the reason why a client loses its place.
const LONG: Duration = Duration::from_secs(3600);

/// An app with a limit, and a receiver that is told of uploads that have a place.
struct Limited {
    app: RunningApp,
    has_begun: Receiver<()>,
}

impl Limited {
    fn start(limit: ConcurrencyLimit) -> Self {
        let (begin, has_begun) = channel();
        let upload = move |mut content: Body| -> Result<String> {
            begin.send(()).unwrap();
            Ok(io::copy(&mut content, &mut io::sink())?.to_string())
        };
        let limited = Router::new()
            .get("/", || "free")
            .get("/endless", || Reader::new(io::repeat(b'a')))
            .post("/upload", upload)
            .with(limit);
        let config = ServerConfig::default().content_timeout(LONG).write_timeout(LONG);
        let app = App::new().nest("/limited", limited).config(config).start("127.0.0.1:0").unwrap();
        Self { app, has_begun }
    }

    fn get(&self, path: &str) -> TcpStream {
        connect(self.app.local_addr(), &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    /// Begins an upload of two megabytes, and sends so much that its handler is called.
    fn begin_upload(&self) -> TcpStream {
        let head = "POST /limited/upload HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n";
        let mut socket = connect(self.app.local_addr(), head);
        socket.write_all(&[b'x'; 1_500_000]).unwrap();
        self.has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
        socket
    }
}

fn connect(address: SocketAddr, request: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

fn status(mut socket: &TcpStream) -> String {
    let mut status = [0; 12];
    socket.read_exact(&mut status).unwrap();
    String::from_utf8_lossy(&status[9..]).into_owned()
}

#[test]
fn a_slow_upload_gives_its_place_to_a_request_that_waits() {
    let limited = Limited::start(ConcurrencyLimit::new(1).wait(LONG, 1));
    let slow = limited.begin_upload();
    assert_eq!(status(&limited.get("/limited")), "200");
    assert_eq!(status(&slow), "408");
}

#[test]
fn a_slow_upload_gives_its_place_to_clients_that_come_again() {
    let limited = Limited::start(ConcurrencyLimit::new(1));
    let mut slow = limited.begin_upload();
    // No other client has asked for the place, so this one may pause for longer than it could
    // otherwise.
    std::thread::sleep(Duration::from_millis(1500));
    slow.write_all(&[b'x'; 500_000]).unwrap();
    assert_eq!(status(&slow), "200");
    let slow = limited.begin_upload();
    let deadline = Instant::now() + Duration::from_secs(60);
    while status(&limited.get("/limited")) != "200" {
        assert!(Instant::now() < deadline, "the place is never given back");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(status(&slow), "408");
}

#[test]
fn a_client_that_does_not_read_gives_its_place_to_a_request_that_waits() {
    let limited = Limited::start(ConcurrencyLimit::new(1).wait(LONG, 1));
    let mut slow = limited.get("/limited/endless");
    assert_eq!(status(&slow), "200");
    assert_eq!(status(&limited.get("/limited")), "200");
    // The slow client's response ends early, without the last chunk.
    let end = io::copy(&mut slow, &mut io::sink());
    assert!(end.is_ok_and(|bytes| bytes > 0));
}
