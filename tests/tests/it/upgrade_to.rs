//! Connections after a `101` that stay on the event loop.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use filoplume_runtime::tcp::{Closed, Http, Io, Protocol, http};
use filoplume_runtime::{Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, TestServer, eventually, site};

const UPGRADE: &str =
    "GET /talk HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: talk\r\n\r\n";

/// How long a test waits for the end of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a greeting, then echoes. `~` makes it wait, `!` panic, and `/` switch back to HTTP.
struct Talk {
    ends: Sender<Closed>,
    site: Http,
}

impl Protocol for Talk {
    fn open(&mut self, io: &mut Io<'_>) {
        io.send(b"hello\n");
    }

    fn data(&mut self, bytes: &[u8], io: &mut Io<'_>) -> usize {
        match bytes.first() {
            Some(b'~') => thread::sleep(Duration::from_millis(2)),
            Some(b'!') => panic!("as it was asked to"),
            Some(b'/') => {
                io.continue_as(self.site.clone());
                return 1;
            }
            _ => {}
        }
        io.send(bytes);
        bytes.len()
    }

    fn close(&mut self, reason: Closed) {
        let _ = self.ends.send(reason);
    }
}

/// Returns a site that upgrades on request, and the reasons for which upgraded connections ended.
fn talking() -> (impl Service, Receiver<Closed>) {
    let (ends, ended) = mpsc::channel();
    let again = http(site);
    let service = move |request: Request| {
        if request.wants_upgrade() != Some("talk") {
            return site(request);
        }
        let mut response = Response::upgrade_to(Talk { ends: ends.clone(), site: again.clone() });
        response.add_header("upgrade", "talk").unwrap();
        response
    };
    (service, ended)
}

/// Returns a client whose connection is upgraded, after the greeting.
fn upgraded(server: &TestServer) -> Client {
    let mut client = server.client();
    client.send(UPGRADE);
    is_greeted(&mut client);
    client
}

#[track_caller]
fn is_greeted(client: &mut Client) {
    let response = client.response();
    assert_eq!((response.status, response.header("upgrade")), (101, Some("talk")));
    assert_eq!(client.read_exactly(6), b"hello\n");
}

#[track_caller]
fn echoes(client: &mut Client, bytes: impl AsRef<[u8]>) {
    client.send(&bytes);
    assert_eq!(client.read_exactly(bytes.as_ref().len()), bytes.as_ref());
}

#[track_caller]
fn ends_as(ended: &Receiver<Closed>, reason: Closed) {
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(reason));
}

#[test]
fn after_a_101_the_connection_belongs_to_the_protocol() {
    let (service, ended) = talking();
    let server = TestServer::start(service);
    let mut client = upgraded(&server);
    for message in ["good day", "GET / HTTP/1.1\r\n\r\n", "\0\u{1}\u{2}"] {
        echoes(&mut client, message);
    }
    client.finish();
    client.is_closed();
    ends_as(&ended, Closed::ByPeer);
    assert_eq!((server.metrics().upgraded, server.metrics().requests), (1, 1));
    server.is_left_by_all();
}

#[test]
fn a_program_that_pulls_its_requests_can_upgrade_them() {
    let server = TestServer::bound(ServerConfig::default());
    let (service, ended) = talking();
    let incoming = server.server().incoming();
    let pulls = thread::spawn(move || {
        for mut request in incoming {
            let response = service.call(request.take());
            request.respond(response).unwrap();
        }
    });
    let mut client = upgraded(&server);
    echoes(&mut client, "good day");
    client.finish();
    client.is_closed();
    ends_as(&ended, Closed::ByPeer);
    server.client().is_alive();
    server.server().shutdown_handle().shutdown();
    pulls.join().unwrap();
}

#[test]
fn bytes_after_the_request_belong_to_the_protocol() {
    let (service, _ended) = talking();
    let server = TestServer::start(service);
    for behind in [1, 10, 5000, 60_000] {
        let mut client = server.client();
        client.send([UPGRADE.as_bytes(), &vec![b'b'; behind]].concat());
        is_greeted(&mut client);
        assert_eq!(client.read_exactly(behind), vec![b'b'; behind]);
        echoes(&mut client, "more");
    }
}

#[test]
fn a_request_with_a_content_may_be_upgraded_too() {
    let (service, _ended) = talking();
    let server = TestServer::start(service);
    let mut client = server.client();
    let head = UPGRADE.replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\n");
    client.send(format!("{head}12345behind"));
    is_greeted(&mut client);
    assert_eq!(client.read_exactly(6), b"behind");
}

#[test]
fn silent_connections_need_no_thread() {
    let (service, _ended) = talking();
    let config = ServerConfig::default().event_loops(1).threads_max(1);
    let server = TestServer::with(config, service);
    let mut clients: Vec<Client> = (0..200).map(|_| upgraded(&server)).collect();
    for client in &mut clients {
        echoes(client, "still there");
    }
    server.client().is_alive();
    assert!(server.metrics().pool.threads <= 3, "{:?}", server.metrics().pool);
}

#[test]
fn messages_that_block_are_learned_and_delay_no_other() {
    let (service, _ended) = talking();
    let server = TestServer::with(ServerConfig::default().event_loops(1), service);
    let mut plain = server.client();
    let mut clients: Vec<Client> = (0..16).map(|_| upgraded(&server)).collect();
    eventually("the messages run on the pool", || {
        for client in &mut clients {
            client.send("~ a while");
        }
        plain.is_alive();
        clients.iter_mut().for_each(|client| assert_eq!(client.read_exactly(9), b"~ a while"));
        server.metrics().routes_learned >= 1
    });
    assert_eq!(server.metrics().overloaded, 0);
}

#[test]
fn a_connection_may_switch_back_to_http_and_be_upgraded_again() {
    let (service, ended) = talking();
    let server = TestServer::start(service);
    let mut client = upgraded(&server);
    for _ in 0..2 {
        echoes(&mut client, "between");
    }
    client.send("/GET /again HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.response().text(), "GET /again");
    ends_as(&ended, Closed::Succeeded);
    client.is_alive();
}

#[test]
fn a_panic_ends_only_its_connection() {
    let (service, ended) = talking();
    let server = TestServer::start(service);
    let mut other = upgraded(&server);
    let mut client = upgraded(&server);
    client.send("!");
    client.is_closed();
    ends_as(&ended, Closed::Panicked);
    echoes(&mut other, "unimpressed");
    assert_eq!(server.metrics().panics, 1);
}

#[test]
fn shutdown_tells_idle_protocols_and_closes_their_connections() {
    let (service, ended) = talking();
    let server = TestServer::start(service);
    let mut client = upgraded(&server);
    server.server().shutdown_handle().shutdown();
    client.is_closed();
    ends_as(&ended, Closed::Shutdown);
}

#[test]
fn a_connection_with_a_proxy_header_may_be_upgraded() {
    let (service, _ended) = talking();
    let server = TestServer::behind_proxy(ServerConfig::default(), service);
    let mut client = Client::connect(server.address());
    client.send(format!("PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n{UPGRADE}"));
    is_greeted(&mut client);
    echoes(&mut client, "hello, proxy");
}
