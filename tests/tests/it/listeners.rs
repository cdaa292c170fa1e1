//! Binding and listening.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv6Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use filoplume_runtime::{Peer, Request, Response, Server, ServerConfig};
use filoplume_tests::{Client, TestServer, site};

#[expect(clippy::needless_pass_by_value, reason = "a service is given its request")]
fn peer(request: Request) -> Response {
    match request.peer() {
        Peer::Tcp(address) => Response::from(address.ip().to_string()),
        Peer::Unix => Response::from("unix"),
        _ => Response::new(500),
    }
}

fn ends(server: &Server) {
    server.shutdown_handle().shutdown();
    server.wait();
}

/// A folder for a socket, which is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("filoplume-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn unix(path: &Path) -> Server {
    let server = Server::builder().bind_unix(path).unwrap().build().unwrap();
    server.spawn(peer).unwrap();
    server
}

fn has_ipv6() -> bool {
    let is_there = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !is_there {
        skip::because("no IPv6 here");
    }
    is_there
}

#[test]
fn ipv4_and_ipv6_are_served() {
    let mut addresses = vec![("127.0.0.1:0", "127.0.0.1")];
    if has_ipv6() {
        addresses.push(("[::1]:0", "::1"));
    }
    for (address, from) in addresses {
        let server = Server::bind(address).unwrap();
        server.spawn(peer).unwrap();
        assert_eq!(Client::connect(server.local_addr().unwrap()).get("/").text(), from);
        ends(&server);
    }
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let folder = Folder::new("unix");
    let server = unix(&folder.socket());
    assert!(server.local_addr().is_none());
    let mut client = Client::connect_unix(&folder.socket());
    assert_eq!(client.get("/").text(), "unix");
    let long = "l".repeat(500_000);
    assert_eq!(client.post("/", &long).text(), "unix");
    client.send("GET /a HTTP/1.1\r\nHost: t\r\n\r\n".repeat(100));
    for _ in 0..100 {
        assert_eq!(client.response().text(), "unix");
    }
    ends(&server);
    drop(server);
    assert!(!folder.socket().exists(), "the file is removed");
}

#[test]
fn blocking_handlers_and_streams_work_over_a_unix_socket() {
    let folder = Folder::new("unix-blocking");
    let server = Server::builder().bind_unix(folder.socket()).unwrap().build().unwrap();
    server
        .spawn(|request: Request| {
            thread::sleep(std::time::Duration::from_millis(5));
            site(request)
        })
        .unwrap();
    let mut client = Client::connect_unix(&folder.socket());
    for _ in 0..5 {
        assert_eq!(client.get("/large?n=1000000").body.len(), 1_000_000);
        assert_eq!(client.post("/echo", vec![b'e'; 2_000_000]).body.len(), 2_000_000);
    }
    ends(&server);
}

#[test]
fn a_file_left_by_a_dead_server_is_replaced() {
    let folder = Folder::new("stale");
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(folder.socket().exists(), "the file is left");
    let server = unix(&folder.socket());
    assert_eq!(Client::connect_unix(&folder.socket()).get("/").text(), "unix");
    ends(&server);
}

#[test]
fn a_socket_in_use_and_other_files_are_not_replaced() {
    let folder = Folder::new("in-use");
    let first = unix(&folder.socket());
    let error = Server::builder().bind_unix(folder.socket()).expect_err("it is in use");
    assert!(error.is_address_in_use(), "{error}");
    assert!(error.to_string().contains("socket"), "it names the path: {error}");
    assert_eq!(Client::connect_unix(&folder.socket()).get("/").text(), "unix");
    ends(&first);
    let file = folder.0.join("file");
    fs::write(&file, "precious").unwrap();
    assert!(Server::builder().bind_unix(&file).is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn one_server_listens_on_several_addresses() {
    let folder = Folder::new("several");
    let mut builder = Server::builder().bind("127.0.0.1:0").unwrap().bind("127.0.0.1:0").unwrap();
    if has_ipv6() {
        builder = builder.bind("[::1]:0").unwrap();
    }
    let passed_on = TcpListener::bind("127.0.0.1:0").unwrap();
    let server =
        builder.listener(passed_on).unwrap().bind_unix(folder.socket()).unwrap().build().unwrap();
    server.spawn(peer).unwrap();
    assert!(server.local_addrs().len() >= 3);
    assert_eq!(server.local_addr(), server.local_addrs().first().copied());
    for _ in 0..20 {
        for &address in server.local_addrs() {
            let mut client = Client::connect(address);
            assert_eq!(client.get("/").text(), address.ip().to_string());
        }
        assert_eq!(Client::connect_unix(&folder.socket()).get("/").text(), "unix");
    }
    ends(&server);
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let first = TestServer::start(site);
    let address = first.address();
    let error = Server::bind(address).expect_err("it is in use");
    assert!(error.is_address_in_use());
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    first.client().is_alive();
    // An address that is bound but not yet served is in use too.
    let bound = TestServer::bound(ServerConfig::default());
    assert!(Server::bind(bound.address()).expect_err("it is in use").is_address_in_use());
    let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = foreign.local_addr().unwrap();
    assert!(Server::bind(address).expect_err("it is in use").is_address_in_use());
}

#[test]
fn an_address_that_cannot_be_bound_is_an_error_that_names_it() {
    for address in ["192.0.2.1:80", "no-such-host.invalid:80", "127.0.0.1", "127.0.0.1:99999"] {
        let error = Server::bind(address).expect_err("it cannot be bound");
        let name = address.trim_end_matches(":80");
        assert!(error.to_string().contains(name), "{address}: {error}");
        assert!(!error.is_address_in_use());
    }
    assert!(Server::builder().build().is_err(), "no address at all");
}

#[test]
fn a_port_can_be_bound_again_right_after_its_server() {
    let mut address = None;
    for _ in 0..5 {
        let server = Server::bind(address.unwrap_or("127.0.0.1:0".parse().unwrap())).unwrap();
        server.spawn(site).unwrap();
        address = server.local_addr();
        let mut client = Client::connect(address.unwrap());
        client.is_alive();
        ends(&server);
        client.is_closed();
    }
}

#[test]
fn peers_wait_until_the_server_serves() {
    let server = TestServer::bound(ServerConfig::default());
    let mut clients: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("GET /early HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    server.server().spawn(site).unwrap();
    for client in &mut clients {
        assert_eq!(client.response().text(), "GET /early");
    }
}

#[test]
fn connections_are_spread_over_the_loops() {
    const LOOPS: usize = 4;
    let config = ServerConfig::default().event_loops(LOOPS);
    let server = TestServer::with(config, |_: Request| format!("{:?}", thread::current().id()));
    // On a busy machine a loop may be handed over, and then the counts are meaningless.
    let (hand_overs, loads) = (0..20)
        .map(|_| {
            let before = server.metrics().hand_overs;
            let mut clients: Vec<Client> = (0..80).map(|_| server.client()).collect();
            let mut loads: HashMap<String, usize> = HashMap::new();
            for client in &mut clients {
                *loads.entry(client.get("/").text().to_owned()).or_default() += 1;
            }
            let hand_overs = server.metrics().hand_overs - before;
            drop(clients);
            server.is_left_by_all();
            (hand_overs, loads)
        })
        .find(|(hand_overs, _)| *hand_overs == 0)
        .expect("a round without a hand-over");
    assert_eq!(hand_overs, 0);
    assert_eq!(loads.len(), LOOPS, "{loads:?}");
    let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
    assert!(*most <= least + 10, "{loads:?}");
}
