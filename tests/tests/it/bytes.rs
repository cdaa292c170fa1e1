//! What a server counts of its connections: bytes, streams, WebSockets and TLS sessions.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use filoplume::prelude::*;
use filoplume::websocket::{BlockingSocket, Message, Socket, WebSocketUpgrade};
use filoplume::{Listen, RunningApp};
use filoplume_runtime::{Body, Metrics, pushed, tcp};
use filoplume_tests::tls::Authority;
use filoplume_tests::{Client, DEADLINE, TestServer, eventually};
use rustls::version::TLS13;

/// Longer than what the engine writes at once, and than what a socket takes.
const LARGE: usize = 9_000_001;

fn metrics(app: &RunningApp) -> Metrics {
    app.server().metrics().unwrap()
}

/// Sends the request, closes the sending direction, and reads until the server closes. Returns the
/// number of bytes received.
fn exchange(mut stream: TcpStream, request: &[u8]) -> usize {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let received = std::thread::spawn(move || {
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        received.len()
    });
    stream.write_all(request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    received.join().unwrap()
}

fn post(target: &str, length: usize) -> Vec<u8> {
    let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), &vec![b'x'; length]].concat()
}

fn app(file: File) -> App {
    App::new()
        .get("/", || "hi")
        .route("/pool", get(|| "from the pool").on_pool())
        .post("/collect", |content: Vec<u8>| content.len().to_string())
        .post("/read", |mut body: Body| {
            let mut content = Vec::new();
            let _ = body.read_to_end(&mut content);
            content.len().to_string()
        })
        .get("/large", || vec![b'x'; LARGE])
        .get("/file", move || file.try_clone().unwrap())
        .get("/pushed", || {
            let (sender, body) = pushed::channel();
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let _ = sender.send(vec![b'x'; 999]);
                }
            });
            let mut response = Response::default();
            response.set_pushed(body);
            response
        })
        .get("/upgrade", || {
            Response::upgrade(|mut stream| {
                let mut received = Vec::new();
                let _ = stream.read_to_end(&mut received);
                let _ = stream.write_all(&received.repeat(3));
            })
        })
}

#[test]
fn each_byte_of_a_connection_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![b'x'; LARGE]).unwrap();
    let app = app(File::open(path).unwrap()).start("127.0.0.1:0").unwrap();
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let upgrade = "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    for (what, request) in [
        ("requests one after the other", get("/").repeat(1000)),
        ("on the pool", get("/pool").repeat(10)),
        ("a collected content", post("/collect", 700_000)),
        ("a content that the handler reads", post("/read", 3_000_000)),
        ("a large response", get("/large")),
        ("a file", get("/file")),
        ("a pushed response", get("/pushed")),
        ("another protocol", [upgrade.as_bytes(), &[b'x'; 100_000]].concat()),
        ("a malformed request", b"GET / HTTP/1.1\r\nno field\r\n\r\n".to_vec()),
        ("half a request", b"GET / HT".to_vec()),
    ] {
        let before = metrics(&app);
        let received = exchange(TcpStream::connect(app.local_addr()).unwrap(), &request);
        let expected = (request.len() as u64, received as u64);
        eventually(&format!("{what}: {expected:?}"), || {
            let after = metrics(&app);
            let read = after.bytes_read - before.bytes_read;
            (read, after.bytes_written - before.bytes_written) == expected
        });
    }
    app.shutdown();
}

#[test]
fn bytes_of_a_raw_protocol_are_counted() {
    struct Echo;

    impl tcp::Protocol for Echo {
        fn data(&mut self, bytes: &[u8], io: &mut tcp::Io<'_>) -> usize {
            io.send(bytes);
            bytes.len()
        }
    }

    let server = TestServer::raw(ServerConfig::default(), |_| Echo);
    let received = exchange(server.stream(), &vec![b'x'; 2_000_000]);
    assert_eq!(received, 2_000_000);
    eventually("both directions are counted", || {
        let metrics = server.metrics();
        (metrics.bytes_read, metrics.bytes_written) == (2_000_000, 2_000_000)
    });
}

#[test]
fn the_totals_remain_when_the_server_has_stopped() {
    let app = App::new().get("/", || "hi").start("127.0.0.1:0").unwrap();
    let received = exchange(
        TcpStream::connect(app.local_addr()).unwrap(),
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    app.server().shutdown_handle().shutdown();
    app.wait();
    assert_eq!(metrics(&app).bytes_written, received as u64);
}

#[test]
fn open_streams_are_counted_until_their_clients_leave() {
    let senders = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&senders);
    let app = App::new()
        .get("/pushed", move || {
            let (sender, body) = pushed::channel();
            kept.lock().unwrap().push(sender);
            let mut response = Response::default();
            response.set_pushed(body);
            response
        })
        .get("/upgrade", || Response::upgrade(|mut stream| drop(stream.read(&mut [0]))))
        .start("127.0.0.1:0")
        .unwrap();
    let open = |requests: &str| -> Vec<Client> {
        let clients: Vec<_> = (0..3).map(|_| Client::connect(app.local_addr())).collect();
        clients
            .into_iter()
            .map(|mut client| {
                client.send(requests);
                client.read_exactly(1);
                client
            })
            .collect()
    };
    let counts = || (metrics(&app).pushed_streams, metrics(&app).held_streams);
    let mut pushed = open("GET /pushed HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("three are pushed", || counts() == (3, 0));
    let held =
        open("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    eventually("three hold a thread", || counts() == (3, 3));
    pushed.pop();
    drop(held);
    eventually("two are left", || counts() == (2, 0));
    senders.lock().unwrap().clear();
    eventually("the others have ended", || counts() == (0, 0));
    app.shutdown();
}

/// Waits until the text of the metrics has all of these lines.
fn shows(app: &RunningApp, expected: &[&str]) {
    eventually(&format!("{expected:?}"), || {
        let text = Client::connect(app.local_addr()).get("/metrics");
        expected.iter().all(|line| text.text().lines().any(|found| found == *line))
    });
}

#[test]
fn websockets_and_their_messages_are_counted() {
    fn answer_twice(socket: &mut BlockingSocket) -> std::io::Result<()> {
        while let Some(Message::Text(text)) = socket.receive()? {
            socket.send(text.as_str())?;
            socket.send(text.as_str())?;
        }
        Ok(())
    }

    let app = App::new()
        .websocket("/echo", |upgrade: WebSocketUpgrade| {
            upgrade.on_message(|socket: &Socket, message: Message| socket.send(message))
        })
        .websocket("/thread", |upgrade: WebSocketUpgrade| upgrade.on_thread(answer_twice))
        .metrics("/metrics")
        .start("127.0.0.1:0")
        .unwrap();
    let connect = |path: &str| {
        let url = format!("ws://{}{path}", app.local_addr());
        tungstenite::connect(url).unwrap().0
    };
    let (mut echo, mut thread) = (connect("/echo"), connect("/thread"));
    for message in ["hi".into(), b"hi".to_vec().into(), "hi".into(), b"".to_vec().into(), "".into()]
    {
        echo.send(message).unwrap();
        echo.read().unwrap();
    }
    thread.send("hi".into()).unwrap();
    thread.read().unwrap();
    thread.read().unwrap();
    shows(
        &app,
        &[
            "filoplume_websockets 2",
            "filoplume_websockets_opened_total 2",
            "filoplume_websocket_messages_total{direction=\"received\"} 6",
            "filoplume_websocket_messages_total{direction=\"sent\"} 7",
        ],
    );
    drop((echo, thread));
    shows(&app, &["filoplume_websockets 0", "filoplume_websockets_opened_total 2"]);
    app.shutdown();
}

#[test]
fn resumed_tls_sessions_are_told_apart_and_bytes_are_those_of_the_content() {
    let authority = Authority::new();
    let tls = authority.issue("localhost", &["localhost"]).tls();
    let listen = Listen::new().https("127.0.0.1:0", tls).http("127.0.0.1:0");
    let app =
        App::new().get("/", || vec![b'x'; 100_000]).metrics("/metrics").start_on(listen).unwrap();
    let [secure, plain] = app.server().local_addrs() else { panic!("two TCP addresses") };
    let config = Arc::new(authority.client(&TLS13));
    for _ in 0..3 {
        let mut client = Client::try_connect_tls(*secure, "localhost", &config).unwrap();
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(Client::connect(*plain).get("/").status, 200);
    let counted = metrics(&app);
    assert_eq!((counted.handshakes, counted.handshakes_resumed), (3, 2));
    // A loop counts the bytes of a turn at its end, which the client does not see.
    eventually("all responses are counted", || metrics(&app).bytes_written >= 400_000);
    assert!(metrics(&app).bytes_written < 440_000, "{:?}", metrics(&app));
    app.shutdown();
}
