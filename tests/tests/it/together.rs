//! Kinds of long-lived connections combined: sockets, event streams, hints, coded contents and
//! cancelled handlers over TLS, and each of them while the server stops.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use filoplume::prelude::*;
use filoplume::pushed::{self, SendError, Sender};
use filoplume::sse::{Hub, LastEventId};
use filoplume::websocket::{Room, Socket, WebSocketUpgrade};
use filoplume::{Cancel, EarlyHints, Listen, RunningApp};
use filoplume_runtime::{Phase, ServerConfig};
use filoplume_tests::tls::{self, Authority};
use filoplume_tests::{Client, DEADLINE, Response, eventually, reset};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

/// Longer than a test takes.
const LAME_DUCK: Duration = Duration::from_secs(60);

/// An app with a plain and a TLS address.
struct Both {
    app: RunningApp,
    authority: Authority,
}

/// How a client connects.
#[derive(Clone, Debug)]
enum Over {
    Plain,
    Tls(Arc<ClientConfig>),
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Both {
    fn start(app: App) -> Self {
        let authority = Authority::new();
        let tls = authority.issue("localhost", &["localhost"]).tls();
        let listen = Listen::new().https("127.0.0.1:0", tls).http("127.0.0.1:0");
        Self { app: app.start_on(listen).unwrap(), authority }
    }

    fn ways(&self) -> [Over; 3] {
        let tls = |version| Over::Tls(Arc::new(self.authority.client(version)));
        [Over::Plain, tls(&TLS12), tls(&TLS13)]
    }

    fn address(&self, over: &Over) -> SocketAddr {
        self.app.server().local_addrs()[usize::from(matches!(over, Over::Plain))]
    }

    fn client(&self, over: &Over) -> Client {
        let address = self.address(over);
        match over {
            Over::Plain => Client::connect(address),
            Over::Tls(config) => Client::try_connect_tls(address, "localhost", config).unwrap(),
        }
    }

    fn socket(&self, over: &Over, path: &str) -> WebSocket<Box<dyn Stream>> {
        let address = self.address(over);
        let (scheme, stream): (_, Box<dyn Stream>) = match over {
            Over::Plain => {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(DEADLINE)).unwrap();
                ("ws", Box::new(stream))
            }
            Over::Tls(config) => ("wss", Box::new(tls::connect(address, config))),
        };
        let url = format!("{scheme}://localhost:{}{path}", address.port());
        tungstenite::client(url, stream).unwrap().0
    }

    fn phase(&self) -> Phase {
        self.app.server().metrics().unwrap().phase
    }

    fn is_left_by_all(&self) {
        eventually("every connection is closed", || {
            self.app.server().metrics().unwrap().connections == 0
        });
    }
}

fn sockets(room: &Room) -> App {
    let room = room.clone();
    App::new()
        .get("/", || "plain")
        .websocket("/loop", move |upgrade: WebSocketUpgrade| {
            let room = room.clone();
            upgrade.on_open(move |socket: &Socket| socket.join(&room)).on_message(
                |socket: &Socket, message: filoplume::websocket::Message| socket.send(&message),
            )
        })
        .websocket("/thread", |upgrade: WebSocketUpgrade| {
            upgrade.on_thread(|socket| {
                while let Some(message) = socket.receive()? {
                    socket.send(&message)?;
                }
                Ok::<_, std::io::Error>(())
            })
        })
}

#[test]
fn sockets_and_rooms_work_over_tls() {
    let room = Room::new();
    let both = Both::start(sockets(&room));
    for over in both.ways() {
        for path in ["/loop", "/thread"] {
            let mut socket = both.socket(&over, path);
            for message in [
                Message::text("hello"),
                Message::text(""),
                Message::binary(vec![7; 300_000]),
                Message::text("\u{1f426}".repeat(20_000)),
            ] {
                socket.send(message.clone()).unwrap();
                assert_eq!(socket.read().unwrap(), message, "{over:?} {path}");
            }
            socket.send(Message::Ping(b"there?".as_slice().into())).unwrap();
            assert_eq!(socket.read().unwrap(), Message::Pong(b"there?".as_slice().into()));
            if path == "/loop" {
                // Messages of several records, one after the other, from another thread.
                let texts: Vec<String> = (0..10).map(|n| format!("{n:<20000}")).collect();
                for text in &texts {
                    assert_eq!(room.broadcast(text).sent, 1);
                }
                for text in &texts {
                    assert_eq!(socket.read().unwrap(), Message::text(text));
                }
            }
            socket.close(None).unwrap();
            assert!(socket.read().unwrap().is_close());
            // The connection ends in order: a missing close_notify would be an error.
            assert!(matches!(socket.read(), Err(tungstenite::Error::ConnectionClosed)));
        }
    }
    both.is_left_by_all();
}

fn feed(hub: &Hub) -> App {
    App::new()
        .state(hub.clone())
        .get("/", || "plain")
        .get("/feed", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last))
}

/// How a client leaves.
type End = fn(&mut Client);

#[test]
fn an_event_stream_over_tls_ends_with_its_client() {
    let hub = Hub::new();
    let both = Both::start(feed(&hub));
    let ends: [(&str, End); 3] = [
        ("close_notify and FIN", |client| _ = client.finish()),
        ("only FIN", |client| client.tcp().shutdown(Shutdown::Write).unwrap()),
        ("close_notify, then FIN", |client| {
            client.close_notify();
            client.tcp().shutdown(Shutdown::Write).unwrap();
        }),
    ];
    for over in both.ways().into_iter().skip(1) {
        for (name, end) in ends {
            let mut client = both.client(&over);
            client.send("GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
            assert_eq!(client.read_head_only().unwrap().status, 200);
            assert_eq!(hub.send("x".repeat(100_000)).sent, 1);
            client.read_exactly(100_000);
            end(&mut client);
            client.read_until_end();
            eventually(&format!("{over:?}: {name} ends the stream"), || {
                both.app.server().metrics().unwrap().connections == 0
            });
            assert_eq!(hub.send("nobody is left").sent, 0);
        }
    }
}

/// Over TLS 1.3 `close_notify` ends one direction only (RFC 8446, section 6.1).
#[test]
fn an_event_stream_goes_on_behind_a_close_notify_until_the_client_closes_its_socket() {
    let hub = Hub::new();
    let both = Both::start(feed(&hub));
    for over in both.ways().into_iter().skip(1) {
        let mut client = both.client(&over);
        client.send("GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.read_head_only().unwrap().status, 200);
        client.close_notify();
        for _ in 0..10 {
            assert_eq!(hub.send("x".repeat(50_000)).sent, 1, "{over:?}");
            client.read_exactly(50_000);
        }
        drop(client);
        both.is_left_by_all();
    }
}

/// A client that has gone has closed its socket as well. One that has only sent `close_notify`
/// waits for the response.
#[test]
fn a_handler_over_tls_is_told_that_its_client_has_gone_by_the_end_of_the_socket() {
    let (begun, begins) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let app = App::new()
        .get("/quick", {
            let begun = begun.clone();
            move |cancel: Cancel| {
                begun.send(()).unwrap();
                let has_gone = cancel.wait_timeout(Duration::from_millis(100));
                if has_gone { "gone" } else { "here" }
            }
        })
        .get("/slow", move |cancel: Cancel| {
            begun.send(()).unwrap();
            told.send(cancel.wait_timeout(DEADLINE)).unwrap();
        });
    let both = Both::start(app);
    for over in both.ways().into_iter().skip(1) {
        let mut client = both.client(&over);
        client.send("GET /quick HTTP/1.1\r\nHost: t\r\n\r\n");
        begins.recv_timeout(DEADLINE).unwrap();
        client.close_notify();
        assert_eq!(client.response().text(), "here", "{over:?}");

        let mut client = both.client(&over);
        client.send("GET /slow HTTP/1.1\r\nHost: t\r\n\r\n");
        begins.recv_timeout(DEADLINE).unwrap();
        client.close_notify();
        client.tcp().shutdown(Shutdown::Write).unwrap();
        assert!(tells.recv_timeout(DEADLINE).unwrap(), "{over:?}");
    }
}

#[test]
fn hints_arrive_over_tls_before_the_response() {
    let app = App::new().get("/", |hints: EarlyHints| {
        hints.send(&["</a.css>; rel=preload"]).unwrap();
        "page"
    });
    let both = Both::start(app);
    for over in both.ways() {
        let mut client = both.client(&over);
        for _ in 0..3 {
            client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
            let hints = client.read_head_only().unwrap();
            assert_eq!((hints.status, hints.header("link")), (103, Some("</a.css>; rel=preload")));
            assert_eq!(client.response().text(), "page");
        }
        // The next request may already have arrived.
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n".repeat(2));
        for _ in 0..2 {
            assert_eq!(client.read_head_only().unwrap().status, 103);
            assert_eq!(client.response().text(), "page");
        }
    }
}

#[test]
fn coded_contents_are_decoded_over_tls_while_they_arrive() {
    const LENGTH: usize = 5_000_000;
    let app = App::new()
        .post("/copy", |mut body: Body| {
            let mut content = Vec::new();
            body.read_to_end(&mut content)?;
            Ok::<_, Error>(content)
        })
        .with(middleware::Decompression::new().bytes_max(1 << 23));
    let both = Both::start(app);
    let content: Vec<u8> =
        (0..LENGTH).map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coder.write_all(&content).unwrap();
    let coded = coder.finish().unwrap();
    for over in both.ways() {
        let mut client = both.client(&over);
        for _ in 0..2 {
            client.send(format!(
                "POST /copy HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\nContent-Length: \
                 {}\r\n\r\n",
                coded.len()
            ));
            coded.chunks(100_000).for_each(|piece| _ = client.send(piece));
            let response = client.response();
            assert_eq!(response.status, 200, "{over:?}");
            assert!(response.body == content, "{over:?}: the content differs");
        }
        // A content that ends early is refused, and so is one without end.
        let bomb = {
            let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            coder.write_all(&vec![0; 1 << 24]).unwrap();
            coder.finish().unwrap()
        };
        for (sent, expected) in [(&coded[..1000], 400), (&bomb[..], 413)] {
            let mut client = both.client(&over);
            client.send(format!(
                "POST /copy HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip\r\nContent-Length: \
                 {}\r\n\r\n",
                sent.len()
            ));
            client.send(sent);
            let response = client.try_response();
            let response = response.unwrap_or_else(|ended| {
                panic!("{expected} over {over:?}: {ended}, {:?}", both.app.server().metrics())
            });
            assert_eq!(response.status, expected, "{over:?}");
        }
    }
}

/// The end of the handshake and the first request may arrive together, and the rest of the request
/// while the server computes the handshake. There are many clients at once, because this depends on
/// timing.
#[test]
fn a_request_right_behind_the_handshake_is_answered() {
    let app = App::new().post("/length", |content: String| content.len().to_string());
    let both = Both::start(app);
    let content = vec![b'x'; 16_000];
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for over in both.ways().into_iter().cycle().take(60) {
                    let mut client = both.client(&over);
                    client
                        .send("POST /length HTTP/1.1\r\nHost: t\r\nContent-Length: 16000\r\n\r\n");
                    client.send(&content);
                    assert_eq!(client.response().text(), "16000", "{over:?}");
                }
            });
        }
    });
}

/// An app that gives the senders of its bodies to the test.
fn pushing(is_endless: bool) -> (Both, mpsc::Receiver<Sender>) {
    let (senders, sent) = mpsc::channel();
    let app = App::new()
        .get("/", || "plain")
        .get("/stream", move || {
            let (sender, body) = pushed::channel();
            senders.send(sender).unwrap();
            if is_endless { body.endless() } else { body }
        })
        .config(ServerConfig::default().lame_duck(LAME_DUCK));
    (Both::start(app), sent)
}

/// Returns the chunk with this content.
fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[test]
fn a_stream_goes_on_in_the_lame_duck_time_and_ends_in_the_drain() {
    for is_endless in [false, true] {
        let (both, sent) = pushing(is_endless);
        let mut streams: Vec<(Client, Sender)> = Vec::new();
        let open = |over: &Over| {
            let mut client = both.client(over);
            client.send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n");
            let head: Response = client.read_head_only().unwrap();
            (head.closes(), client, sent.recv_timeout(DEADLINE).unwrap())
        };
        for over in both.ways() {
            let (_, client, sender) = open(&over);
            streams.push((client, sender));
        }
        both.app.shutdown_handle().shutdown();
        assert_eq!(both.phase(), Phase::LameDuck);
        for over in both.ways() {
            let (closes, client, sender) = open(&over);
            assert!(closes, "{over:?}: the last response of its connection");
            streams.push((client, sender));
        }
        for (client, sender) in &mut streams {
            sender.send("still").unwrap();
            assert_eq!(client.read_exactly(chunk("still").len()), chunk("still").as_bytes());
        }
        both.app.shutdown_handle().shutdown_within(DEADLINE);
        for (client, sender) in &mut streams {
            let end = if is_endless {
                eventually("the sender is told", || sender.check() == Err(SendError::Stopping));
                "0\r\n\r\n".to_owned()
            } else {
                eventually("the sender may ask", || sender.is_stopping());
                sender.send("the end").unwrap();
                sender.finish();
                chunk("the end") + "0\r\n\r\n"
            };
            assert_eq!(String::from_utf8(client.read_to_end()).unwrap(), end, "{is_endless}");
        }
        both.app.wait();
    }
}

#[test]
fn a_socket_is_told_to_go_when_the_drain_begins_and_not_before() {
    let room = Room::new();
    let app = sockets(&room).config(ServerConfig::default().lame_duck(LAME_DUCK));
    let both = Both::start(app);
    let open = |both: &Both| -> Vec<WebSocket<Box<dyn Stream>>> {
        both.ways().iter().map(|over| both.socket(over, "/loop")).collect()
    };
    let mut sockets = open(&both);
    both.app.shutdown_handle().shutdown();
    assert_eq!(both.phase(), Phase::LameDuck);
    // A load balancer may still send new connections.
    sockets.extend(open(&both));
    for socket in &mut sockets {
        socket.send(Message::text("still?")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("still?"));
    }
    eventually("all are in the room", || room.len() == 6);
    assert_eq!(room.broadcast("to all").sent, 6);
    both.app.shutdown_handle().shutdown_within(DEADLINE);
    for (number, socket) in sockets.iter_mut().enumerate() {
        assert_eq!(socket.read().unwrap(), Message::text("to all"));
        let Message::Close(Some(close)) = socket.read().unwrap() else { panic!("no close frame") };
        assert_eq!(close.code, CloseCode::Away, "{number}");
        // This confirms the close frame, and reads to the end.
        let end = socket.read().unwrap_err();
        assert!(matches!(end, tungstenite::Error::ConnectionClosed), "{number}: {end:?}");
    }
    both.app.wait();
    assert_eq!(both.phase(), Phase::Stopped);
}

#[test]
fn a_handler_is_told_that_its_client_over_tls_has_gone() {
    let (waits, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (waits, told) = (Arc::clone(&waits), Arc::clone(&told));
        move |cancel: Cancel| {
            waits.fetch_add(1, Ordering::SeqCst);
            told.fetch_add(usize::from(cancel.wait_timeout(DEADLINE)), Ordering::SeqCst);
            "nobody reads this"
        }
    };
    let both = Both::start(App::new().get("/", || "plain").get("/wait", handler));
    let ends: [fn(Client); 4] = [
        |client| drop(client),
        |client| reset(client),
        |mut client| {
            client.finish().read_until_end();
        },
        |client| client.tcp().shutdown(Shutdown::Write).unwrap(),
    ];
    let mut count = 0;
    for over in both.ways() {
        for end in ends {
            let mut client = both.client(&over);
            assert_eq!(client.get("/").text(), "plain");
            client.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
            count += 1;
            eventually("the handler waits", || waits.load(Ordering::SeqCst) == count);
            end(client);
            eventually("the handler was told", || told.load(Ordering::SeqCst) == count);
        }
    }
    both.is_left_by_all();
}

/// A WebSocket whose peer ends only the TLS session, without a close frame, is closed.
#[test]
fn a_socket_ends_with_its_session() {
    let room = Room::new();
    let both = Both::start(sockets(&room));
    for over in both.ways().into_iter().skip(1) {
        let Over::Tls(config) = &over else { unreachable!("the first is plain") };
        let stream = tls::connect(both.address(&over), config);
        let (mut socket, _) = tungstenite::client("wss://localhost/loop", stream).unwrap();
        socket.send(Message::text("hello")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("hello"));
        eventually("it is in the room", || room.len() == 1);
        let stream = socket.get_mut();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        eventually("it has left the room", || room.is_empty());
        let rest = stream.read_to_end(&mut Vec::new());
        assert!(rest.is_ok(), "the server ends its direction in order: {rest:?}");
    }
    both.is_left_by_all();
}
