//! Clients share the threads of the pool: one that floods a route delays itself, and not the other
//! clients of the same route. Clients are counted here, and differ by their loopback addresses.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, ErrorKind, Read};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Gate, TestServer, ask, eventually, site};

/// Routes on the pool. `/gate` and `/brief` are one route, and so are `/health` and
/// `/health/gate`, which are vital. `/gate/a` and `/gate/b` are routes of their own. `/body` begins
/// a response and gets stuck later.
struct Routes {
    gate: Gate,
    is_stuck: Arc<AtomicBool>,
    /// The targets of the requests that were handled.
    handled: Arc<Mutex<Vec<String>>>,
}

/// How long `/brief` takes.
const BRIEF: Duration = Duration::from_millis(20);

impl Routes {
    fn new(gate: &Gate) -> Self {
        Self { gate: gate.clone(), is_stuck: Arc::default(), handled: Arc::default() }
    }
}

impl Service for Routes {
    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/gate" | "/brief" => Plan::new().on_pool().route(1),
            "/other" => Plan::new().on_pool().route(2),
            "/body" => Plan::new().on_pool().route(3),
            "/health" | "/health/gate" => Plan::new().on_pool().vital().route(4),
            "/gate/a" => Plan::new().on_pool().route(5),
            "/gate/b" => Plan::new().on_pool().route(6),
            _ => Plan::new(),
        }
    }

    fn call(&self, request: Request) -> Response {
        self.handled.lock().unwrap().push(request.target().to_string());
        match request.path() {
            "/gate" | "/gate/a" | "/gate/b" | "/health/gate" => self.gate.pass(),
            "/brief" => thread::sleep(BRIEF),
            "/body" => {
                let mut response = Response::new(200);
                let (gate, is_stuck) = (self.gate.clone(), Arc::clone(&self.is_stuck));
                response.set_stream(Endless { gate, is_stuck });
                return response;
            }
            _ => {}
        }
        site(request)
    }
}

/// A body without an end. When it is stuck, it waits at the gate and then ends.
struct Endless {
    gate: Gate,
    is_stuck: Arc<AtomicBool>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_stuck.load(Ordering::SeqCst) {
            self.gate.pass();
            return Ok(0);
        }
        buffer.fill(b'x');
        Ok(buffer.len())
    }
}

const GREEDY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const GOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Returns a configuration that also counts clients on this machine.
fn counted(threads: usize) -> ServerConfig {
    ServerConfig::default().connections_per_client_max(1000).threads_max(threads)
}

fn clients(server: &TestServer, from: Ipv4Addr, count: usize) -> Vec<Client> {
    (0..count).map(|_| Client::connect_from(from, server.address())).collect()
}

/// Sends a request of the greedy client on each of `count` connections.
fn flood(server: &TestServer, count: usize, target: &str) -> Vec<Client> {
    let mut clients = clients(server, GREEDY, count);
    clients.iter_mut().for_each(|client| ask(client, target));
    clients
}

#[test]
fn a_client_that_hangs_in_a_route_leaves_threads_to_other_clients_of_the_route() {
    let gate = Gate::new();
    let server = TestServer::with(counted(18), Routes::new(&gate));
    let mut greedy = flood(&server, 60, "/gate");
    // Twelve of eighteen. If clients were not counted, the route would have sixteen.
    gate.holds(12);
    eventually("the others wait", || server.metrics().waiting == 60 - 12);
    let mut good = clients(&server, GOOD, 1);
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(good[0].get("/brief").status, 200);
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    gate.open();
    let statuses: Vec<u16> = greedy.iter_mut().map(|client| client.response().status).collect();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
    assert!(statuses.contains(&200));
    eventually("nothing waits", || server.metrics().waiting == 0);
}

#[test]
fn a_large_ipv6_network_that_hangs_in_all_routes_leaves_threads_to_others() {
    let gate = Gate::new();
    let server = TestServer::behind_proxy(counted(18), Routes::new(&gate));
    let named = |source: &str| {
        let mut client = server.client();
        let family = if source.contains(':') { "TCP6" } else { "TCP4" };
        let destination = if source.contains(':') { "2001:db8:1::1" } else { "198.51.100.2" };
        client.send(format!("PROXY {family} {source} {destination} 56324 443\r\n"));
        client
    };
    // Each request comes from another client of the network.
    let mut stuck: Vec<Client> = (0..60)
        .map(|subnet: usize| {
            let mut client = named(&format!("2001:db8:0:{subnet:x}::1"));
            ask(&mut client, ["/gate", "/gate/a", "/gate/b"][subnet % 3]);
            client
        })
        .collect();
    // The network has sixteen. Each route alone might have as many, and all of them together
    // eighteen.
    gate.holds(16);
    eventually("the others wait", || server.metrics().waiting == 60 - 16);
    for source in ["192.0.2.1", "2001:db8:1::1"] {
        assert_eq!(named(source).get("/other").status, 200, "{source}");
    }
    gate.open();
    for client in &mut stuck {
        assert_eq!(client.response().status, 200);
    }
    eventually("nothing waits", || server.metrics().waiting == 0);
}

#[test]
fn a_request_comes_before_the_backlog_of_another_client() {
    let gate = Gate::new();
    let routes = Routes::new(&gate);
    let handled = Arc::clone(&routes.handled);
    let server = TestServer::with(counted(1).queue_timeout(Duration::from_secs(600)), routes);
    let mut greedy = flood(&server, 1, "/gate");
    gate.holds(1);
    greedy.extend(flood(&server, 60, "/gate?greedy"));
    eventually("they wait", || server.metrics().waiting == 60);
    let mut good = clients(&server, GOOD, 2);
    good.iter_mut().for_each(|client| ask(client, "/gate?good"));
    eventually("it waits", || server.metrics().waiting == 62);
    gate.open();
    for client in good.iter_mut().chain(&mut greedy) {
        assert_eq!(client.response().status, 200);
    }
    let handled = handled.lock().unwrap();
    let good = handled.iter().enumerate().filter(|(_, target)| target.ends_with("good"));
    assert_eq!(good.map(|(place, _)| place).collect::<Vec<_>>(), [2, 4], "{handled:?}");
}

#[test]
fn the_requests_of_the_greedy_client_are_refused_and_not_those_of_others() {
    // Fifty requests per second, so a hundred may wait.
    let config = counted(1).queue_timeout(Duration::from_secs(2));
    let server = TestServer::with(config, Routes::new(&Gate::new()));
    let is_over = AtomicBool::new(false);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for mut greedy in clients(&server, GREEDY, 160) {
            let (is_over, refused) = (&is_over, &refused);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    if greedy.get("/brief").status == 503 {
                        refused.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(BRIEF);
                    }
                }
            });
        }
        // Nothing is refused before the rate of the route is known.
        eventually("the queue is full", || refused.load(Ordering::SeqCst) >= 500);
        let mut good = clients(&server, GOOD, 1).remove(0);
        let statuses: Vec<u16> = (0..20).map(|_| good.get("/brief").status).collect();
        let waiting = server.metrics().waiting;
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(statuses, [200; 20]);
        assert!(waiting > 20, "the queue was full all the time, but {waiting} are left");
    });
}

#[test]
fn a_full_queue_has_room_for_a_request_of_another_client() {
    let gate = Gate::new();
    let config = counted(1).queue_capacity(20).queue_timeout(Duration::from_secs(600));
    let server = TestServer::with(config, Routes::new(&gate));
    let mut greedy = flood(&server, 21, "/gate");
    eventually("the queue is full", || server.metrics().waiting == 20);
    let mut good = clients(&server, GOOD, 3);
    good.iter_mut().for_each(|client| ask(client, "/brief"));
    eventually("three of the others are refused", || server.metrics().overloaded == 3);
    assert_eq!(server.metrics().waiting, 20);
    gate.open();
    for client in &mut good {
        assert_eq!(client.response().status, 200);
    }
    let statuses = greedy.iter_mut().map(|client| client.response().status);
    assert_eq!(statuses.filter(|status| *status == 503).count(), 3);
    greedy.iter_mut().for_each(Client::is_alive);
}

#[test]
fn a_client_that_hangs_in_a_vital_route_leaves_half_of_the_vital_threads() {
    let gate = Gate::new();
    let server = TestServer::with(counted(1), Routes::new(&gate));
    let _greedy = flood(&server, 30, "/health/gate");
    gate.holds(4 + 1);
    let mut good = clients(&server, GOOD, 4);
    for client in &mut good {
        assert_eq!(client.get("/health").status, 200);
    }
    gate.open();
}

/// A server with a route that gets stuck, and clients whose responses have begun there and need a
/// thread to continue.
struct Stuck {
    server: TestServer,
    gate: Gate,
    clients: Vec<Client>,
}

impl Stuck {
    /// Sixteen threads are stuck, and all other clients wait.
    const THREADS: usize = 16;
    const WAITING: usize = 24;

    fn new() -> Self {
        let gate = Gate::new();
        let routes = Routes::new(&gate);
        let is_stuck = Arc::clone(&routes.is_stuck);
        let config = ServerConfig::default()
            .threads_max(18)
            // A response that has begun may wait longer than this.
            .queue_timeout(Duration::from_millis(20))
            .drain_timeout(Duration::from_millis(300));
        let server = TestServer::with(config, routes);
        let mut clients: Vec<Client> =
            (0..Self::THREADS + Self::WAITING).map(|_| server.client()).collect();
        for client in &mut clients {
            // The responses wait in the server until their clients read.
            socket2::SockRef::from(client.tcp()).set_recv_buffer_size(128 * 1024).unwrap();
            client.send("GET /body HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
            assert_eq!(client.read_head_only().unwrap().status, 200);
        }
        is_stuck.store(true, Ordering::SeqCst);
        eventually("the others wait", || {
            for client in &mut clients {
                let _ = client.read_some(1 << 16);
            }
            server.metrics().waiting == Self::WAITING
        });
        gate.holds(Self::THREADS);
        Self { server, gate, clients }
    }
}

#[test]
fn responses_that_get_stuck_leave_threads_to_other_routes_and_are_completed() {
    let Stuck { server, gate, clients } = Stuck::new();
    for _ in 0..20 {
        assert_eq!(server.client().get("/other").status, 200);
    }
    // After 160 ms, loops take the responses from the queue to check whether their clients are
    // still there.
    thread::sleep(Duration::from_millis(400));
    assert_eq!((server.metrics().waiting, server.metrics().overloaded), (Stuck::WAITING, 0));
    gate.open();
    for mut client in clients {
        assert!(client.read_to_end().ends_with(b"0\r\n\r\n"), "the response is complete");
    }
    server.is_left_by_all();
    assert_eq!(server.metrics().waiting, 0);
}

#[test]
fn responses_whose_clients_have_left_do_not_wait_for_threads() {
    let Stuck { server, gate, clients } = Stuck::new();
    drop(clients);
    eventually("only the stuck ones are left", || {
        let metrics = server.metrics();
        (metrics.waiting, metrics.connections) == (0, Stuck::THREADS as u64)
    });
    gate.open();
    server.is_left_by_all();
}

#[test]
fn responses_that_wait_for_threads_do_not_delay_the_end_of_the_server() {
    let Stuck { server, gate, mut clients } = Stuck::new();
    server.server().shutdown_handle().shutdown();
    eventually("the connections that wait are closed", || {
        clients.retain_mut(|client| match client.read_some(1 << 16) {
            Ok(read) => read > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        });
        clients.len() == Stuck::THREADS
    });
    gate.open();
}
