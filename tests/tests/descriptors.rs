//! Descriptors in addition to those of connections: for files that are sent, contents that handlers
//! read, and contents that wait in files. The reserve of the program stays free.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use filoplume_runtime::{Plan, Refusal, Request, Response, Server, ServerConfig, Service};
use filoplume_tests::{
    Client, Gate, TestServer, eventually, holds_for, may_open, pattern, site, with_descriptors,
};
use tempfile::TempDir;

/// The limit of the servers here. They reserve 32 descriptors, and lend 8 of these.
const LIMIT: usize = 256;
const USABLE: u64 = 224;
const LENT: u64 = 8;

/// An eighth of the usable ones.
const OF_ONE_CLIENT: usize = 28;

/// Longer than the buffers of a connection on this machine.
const LONG: u64 = 256 << 20;

/// Longer than the minimum idle time of a connection that is closed for others.
const IDLE: Duration = Duration::from_millis(200);

/// `/file` answers with a long file, `/late` too, when the gate lets it pass, and `/reader` with a
/// reader. `/read` and `/spooled` answer with the length of the content, when the gate lets them
/// pass, and `/upgrade` with another protocol.
struct Site {
    folder: TempDir,
    gate: Gate,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The file is sparse: it has no blocks on the disk.
        File::create_new(folder.path().join("file")).unwrap().set_len(LONG).unwrap();
        Self { folder, gate: Gate::new() }
    }
}

impl Service for Site {
    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/read" => Plan::new().streamed(),
            "/spooled" => Plan::new().spooled(),
            _ => Plan::new(),
        }
    }

    fn call(&self, mut request: Request) -> Response {
        let mut response = Response::default();
        match request.path() {
            path @ ("/file" | "/late") => {
                if path == "/late" {
                    self.gate.pass();
                }
                let file = File::open(self.folder.path().join("file")).unwrap();
                response.set_file(file, 0, LONG);
            }
            "/reader" => {
                response.set_reader(io::repeat(b'x'), LONG);
            }
            "/read" | "/spooled" => {
                self.gate.pass();
                let length = io::copy(request.body_mut(), &mut io::sink()).unwrap();
                response.set_text(length.to_string());
            }
            "/upgrade" => {
                response = Response::upgrade(|mut socket| {
                    let _second = socket.try_clone().unwrap();
                    let _ = socket.read(&mut [0]);
                });
                response.set_header("upgrade", "other").unwrap();
            }
            _ => return site(request),
        }
        response
    }
}

/// Starts a server that finds a low limit. No other test may have open files meanwhile. Returns
/// `None` if the limit cannot be set.
fn server(config: ServerConfig) -> Option<(TestServer, MutexGuard<'static, ()>)> {
    server_of(config, Site::new())
}

fn server_of(
    config: ServerConfig,
    service: impl Service,
) -> Option<(TestServer, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !may_open(2000) {
        return None;
    }
    let long = Duration::from_secs(60);
    let config = config.raise_descriptor_limit(false).keep_alive_timeout(long).head_timeout(long);
    let config = config.write_timeout(long).content_timeout(long).queue_timeout(long);
    let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
    with_descriptors(LIMIT, || server.spawn(service).unwrap())?;
    Some((TestServer::of(server), alone))
}

/// Returns the number of descriptors of connections, with those that they hold in addition.
fn used(server: &TestServer) -> u64 {
    let metrics = server.metrics();
    metrics.connections + metrics.held_descriptors as u64
}

fn held(server: &TestServer) -> usize {
    server.metrics().held_descriptors
}

fn refused(server: &TestServer) -> u64 {
    let metrics = server.metrics();
    let found = metrics.refusals().find(|(refusal, _)| *refusal == Refusal::Descriptors);
    found.map_or(0, |found| found.1)
}

fn ask(client: &mut Client, target: &str) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
}

#[track_caller]
fn answered(client: &mut Client) -> u16 {
    client.read_head_only().unwrap().status
}

#[test]
fn files_that_nobody_reads_leave_the_reserve_to_the_program() {
    for (target, loops) in [("/file", 1), ("/file", 2), ("/reader", 2)] {
        let config = ServerConfig::default().event_loops(loops);
        let Some((server, _alone)) = server(config) else { return };
        assert_eq!(server.metrics().connections_max, USABLE);
        let mut old: Vec<Client> = (0..40).map(|_| server.client()).collect();
        old.iter_mut().for_each(Client::is_alive);
        old[39].is_silent_for(IDLE);
        // Without a bound these clients would have 400 descriptors. The first 90 get one for their
        // file.
        let clients: Vec<Client> = (0..200)
            .map(|number| {
                let mut client = server.client();
                ask(&mut client, target);
                if number < 90 {
                    assert_eq!(answered(&mut client), 200);
                }
                client
            })
            .collect();
        // Idle connections are closed to make room, and then the next clients wait.
        eventually("no more are accepted", || used(&server) >= USABLE - 1);
        eventually("idle connections are closed", || server.metrics().connections_shed >= 40);
        // For a moment, a loop also counts a descriptor that it only tries to take.
        let max = USABLE + LENT + loops as u64;
        holds_for(IDLE, "the reserve is kept", || used(&server) <= max);
        let metrics = server.metrics();
        assert!(metrics.held_descriptors >= 90, "{metrics:?}");
        assert_eq!(metrics.accept_errors, 0);
        drop(clients);
        server.client().is_alive();
        eventually("all are given back", || held(&server) == 0);
    }
}

#[test]
fn idle_connections_are_closed_for_files() {
    for loops in [1, 2] {
        // If another program keeps a thread from running, the watchdog gives its loop away, and a
        // thread waits for a loop for 100 ms at most. That does not happen each time.
        assert!((0..3).any(|_| all_files_are_sent(loops)), "idle connections were not closed");
    }
}

/// Returns whether 90 of 200 clients get a file, for which most of the others have to be closed.
fn all_files_are_sent(loops: usize) -> bool {
    let config = ServerConfig::default().event_loops(loops);
    let Some((server, _alone)) = server(config) else { return true };
    let mut clients: Vec<Client> = (0..200).map(|_| server.client()).collect();
    clients.iter_mut().for_each(Client::is_alive);
    clients[0].is_silent_for(IDLE);
    // All ask at once, to see that a loop need not return to its poller to close the idle ones.
    let (_, asking) = clients.split_at_mut(110);
    for client in &mut *asking {
        // The first response is not sent yet when an idle connection is closed for the second.
        client.send("GET /unread HTTP/1.1\r\nHost: t\r\n\r\nGET /file HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    for client in asking {
        assert!(client.response().text() == "unread", "the first response is lost");
        if answered(client) != 200 {
            return false;
        }
    }
    let metrics = server.metrics();
    assert_eq!((metrics.held_descriptors, refused(&server)), (90, 0));
    eventually("idle connections are closed", || used(&server) <= USABLE);
    true
}

#[test]
fn threads_wait_until_idle_connections_are_closed_for_their_files() {
    for loops in [1, 2] {
        let site = Site::new();
        let gate = site.gate.clone();
        let config = ServerConfig::default().event_loops(loops);
        let Some((server, _alone)) = server_of(config, site) else { return };
        // Four times as many requests as descriptors are lent, all of them on threads.
        let mut late: Vec<Client> = (0..4 * LENT).map(|_| server.client()).collect();
        late.iter_mut().for_each(|client| ask(client, "/late"));
        gate.holds(late.len());
        let mut idle: Vec<Client> = (0..USABLE - 4 * LENT).map(|_| server.client()).collect();
        idle.iter_mut().for_each(Client::is_alive);
        idle[0].is_silent_for(IDLE);
        gate.open();
        for client in &mut late {
            assert_eq!(answered(client), 200);
        }
        assert_eq!((held(&server), refused(&server)), (late.len(), 0));
        eventually("idle connections are closed", || used(&server) <= USABLE);
    }
}

#[test]
fn a_file_without_a_descriptor_is_a_503_and_its_connection_stays() {
    let site = Site::new();
    let gate = site.gate.clone();
    let config = ServerConfig::default().event_loops(1);
    let Some((server, _alone)) = server_of(config, site) else { return };
    // Twice as many connections as descriptors are lent. They have requests, so they are not closed
    // for others.
    let mut late: Vec<Client> = (0..2 * LENT).map(|_| server.client()).collect();
    late.iter_mut().for_each(|client| ask(client, "/late"));
    gate.holds(late.len());
    let files: Vec<Client> = (0..USABLE / 2 - LENT)
        .map(|_| {
            let mut client = server.client();
            ask(&mut client, "/file");
            assert_eq!(answered(&mut client), 200);
            client
        })
        .collect();
    assert_eq!(used(&server), USABLE);
    gate.open();
    let answers: Vec<_> = late.iter_mut().map(|client| client.read_head_only().unwrap()).collect();
    let (sent, refused_ones): (Vec<_>, Vec<_>) =
        answers.iter().zip(&mut late).partition(|(answer, _)| answer.status == 200);
    assert!((1..=LENT).contains(&(sent.len() as u64)), "{} are lent", sent.len());
    for (answer, _) in &refused_ones {
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert!(!answer.closes());
    }
    assert_eq!(refused(&server), refused_ones.len() as u64);
    // A response without content holds no descriptor.
    let Some((_, client)) = refused_ones.into_iter().next() else { panic!("none is refused") };
    client.send("HEAD /file HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.head_response().status, 200);
    drop(files);
}

#[test]
fn one_client_holds_an_eighth_of_the_descriptors() {
    // With this limit, clients on this machine are counted too.
    let config = ServerConfig::default().connections_per_client_max(1000);
    let Some((server, _alone)) = server(config) else { return };
    let mut clients: Vec<Client> = (0..OF_ONE_CLIENT).map(|_| server.client()).collect();
    for client in &mut clients {
        ask(client, "/file");
        assert_eq!(answered(client), 200);
    }
    let mut more = server.client();
    assert_eq!(more.get("/file").status, 503);
    assert_eq!((more.get("/").status, held(&server)), (200, OF_ONE_CLIENT));
    clients.pop();
    eventually("one is given back", || held(&server) < OF_ONE_CLIENT);
    ask(&mut more, "/file");
    assert_eq!(answered(&mut more), 200);
}

#[test]
fn contents_that_wait_in_files_are_in_the_share_of_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let config = ServerConfig::default().connections_per_client_max(1000);
    let Some((server, _alone)) = server(config.spool_folder(folder.path())) else { return };
    let content = pattern(1 << 20);
    let head = format!("PUT /spooled HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", 2 << 20);
    let uploads: Vec<Client> = (0..OF_ONE_CLIENT)
        .map(|_| {
            let mut client = server.client();
            client.send(&head).send(&content);
            client
        })
        .collect();
    eventually("each has a file", || held(&server) == OF_ONE_CLIENT);
    let mut more = server.client();
    more.send(&head).send(&content);
    assert_eq!(more.response().status, 503);
    assert_eq!(refused(&server), 1);
    assert_eq!(server.client().get("/file").status, 503);
    drop(uploads);
    eventually("all are given back", || held(&server) == 0);
}

#[test]
fn contents_that_wait_for_a_thread_hold_no_second_descriptor() {
    let site = Site::new();
    let gate = site.gate.clone();
    // Little is collected before the handler is called.
    let config = ServerConfig::default().threads_max(4).buffered_content_bytes_max(1000);
    let Some((server, _alone)) = server_of(config, site) else { return };
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("POST /read HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\n\r\n");
        client.send(pattern(200_000));
    }
    eventually("most of them wait", || server.metrics().waiting >= 16);
    let running = 20 - server.metrics().waiting;
    gate.holds(running);
    assert_eq!(held(&server), running);
    gate.open();
    // All at once: while others wait for threads, a client that is silent loses its connection.
    for client in &mut clients {
        client.send(pattern(100_000));
    }
    for client in &mut clients {
        assert_eq!(client.response().text(), "300000");
    }
    eventually("all are given back", || held(&server) == 0);
}

#[test]
fn a_content_without_a_descriptor_is_a_503_before_its_handler_runs() {
    let site = Site::new();
    site.gate.open();
    let config = ServerConfig::default().connections_per_client_max(1000);
    let Some((server, _alone)) = server_of(config, site) else { return };
    let mut files: Vec<Client> = (0..OF_ONE_CLIENT).map(|_| server.client()).collect();
    for client in &mut files {
        ask(client, "/file");
        assert_eq!(answered(client), 200);
    }
    let request = "POST /read HTTP/1.1\r\nHost: t\r\nContent-Length: 300000\r\n\r\n";
    let mut client = server.client();
    client.send(request).send(pattern(300_000));
    let response = client.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    assert_eq!(refused(&server), 1);
    drop(files);
    eventually("all are given back", || held(&server) == 0);
    let mut client = server.client();
    client.send(request).send(pattern(300_000));
    assert_eq!(client.response().text(), "300000");
}

#[test]
fn upgraded_connections_and_their_second_handles_are_counted() {
    let Some((server, _alone)) = server(ServerConfig::default()) else { return };
    let mut client = server.client();
    client
        .send("GET /upgrade HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n");
    assert_eq!(answered(&mut client), 101);
    eventually("both are counted", || (held(&server), used(&server)) == (2, 2));
    drop(client);
    eventually("both are given back", || used(&server) == 0);
}
