//! Permits for scarce resources: requests start when a permit is free, and wait without a thread.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Permits, Plan, Refusal, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Gate, Load, TestServer, ask, eventually, site};

/// How long a handler uses the database.
const QUERY: Duration = Duration::from_millis(5);

/// A resource that counts its users.
#[derive(Debug, Default)]
struct Counted {
    users: AtomicUsize,
    most: AtomicUsize,
}

impl Counted {
    fn have<R>(&self, work: impl FnOnce() -> R) -> R {
        let users = self.users.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(users, Ordering::SeqCst);
        let result = work();
        self.users.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// `/query`, `/other`, `/learned`, `/inline`, `/stuck`, `/panic` and `/upload` use the permits.
/// `/free`, `/health`, `/busy` and `/busy/too` do not.
#[derive(Clone)]
struct Routes {
    permits: Permits,
    database: Arc<Counted>,
    gate: Gate,
}

impl Routes {
    fn new(count: usize) -> Self {
        Self {
            permits: Permits::new("database", count),
            database: Arc::default(),
            gate: Gate::new(),
        }
    }
}

impl Service for Routes {
    fn plan(&self, request: &mut Request) -> Plan {
        let uses = Plan::new().uses(&self.permits);
        match request.path() {
            "/query" => uses.on_pool().route(1),
            "/other" => uses.on_pool().route(2),
            "/learned" => uses.route(3),
            "/inline" => uses.on_loop().route(4),
            "/stuck" => uses.on_pool().route(5),
            "/panic" => uses.route(6),
            "/busy" => Plan::new().on_pool().route(7),
            "/busy/too" => Plan::new().on_pool().route(8),
            "/health" => Plan::new().on_pool().vital().route(9),
            "/upload" => uses.streamed().content_bytes_max(1 << 20).route(11),
            _ => Plan::new().route(10),
        }
    }

    fn call(&self, mut request: Request) -> Response {
        match request.path() {
            "/upload" => {
                let read = io::copy(request.body_mut(), &mut io::sink());
                return read
                    .map_or(Response::new(408), |length| Response::from(length.to_string()));
            }
            "/query" | "/other" | "/learned" => self.database.have(|| thread::sleep(QUERY)),
            "/inline" => self.database.have(|| ()),
            "/stuck" => self.database.have(|| self.gate.pass()),
            "/busy" | "/busy/too" => self.gate.pass(),
            "/health" => thread::sleep(QUERY),
            "/panic" => panic!("on purpose"),
            _ => {}
        }
        site(request)
    }
}

fn asked(server: &TestServer, count: usize, target: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| ask(client, target));
    clients
}

#[test]
fn a_crowd_shares_a_few_permits_and_needs_as_few_threads() {
    for target in ["/query", "/learned"] {
        let routes = Routes::new(4);
        let server = TestServer::with(ServerConfig::default().event_loops(2), routes.clone());
        let mut clients = asked(&server, 500, target);
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
        assert_eq!(routes.database.most(), 4, "{target}");
        eventually("all are given back", || routes.permits.available() == 4);
        let metrics = server.metrics();
        assert_eq!((metrics.overloaded, metrics.waiting), (0, 0));
        // Two leaders, four threads with a permit, and some that have just given theirs back.
        assert!(metrics.pool.threads_peak <= 16, "{target}: {}", metrics.pool.threads_peak);
    }
}

#[test]
fn a_client_whose_queries_hang_leaves_permits_to_others() {
    let routes = Routes::new(6);
    let config = ServerConfig::default().connections_per_client_max(1000);
    let server = TestServer::with(config, routes.clone());
    let from = |last| Client::connect_from(Ipv4Addr::new(127, 0, 0, last), server.address());
    let mut greedy: Vec<Client> = (0..20).map(|_| from(1)).collect();
    greedy.iter_mut().for_each(|client| ask(client, "/stuck"));
    routes.gate.holds(4);
    eventually("its other requests wait", || server.metrics().waiting == 16);
    assert_eq!(routes.permits.available(), 2);
    // Other clients get permits in the queue of the same route, on another route, and on the loop.
    let mut stuck = from(2);
    ask(&mut stuck, "/stuck");
    routes.gate.holds(5);
    for (target, last) in [("/query", 3), ("/inline", 4), ("/query", 5)] {
        assert_eq!(from(last).get(target).status, 200, "{target}");
    }
    let mut late = from(1);
    ask(&mut late, "/inline");
    eventually("a call on the loop waits for the same share", || server.metrics().waiting == 17);
    routes.gate.open();
    for client in greedy.iter_mut().chain([&mut stuck, &mut late]) {
        assert_eq!(client.response().status, 200);
    }
    eventually("all are given back", || routes.permits.available() == 6);
    eventually("nothing waits", || server.metrics().waiting == 0);
}

/// The connections send several requests at a time, and the next ones at once. The requests run on
/// the loop and on the pool.
#[test]
fn there_are_never_more_users_than_permits() {
    let routes = Routes::new(3);
    let server = TestServer::with(ServerConfig::default().event_loops(2), routes.clone());
    thread::scope(|scope| {
        for number in 0..16 {
            let server = &server;
            scope.spawn(move || {
                let targets = ["/query", "/learned", "/inline", "/other", "/free"];
                let mut client = server.client();
                for round in 0..20 {
                    let pipelined = 1 + round % 3;
                    for next in 0..pipelined {
                        ask(&mut client, targets[(number + round + next) % targets.len()]);
                    }
                    for _ in 0..pipelined {
                        assert_eq!(client.response().status, 200);
                    }
                }
            });
        }
    });
    assert!(routes.database.most() <= 3, "{:?}", routes.database);
    eventually("all are given back", || routes.permits.available() == 3);
    assert_eq!(server.metrics().overloaded, 0);
}

#[test]
fn routes_that_share_permits_are_served_equally() {
    let routes = Routes::new(2);
    let server = TestServer::with(ServerConfig::default(), routes.clone());
    // Many clients of one route, and few of the other.
    let many = Load::start(server.address(), 20, "/query");
    let few = Load::start(server.address(), 4, "/other");
    few.each_reaches(50);
    let counts = (many.stop(), few.stop());
    let (many, few): (usize, usize) = (counts.0.iter().sum(), counts.1.iter().sum());
    assert!(few * 2 >= many && many * 2 >= few, "{counts:?}");
    assert!(counts.0.iter().all(|&count| count > 0), "{counts:?}");
}

#[test]
fn servers_that_share_permits_take_turns() {
    let routes = Routes::new(2);
    let (one, two) = (
        TestServer::with(ServerConfig::default(), routes.clone()),
        TestServer::with(ServerConfig::default(), routes.clone()),
    );
    let mut clients = asked(&one, 50, "/query");
    clients.extend(asked(&two, 50, "/query"));
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(routes.database.most(), 2);
    eventually("all are given back", || routes.permits.available() == 2);
}

#[test]
fn a_handler_that_panics_gives_its_permit_back() {
    let routes = Routes::new(1);
    let server = TestServer::with(ServerConfig::default(), routes.clone());
    let mut clients = asked(&server, 20, "/panic");
    for client in &mut clients {
        assert_eq!(client.response().status, 500);
    }
    assert_eq!(asked(&server, 1, "/query")[0].response().status, 200);
    eventually("all are given back", || routes.permits.available() == 1);
}

#[test]
fn a_client_that_disconnects_while_it_waits_takes_no_permit() {
    let routes = Routes::new(1);
    let server = TestServer::with(ServerConfig::default(), routes.clone());
    let mut stuck = asked(&server, 1, "/stuck");
    routes.gate.holds(1);
    let gone = asked(&server, 20, "/query");
    eventually("they wait", || server.metrics().waiting == 20);
    drop(gone);
    routes.gate.open();
    assert_eq!(stuck[0].response().status, 200);
    eventually("all are closed", || server.metrics().connections == 1);
    assert_eq!(asked(&server, 1, "/query")[0].response().status, 200);
    eventually("all are given back", || routes.permits.available() == 1);
}

#[test]
fn requests_that_get_no_permit_in_time_are_refused_and_do_not_delay_others() {
    let routes = Routes::new(1);
    let config = ServerConfig::default().queue_timeout(Duration::from_millis(200));
    let server = TestServer::with(config, routes.clone());
    let mut stuck = asked(&server, 1, "/stuck");
    routes.gate.holds(1);
    let mut waiting = asked(&server, 10, "/query");
    waiting.extend(asked(&server, 2, "/inline"));
    assert_eq!(asked(&server, 1, "/free")[0].response().status, 200);
    for client in &mut waiting {
        let response = client.response();
        assert_eq!((response.status, response.header("retry-after").is_some()), (503, true));
        client.is_alive();
    }
    routes.gate.open();
    assert_eq!(stuck[0].response().status, 200);
    for client in &mut waiting {
        assert_eq!(client.get("/query").status, 200);
    }
    let refused: Vec<_> = server.metrics().refusals().collect();
    assert_eq!(refused, [(Refusal::Overloaded, 12)]);
    eventually("all are given back", || routes.permits.available() == 1);
}

#[test]
fn requests_that_wait_when_their_server_ends_leave_the_permits_to_others() {
    let routes = Routes::new(1);
    let config = ServerConfig::default().drain_timeout(Duration::from_millis(200));
    let (one, two) = (
        TestServer::with(config, routes.clone()),
        TestServer::with(ServerConfig::default(), routes.clone()),
    );
    let mut stuck = asked(&two, 1, "/stuck");
    routes.gate.holds(1);
    let _waiting = asked(&one, 3, "/query");
    eventually("they wait", || one.metrics().waiting == 3);
    one.server().shutdown_handle().shutdown();
    one.server().wait();
    routes.gate.open();
    assert_eq!(stuck[0].response().status, 200);
    assert_eq!(asked(&two, 1, "/query")[0].response().status, 200);
    eventually("all are given back", || routes.permits.available() == 1);
}

#[test]
fn a_vital_route_is_answered_while_others_occupy_all_threads() {
    let routes = Routes::new(1);
    let server = TestServer::with(ServerConfig::default().threads_max(4), routes.clone());
    let mut stuck = asked(&server, 6, "/busy");
    stuck.extend(asked(&server, 6, "/busy/too"));
    routes.gate.holds(4);
    for _ in 0..3 {
        let started = Instant::now();
        let mut healthy = asked(&server, 8, "/health");
        for client in &mut healthy {
            assert_eq!(client.response().status, 200);
            assert_eq!(client.get("/health").status, 200, "on the same connection");
        }
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }
    assert_eq!(server.metrics().overloaded, 0);
    routes.gate.open();
    for client in &mut stuck {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn a_slow_content_keeps_its_permit_only_while_nobody_waits() {
    let routes = Routes::new(1);
    let long = Duration::from_secs(3600);
    let config = ServerConfig::default().content_timeout(long).queue_timeout(long);
    let server = TestServer::with(config, routes.clone());
    let upload = || {
        let mut client = server.client();
        client.send("POST /upload HTTP/1.1\r\nHost: t\r\nContent-Length: 200000\r\n\r\n");
        client.send(vec![b'x'; 100_000]);
        eventually("it has the permit", || routes.permits.available() == 0);
        client
    };
    let mut slow = upload();
    // Longer than the pause that is accepted while others wait.
    thread::sleep(Duration::from_millis(1500));
    slow.send(vec![b'x'; 100_000]);
    assert_eq!(slow.response().text(), "200000");
    eventually("it is given back", || routes.permits.available() == 1);
    let mut slow = upload();
    assert_eq!(asked(&server, 1, "/query")[0].response().status, 200);
    assert_eq!(slow.response().status, 408);
}
