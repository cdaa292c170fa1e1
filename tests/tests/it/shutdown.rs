//! Shutdown: exchanges that have begun are finished, and then the server ends.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, Server, ServerConfig, Service};
use filoplume_tests::{Child, Client, Ended, Example, Gate, TestServer, ask, eventually, site};

fn gated(gate: &Gate) -> impl Fn(Request) -> Response + Send + Sync + 'static {
    let gate = gate.clone();
    move |request: Request| {
        if request.path() == "/gate" {
            gate.pass();
        }
        site(request)
    }
}

/// Waits for the end of a server on a separate thread.
fn ends(server: &TestServer) -> thread::JoinHandle<Instant> {
    let server = server.server().clone();
    thread::spawn(move || {
        server.wait();
        Instant::now()
    })
}

#[test]
fn idle_connections_are_closed_and_the_server_ends() {
    let server = TestServer::start(site);
    let mut clients: Vec<Client> = (0..50).map(|_| server.client()).collect();
    clients.iter_mut().for_each(Client::is_alive);
    let silent = server.client();
    let started = Instant::now();
    server.server().shutdown_handle().shutdown();
    server.server().wait();
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    for client in clients.iter_mut() {
        client.is_closed();
    }
    drop(silent);
    assert!(Client::try_connect(server.address()).is_err(), "the server does not listen any more");
}

#[test]
fn exchanges_that_have_begun_are_finished() {
    let gate = Gate::new();
    let server = TestServer::start(gated(&gate));
    let mut blocked: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut blocked {
        ask(client, "/gate");
    }
    gate.holds(20);
    let mut long = server.client();
    ask(&mut long, "/large?n=30000000");
    let start = long.read_exactly(1000);
    let mut half = server.client();
    half.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello");
    let ended = ends(&server);
    server.server().shutdown_handle().shutdown();
    eventually("the server does not listen any more", || {
        Client::try_connect(server.address()).is_err()
    });
    assert!(!ended.is_finished(), "it waits for exchanges that have begun");
    half.send("world");
    let response = half.response();
    assert_eq!(response.text(), "helloworld");
    assert!(response.closes());
    let rest = long.read_to_end();
    assert!(start.len() + rest.len() > 30_000_000, "received {} bytes", start.len() + rest.len());
    gate.open();
    for client in &mut blocked {
        let response = client.response();
        assert_eq!(response.text(), "GET /gate");
        assert!(response.closes(), "{response:?}");
        client.is_closed();
    }
    ended.join().unwrap();
}

#[test]
fn incomplete_heads_delay_a_shutdown_only_briefly() {
    let gate = Gate::new();
    let server = TestServer::with(ServerConfig::default().event_loops(2), gated(&gate));
    let mut blocked = server.client();
    ask(&mut blocked, "/gate");
    gate.holds(1);
    let mut half: Vec<Client> = (0..50).map(|_| server.client()).collect();
    for client in &mut half {
        client.send("GET / HTTP/1.1\r\nHo");
    }
    let mut kept = server.client();
    kept.is_alive();
    kept.send("GET /half HTTP/1.1\r\nHo");
    half[0].is_silent_for(Duration::from_millis(50));
    let ended = ends(&server);
    let started = Instant::now();
    server.server().shutdown_handle().shutdown();
    // The peer keeps sending bytes, but they do not extend its time.
    let took = half[0].drip(&[b'o'; 1000], Duration::from_millis(20));
    assert!(took < Duration::from_secs(5), "{took:?}");
    for client in half.iter_mut().chain([&mut kept]) {
        assert_eq!(client.response().status, 408);
    }
    // These clients stay connected.
    assert!(!ended.is_finished(), "accepted requests are finished");
    gate.open();
    assert_eq!(blocked.response().text(), "GET /gate");
    let took = ended.join().unwrap() - started;
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn a_head_that_has_begun_is_answered_although_the_server_drains() {
    let gate = Gate::new();
    let server = TestServer::start(gated(&gate));
    let mut blocked = server.client();
    ask(&mut blocked, "/gate");
    gate.holds(1);
    let mut half = server.client();
    half.send("GET /half HTTP/1.1\r\nHo").is_silent_for(Duration::from_millis(50));
    server.server().shutdown_handle().shutdown();
    half.send("st: t\r\n\r\n");
    let response = half.response();
    assert_eq!((response.status, response.closes()), (200, true));
    half.is_closed();
    gate.open();
    server.server().wait();
}

/// A client that has connected would take a close for a failure of its first request.
#[test]
fn the_first_request_of_a_connection_is_awaited() {
    let server = TestServer::start(site);
    let mut early = server.client();
    let mut silent = server.client();
    eventually("both are accepted", || server.metrics().connections == 2);
    let started = Instant::now();
    let ended = ends(&server);
    server.server().shutdown_handle().shutdown();
    early.is_silent_for(Duration::from_millis(100));
    let response = early.get("/");
    assert_eq!((response.status, response.closes()), (200, true));
    early.is_closed();
    silent.is_closed();
    let took = ended.join().unwrap() - started;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn the_deadline_ends_stuck_connections() {
    let gate = Gate::new();
    let server = TestServer::start(gated(&gate));
    let mut blocked = server.client();
    ask(&mut blocked, "/gate");
    gate.holds(1);
    let mut unread = server.client();
    ask(&mut unread, "/large?n=50000000");
    let mut half = server.client();
    half.send("GET / HTTP/1.1\r\nHo");
    let ended = ends(&server);
    let started = Instant::now();
    server.server().shutdown_handle().shutdown_within(Duration::from_millis(300));
    let took = ended.join().unwrap() - started;
    assert!(took >= Duration::from_millis(250) && took < Duration::from_secs(3), "{took:?}");
    assert!(matches!(half.read_until_end(), Ended::Closed(_) | Ended::Reset(_)));
    assert!(unread.try_response().is_err(), "it was cut off");
    gate.open();
    blocked.read_until_end();
}

#[test]
fn the_configured_drain_timeout_holds() {
    let gate = Gate::new();
    let config = ServerConfig::default().drain_timeout(Duration::from_millis(300));
    let server = TestServer::with(config, gated(&gate));
    let mut blocked = server.client();
    ask(&mut blocked, "/gate");
    gate.holds(1);
    let started = Instant::now();
    server.server().shutdown_handle().shutdown();
    server.server().wait();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(250) && took < Duration::from_secs(3), "{took:?}");
    gate.open();
}

#[test]
fn a_second_shutdown_can_only_shorten_the_time() {
    let gate = Gate::new();
    let server = TestServer::start(gated(&gate));
    let mut blocked = server.client();
    ask(&mut blocked, "/gate");
    gate.holds(1);
    let handle = server.server().shutdown_handle();
    let started = Instant::now();
    handle.shutdown_within(Duration::from_secs(15));
    handle.shutdown_within(Duration::from_millis(200));
    handle.shutdown_within(Duration::from_secs(15));
    server.server().wait();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    gate.open();
}

#[test]
fn a_server_that_never_served_can_be_shut_down() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    server.shutdown_handle().shutdown();
    server.wait();
    assert!(server.spawn(site).is_err(), "it is over");
    assert!(Client::try_connect(address).is_err());
}

#[test]
fn the_threads_of_a_server_end_with_it() {
    let server = TestServer::start(|request: Request| {
        thread::sleep(Duration::from_millis(5));
        site(request)
    });
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        ask(client, "/");
    }
    for client in &mut clients {
        client.response();
    }
    let metrics = || server.server().metrics().expect("the numbers outlive the server");
    assert!(metrics().pool.threads >= 2);
    server.server().shutdown_handle().shutdown();
    server.server().wait();
    eventually("every thread ends", || metrics().pool.threads == 0);
    assert_eq!(metrics().connections, 0);
}

/// Clients that send requests to a child until it ends. No response may be truncated.
struct Load {
    threads: Vec<thread::JoinHandle<()>>,
    answered: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    fn start(child: &Child) -> Self {
        let address = child.address();
        let answered = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let targets =
            ["/plaintext", "/sleep?ms=5", "/large?n=3000000", "/stream?n=500000", "/sleep?ms=50"];
        let threads = (0..20)
            .map(|index| {
                let (answered, is_over) = (Arc::clone(&answered), Arc::clone(&is_over));
                let target = targets[index % targets.len()];
                thread::spawn(move || {
                    while !is_over.load(Ordering::SeqCst) {
                        let Ok(mut client) = Client::try_connect(address) else { return };
                        loop {
                            if client
                                .try_send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"))
                                .is_err()
                            {
                                break;
                            }
                            match client.try_response() {
                                Ok(response) => {
                                    assert_eq!(response.status, 200);
                                    answered.fetch_add(1, Ordering::SeqCst);
                                    if response.closes() || is_over.load(Ordering::SeqCst) {
                                        break;
                                    }
                                }
                                // The idle connection was closed while the request was on its way.
                                Err(ended) if !ended.is_truncated() => break,
                                Err(ended) => panic!("the answer to {target} was cut off: {ended}"),
                            }
                        }
                    }
                })
            })
            .collect();
        Self { threads, answered, is_over }
    }

    fn has_run(&self) {
        eventually("the load runs", || self.answered.load(Ordering::SeqCst) >= 300);
    }

    fn ends(self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("no answer is cut off");
        }
    }
}

#[test]
fn sigterm_under_load_ends_cleanly_and_truncates_no_response() {
    for signal in ["TERM", "INT"] {
        let mut child = Example("bench_engine").start();
        let load = Load::start(&child);
        load.has_run();
        child.signal(signal);
        let status = child.ends_within(Duration::from_secs(5));
        assert!(status.success(), "{status:?}");
        load.ends();
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    use std::os::unix::process::ExitStatusExt;
    let mut child = Example("bench_engine").start();
    let mut client = child.client();
    ask(&mut client, "/sleep?ms=8000");
    client.is_silent_for(Duration::from_millis(100));
    child.signal("TERM");
    eventually("the server does not listen any more", || {
        Client::try_connect(child.address()).is_err()
    });
    assert!(child.exit_status().is_none(), "it waits for the handler");
    child.signal("TERM");
    let status = child.ends_within(Duration::from_secs(2));
    assert_eq!(status.signal(), Some(15), "{status:?}");
}

#[test]
fn connections_in_the_backlog_are_answered() {
    let server = TestServer::start(site);
    let mut clients: Vec<Client> = (0..200).map(|_| server.client()).collect();
    for client in &mut clients {
        ask(client, "/waited");
    }
    server.server().shutdown_handle().shutdown();
    for (index, client) in clients.iter_mut().enumerate() {
        let response = client.try_response();
        let response = response.unwrap_or_else(|ended| panic!("client {index}: {ended}"));
        assert_eq!(response.text(), "GET /waited");
        client.is_closed();
    }
    server.server().wait();
}

#[test]
fn pipelined_requests_that_were_received_are_answered() {
    let gate = Gate::new();
    let server = TestServer::start(gated(&gate));
    let mut client = server.client();
    let count = 10;
    // One segment each: when the first request is answered, most of the others are still in the
    // socket.
    for n in 0..count {
        ask(&mut client, if n == 0 { "/gate" } else { "/behind" });
    }
    gate.holds(1);
    server.server().shutdown_handle().shutdown();
    eventually("the server does not listen any more", || {
        Client::try_connect(server.address()).is_err()
    });
    gate.open();
    for n in 0..count {
        let response =
            client.try_response().unwrap_or_else(|ended| panic!("{n} of {count}: {ended}"));
        assert_eq!(response.status, 200);
        assert_eq!(response.closes(), n == count - 1, "{n} of {count}: {response:?}");
    }
    client.is_closed();
    server.server().wait();
}

/// Echoes the content of a request while it arrives, once the gate is open.
struct Mirror {
    gate: Gate,
}

impl Service for Mirror {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().streamed()
    }

    fn call(&self, request: Request) -> Response {
        self.gate.pass();
        let mut response = Response::default();
        response.set_stream(request.into_body());
        response
    }
}

#[test]
fn a_streamed_echo_is_completed() {
    let gate = Gate::new();
    let server = TestServer::with(ServerConfig::default(), Mirror { gate: gate.clone() });
    let mut client = server.client();
    let content: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    client.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", content.len()));
    gate.holds(1);
    let mut sender = client.tcp().try_clone().unwrap();
    let sends = thread::spawn({
        let content = content.clone();
        move || std::io::Write::write_all(&mut sender, &content).unwrap()
    });
    server.server().shutdown_handle().shutdown();
    eventually("the server does not listen any more", || {
        Client::try_connect(server.address()).is_err()
    });
    // The content is in the socket when the response begins. It belongs to the handler and is not
    // the next request.
    gate.open();
    let response = client.response();
    assert_eq!(
        (response.status, response.body == content),
        (200, true),
        "{} bytes",
        response.body.len()
    );
    sends.join().unwrap();
    server.server().wait();
}

#[test]
fn a_lease_ends_with_its_server_and_its_requests_are_answered() {
    let gate = Gate::new();
    let server = TestServer::with(ServerConfig::default().event_loops(1), {
        let gated = gated(&gate);
        move |request: Request| {
            thread::sleep(Duration::from_millis(5));
            gated(request)
        }
    });
    let mut client = server.client();
    eventually("a handler blocks while its connection is on a lease", || {
        assert_eq!(client.get("/blocks").status, 200);
        ask(&mut client, "/gate");
        gate.holds(1);
        if server.metrics().leased == 1 {
            return true;
        }
        gate.open();
        assert_eq!(client.response().text(), "GET /gate");
        gate.close();
        false
    });
    ask(&mut client, "/behind");
    server.server().shutdown_handle().shutdown_within(Duration::from_secs(60));
    let ended = ends(&server);
    gate.open();
    let first = client.response();
    assert_eq!((first.text(), first.closes()), ("GET /gate", false));
    let last = client.response();
    assert_eq!((last.text(), last.closes()), ("GET /behind", true));
    client.is_closed();
    ended.join().unwrap();
    assert_eq!(server.metrics().leased, 0);
}
