//! What the connections that stay with the old process get when a new one takes over: TLS,
//! WebSockets and event streams. And what new connections get meanwhile.
//!
//! Both processes of these tests are servers in this one, so that a test can hold a handler of the
//! old one.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use filoplume::prelude::*;
use filoplume::sse::{Hub, LastEventId};
use filoplume::websocket::{Socket, WebSocketUpgrade};
use filoplume::{Listen, RunningApp, Tls};
use filoplume_tests::tls::Authority;
use filoplume_tests::{Client, DEADLINE, Ended, Gate, eventually, free_address, one_at_a_time};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, StreamOwned, SupportedProtocolVersion};
use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

/// The number of restarts in a row.
const RESTARTS: usize = 8;

/// What all processes of a test have in common.
struct Site {
    plain: SocketAddr,
    secure: SocketAddr,
    tls: Tls,
    authority: Authority,
    control: PathBuf,
    gate: Gate,
    hub: Hub,
    _folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        Self {
            plain: free_address(),
            secure: free_address(),
            tls: authority.issue("localhost", &["localhost"]).tls(),
            authority,
            control: folder.path().join("control.sock"),
            gate: Gate::new(),
            hub: Hub::new(),
            _folder: folder,
        }
    }

    /// Starts a server, which takes over from the one before.
    fn start(&self, name: &'static str) -> RunningApp {
        let gate = self.gate.clone();
        let listen = Listen::new()
            .hot_restart(&self.control)
            .http(self.plain)
            .https(self.secure, self.tls.clone());
        App::new()
            .state(self.hub.clone())
            .get("/", move || name)
            .get("/held", move || {
                gate.pass();
                name
            })
            .get("/feed", |State(hub): State<Hub>, last: LastEventId| hub.subscribe(&last))
            .websocket("/ws", |upgrade: WebSocketUpgrade| {
                upgrade.on_message(|socket: &Socket, text: String| socket.send(text))
            })
            .start_on(listen)
            .unwrap()
    }

    fn config(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        Arc::new(self.authority.client(version))
    }

    fn secure(&self, config: &Arc<ClientConfig>) -> Client {
        Client::try_connect_tls(self.secure, "localhost", config).unwrap()
    }

    /// A connection over plain TCP, and one over TLS.
    fn clients(&self) -> [Client; 2] {
        [Client::connect(self.plain), self.secure(&self.config(&TLS13))]
    }
}

#[test]
fn an_idle_tls_connection_ends_in_order_and_a_new_one_is_served() {
    let _alone = one_at_a_time();
    for version in [&TLS12, &TLS13] {
        let site = Site::new();
        let config = site.config(version);
        let old = site.start("old");
        let mut idle = site.secure(&config);
        assert_eq!(idle.get("/").text(), "old");
        let mut unused = site.secure(&config);
        let _new = site.start("new");
        // The connection ends with `close_notify`. An end without it would be a reset here.
        idle.is_closed();
        unused.is_closed();
        old.wait();
        assert_eq!(site.secure(&config).get("/").text(), "new");
    }
}

#[test]
fn a_request_over_tls_that_has_begun_is_answered_by_the_old_process() {
    let _alone = one_at_a_time();
    let site = Site::new();
    let config = site.config(&TLS13);
    let old = site.start("old");
    let mut held = site.secure(&config);
    held.send("GET /held HTTP/1.1\r\nHost: t\r\n\r\n");
    site.gate.holds(1);
    let mut in_head = site.secure(&config);
    assert_eq!(in_head.get("/").text(), "old");
    let mut idle = site.secure(&config);
    assert_eq!(idle.get("/").text(), "old");
    let memory_used = || old.server().metrics().unwrap().memory_used;
    let before = memory_used();
    in_head.send("GET / HTTP/1.1\r\nHo");
    eventually("the head has begun", || memory_used() > before);
    let _new = site.start("new");
    // The old process drains, and the new one accepts.
    idle.is_closed();
    assert_eq!(site.secure(&config).get("/").text(), "new");
    in_head.send("st: t\r\n\r\n");
    let response = in_head.response();
    assert_eq!((response.text(), response.closes()), ("old", true));
    in_head.is_closed();
    site.gate.open();
    let response = held.response();
    assert_eq!((response.text(), response.closes()), ("old", true));
    held.is_closed();
    old.wait();
}

/// Has a message echoed, restarts the server, and then reads to the end of the socket.
fn is_told_to_go(stream: impl Read + Write, restart: impl FnOnce()) {
    let (mut socket, response) = tungstenite::client("ws://localhost/ws", stream).unwrap();
    assert_eq!(response.status(), 101);
    socket.send(Message::text("hello")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("hello"));
    restart();
    let Message::Close(Some(frame)) = socket.read().unwrap() else { panic!("a close frame") };
    assert_eq!(frame.code, CloseCode::Away);
    // The answer to the close frame is sent while the end is read.
    let end = socket.read().unwrap_err();
    assert!(matches!(end, tungstenite::Error::ConnectionClosed), "{end:?}");
}

#[test]
fn a_websocket_is_closed_with_1001() {
    let _alone = one_at_a_time();
    let site = Site::new();
    let mut app = site.start("old");
    for name in ["second", "third"] {
        let stream = TcpStream::connect(if name == "second" { site.plain } else { site.secure });
        let mut stream = stream.unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let restart = || {
            let next = site.start(name);
            std::mem::replace(&mut app, next).wait();
        };
        if name == "second" {
            is_told_to_go(&mut stream, restart);
        } else {
            let to = ServerName::try_from("localhost").unwrap();
            let session = ClientConnection::new(site.config(&TLS13), to).unwrap();
            is_told_to_go(StreamOwned::new(session, stream), restart);
        }
        assert_eq!(Client::connect(site.plain).get("/").text(), name);
    }
}

#[test]
fn an_event_stream_is_completed_and_the_next_one_comes_from_the_new_process() {
    let _alone = one_at_a_time();
    let site = Site::new();
    let old = site.start("old");
    let mut clients = site.clients();
    for client in &mut clients {
        client.send("GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.read_head_only().unwrap().status, 200);
    }
    eventually("both listen", || site.hub.clients() == 2);
    assert_eq!(site.hub.send("before").sent, 2);
    let _new = site.start("new");
    for client in &mut clients {
        assert_eq!(client.read_exactly(24), b"e\r\ndata: before\n\n\r\n0\r\n\r\n");
    }
    // Then the plain connection waits for its next request, and is handed over to the new process.
    let [plain, secure] = &mut clients;
    secure.is_closed();
    old.wait();
    assert_eq!(plain.get("/").text(), "new");
    assert_eq!(site.hub.send("between").sent, 0);
    let mut clients = site.clients();
    for client in &mut clients {
        client.send("GET /feed HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.read_head_only().unwrap().status, 200);
    }
    eventually("both listen again", || site.hub.clients() == 2);
    assert_eq!(site.hub.send("after").sent, 2);
    for client in &mut clients {
        assert_eq!(client.read_exactly(18), b"d\r\ndata: after\n\n\r\n");
    }
}

/// A client that has connected to the old process is served by it, whether its handshake is
/// complete or has not begun.
#[test]
fn the_first_request_over_tls_is_awaited() {
    let _alone = one_at_a_time();
    for version in [&TLS12, &TLS13] {
        let site = Site::new();
        let config = site.config(version);
        let old = site.start("old");
        let mut shaken = site.secure(&config);
        let connected = Client::connect(site.secure);
        let connections = || old.server().metrics().unwrap().connections;
        eventually("both are accepted", || connections() == 2);
        let _new = site.start("new");
        eventually("the old process drains", || site.secure(&config).get("/").text() == "new");
        assert_eq!(shaken.get("/").text(), "old");
        let mut connected = connected.try_secure("localhost", &config).unwrap();
        assert_eq!(connected.get("/").text(), "old");
        old.wait();
    }
}

/// Connects, asks and closes, again and again until it is stopped.
struct Visitors {
    is_over: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    thread: thread::JoinHandle<()>,
}

impl Visitors {
    fn start(mut visit: impl FnMut() + Send + 'static) -> Self {
        let (is_over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (Arc::clone(&is_over), Arc::clone(&served));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                visit();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { is_over, served, thread }
    }

    #[track_caller]
    fn served_more(&self) {
        let wanted = self.served.load(Ordering::Relaxed) + 3;
        eventually("visitors are served", || {
            assert!(!self.thread.is_finished(), "a visitor was not served");
            self.served.load(Ordering::Relaxed) >= wanted
        });
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

#[test]
fn a_new_connection_is_served_at_any_moment() {
    let _alone = one_at_a_time();
    let site = Site::new();
    let mut app = site.start("a process");
    let (plain, secure, config) = (site.plain, site.secure, site.config(&TLS13));
    let is_served = |result: Result<filoplume_tests::Response, Ended>| match result {
        Ok(response) => assert_eq!((response.status, response.text()), (200, "a process")),
        Err(ended) => panic!("a new connection is not served: {ended}"),
    };
    let ask = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    let visitors = [
        Visitors::start(move || {
            is_served(Client::connect(plain).send(ask).try_response());
        }),
        Visitors::start(move || {
            let mut client = Client::try_connect_tls(secure, "localhost", &config).unwrap();
            is_served(client.send(ask).try_response());
        }),
    ];
    for _ in 0..RESTARTS {
        visitors.iter().for_each(Visitors::served_more);
        let next = site.start("a process");
        std::mem::replace(&mut app, next).wait();
    }
    visitors.iter().for_each(Visitors::served_more);
    visitors.into_iter().for_each(Visitors::stop);
}
