//! Sharing the threads of the pool: as many requests wait as can be served in time, and no route
//! occupies all threads.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Refusal, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Gate, Load, TestServer, ask, eventually, site};

/// Routes on the pool. `/gate` waits at the gate, and `/brief` for a moment. `/late` is like
/// `/gate` while it is stuck, and otherwise like `/brief`.
struct Routes {
    gate: Gate,
    is_stuck: Arc<AtomicBool>,
}

const BRIEF: Duration = Duration::from_millis(10);

impl Service for Routes {
    fn plan(&self, request: &mut Request) -> Plan {
        match request.path() {
            "/gate" => Plan::new().on_pool().route(1),
            "/brief" => Plan::new().on_pool().route(2),
            "/late" => Plan::new().on_pool().route(3),
            _ => Plan::new(),
        }
    }

    fn route_name(&self, route: u32) -> Option<String> {
        (route == 1).then(|| "GET /gate".to_owned())
    }

    fn call(&self, request: Request) -> Response {
        match request.path() {
            "/gate" => self.gate.pass(),
            "/brief" => thread::sleep(BRIEF),
            "/late" if self.is_stuck.load(Ordering::SeqCst) => self.gate.pass(),
            "/late" => thread::sleep(BRIEF),
            _ => {}
        }
        site(request)
    }
}

fn server(config: ServerConfig, gate: &Gate) -> TestServer {
    TestServer::with(config, Routes { gate: gate.clone(), is_stuck: Arc::default() })
}

fn asked(server: &TestServer, count: usize, target: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| ask(client, target));
    clients
}

#[test]
fn a_crowd_is_served_without_refusals() {
    let server = server(ServerConfig::default().threads_max(64), &Gate::new());
    for _ in 0..3 {
        // Twelve rounds of all threads, which is more than a queue with a fixed length would hold
        // for so few threads.
        let mut clients = asked(&server, 700, "/brief");
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
    }
    let metrics = server.metrics();
    assert_eq!((metrics.overloaded, metrics.waiting), (0, 0));
    assert!(metrics.pool.threads_peak <= 64 + 16, "{metrics:?}");
}

#[test]
fn one_route_does_not_occupy_all_threads() {
    let gate = Gate::new();
    let server = server(ServerConfig::default().queue_timeout(Duration::from_secs(600)), &gate);
    let mut stuck = asked(&server, 700, "/gate");
    eventually("the route has all that it may", || gate.waiting() == 456);
    eventually("the others wait", || server.metrics().waiting == 700 - 456);
    let started = Instant::now();
    let mut others = asked(&server, 40, "/brief");
    for client in &mut others {
        assert_eq!(client.response().status, 200);
        client.is_alive();
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    gate.open();
    for client in &mut stuck {
        assert_eq!(client.response().text(), "GET /gate");
        client.is_alive();
    }
    assert_eq!(server.metrics().overloaded, 0);
    eventually("nothing waits", || server.metrics().waiting == 0);
}

#[test]
fn a_request_that_has_waited_too_long_is_refused_and_its_connection_kept() {
    let gate = Gate::new();
    let config = ServerConfig::default().threads_max(2).queue_timeout(Duration::from_millis(300));
    let server = server(config, &gate);
    let mut stuck = asked(&server, 2, "/gate");
    gate.holds(2);
    let started = Instant::now();
    let mut waiting = asked(&server, 5, "/gate");
    for client in &mut waiting {
        let response = client.response();
        assert_eq!((response.status, response.header("retry-after").is_some()), (503, true));
        assert!(!response.closes());
        client.is_alive();
    }
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
    // By now the engine knows that no thread becomes free, so the next request is refused at once.
    let started = Instant::now();
    let mut next = asked(&server, 1, "/gate");
    assert_eq!(next[0].response().status, 503);
    assert!(started.elapsed() < Duration::from_millis(200), "{:?}", started.elapsed());
    gate.open();
    for client in &mut stuck {
        assert_eq!(client.response().status, 200);
    }
    let mut again = asked(&server, 5, "/gate");
    for client in &mut again {
        assert_eq!(client.response().status, 200, "it has recovered");
    }
    let refused: Vec<_> = server.metrics().refusals().collect();
    assert_eq!(refused, [(Refusal::Overloaded, 6)]);
}

#[test]
fn the_content_of_a_refused_request_is_read_as_its_content() {
    let gate = Gate::new();
    let config = ServerConfig::default().threads_max(1).queue_timeout(Duration::from_millis(100));
    let server = server(config, &gate);
    let _stuck = asked(&server, 1, "/gate");
    gate.holds(1);
    let mut client = server.client();
    client.send("POST /gate HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nGET /");
    client.send("GET /next HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.response().status, 503);
    assert_eq!(client.response().text(), "GET /next");
    gate.open();
}

#[test]
fn a_client_that_disconnects_while_it_waits_costs_no_thread() {
    let gate = Gate::new();
    let server = server(ServerConfig::default().threads_max(1), &gate);
    let mut stuck = asked(&server, 1, "/gate");
    gate.holds(1);
    let gone = asked(&server, 20, "/gate");
    eventually("they wait", || server.metrics().waiting == 20);
    drop(gone);
    gate.open();
    assert_eq!(stuck[0].response().status, 200);
    eventually("all are closed", || server.metrics().connections == 1);
    assert_eq!(asked(&server, 1, "/gate")[0].response().status, 200);
}

/// Connections that send their next request at once do not occupy threads that others wait for.
#[test]
fn closed_loop_clients_do_not_starve_waiting_requests() {
    let server = server(ServerConfig::default().threads_max(4), &Gate::new());
    let one = Load::start(server.address(), 6, "/brief");
    let other = Load::start(server.address(), 6, "/late");
    one.each_reaches(50);
    let counts = [one.stop(), other.stop()].concat();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(least * 3 >= *most, "{counts:?}");
}

#[test]
fn a_route_that_hangs_does_not_block_others_and_recovers() {
    let (gate, is_stuck) = (Gate::new(), Arc::new(AtomicBool::new(false)));
    let config = ServerConfig::default().threads_max(18).queue_timeout(Duration::from_millis(500));
    let server =
        TestServer::with(config, Routes { gate: gate.clone(), is_stuck: Arc::clone(&is_stuck) });
    assert_eq!(asked(&server, 1, "/late")[0].response().status, 200);
    is_stuck.store(true, Ordering::SeqCst);
    let mut stuck = asked(&server, 60, "/late");
    gate.holds(16);
    for _ in 0..20 {
        assert_eq!(asked(&server, 1, "/brief")[0].response().status, 200);
    }
    let mut refused: Vec<Client> = Vec::new();
    eventually("the waiting requests are refused", || {
        let (told, left): (Vec<_>, Vec<_>) =
            stuck.drain(..).partition(|client| client.tcp().peek(&mut [0]).is_ok());
        stuck = left;
        refused.extend(told);
        refused.len() == 44
    });
    assert!(refused.iter_mut().all(|client| client.response().status == 503));
    is_stuck.store(false, Ordering::SeqCst);
    gate.open();
    assert!(stuck.iter_mut().all(|client| client.response().status == 200));
    // A few at a time: on a busy machine, a crowd could wait for longer than the half second.
    eventually("the route is served again", || {
        asked(&server, 8, "/late").iter_mut().all(|client| client.response().status == 200)
    });
}

#[test]
fn requests_that_wait_when_the_server_ends_are_answered_or_dropped() {
    let gate = Gate::new();
    let config = ServerConfig::default().threads_max(1).drain_timeout(Duration::from_millis(300));
    let server = server(config, &gate);
    let _stuck = asked(&server, 1, "/gate");
    gate.holds(1);
    let mut waiting = asked(&server, 3, "/gate");
    eventually("they wait", || server.metrics().waiting == 3);
    let started = Instant::now();
    server.server().shutdown_handle().shutdown();
    gate.open();
    for client in &mut waiting {
        // Either the handler returns before the deadline or it does not.
        if let Ok(response) = client.try_response() {
            assert!(matches!(response.status, 200 | 503), "{response:?}");
        }
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
