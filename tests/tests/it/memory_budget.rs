//! Requests that wait count in the memory budget, and others do not. One client leaves a third of
//! the budget to others.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use filoplume_runtime::{Plan, Refusal, Request, Response, Server, ServerConfig, Service};
use filoplume_tests::{Client, Gate, TestServer, eventually};

/// The length of a long field.
const LONG: usize = 8 * 1024;

/// The length of a response that no socket takes at once.
const LARGE: usize = 16 << 20;

/// `/gate` waits at a gate on the pool, and `/large` returns [`LARGE`] bytes of its own. Other
/// paths return the number of used bytes.
struct Routes {
    gate: Gate,
    server: Arc<OnceLock<Server>>,
}

impl Service for Routes {
    fn plan(&self, request: &mut Request) -> Plan {
        if request.path() == "/gate" { Plan::new().on_pool() } else { Plan::new() }
    }

    fn call(&self, request: Request) -> Response {
        if request.path() == "/gate" {
            self.gate.pass();
        }
        if request.path() == "/large" {
            return Response::from("x".repeat(LARGE));
        }
        let metrics = self.server.get().and_then(Server::metrics).unwrap();
        Response::from(metrics.memory_used.to_string())
    }
}

fn server(config: ServerConfig) -> (TestServer, Gate) {
    let (gate, own) = (Gate::new(), Arc::new(OnceLock::new()));
    let routes = Routes { gate: gate.clone(), server: Arc::clone(&own) };
    // Nothing but a shortage of memory refuses a request that waits.
    let config = config.threads_max(1).queue_timeout(Duration::from_secs(600));
    let server = TestServer::with(config, routes);
    let _ = own.set(server.server().clone());
    (server, gate)
}

/// Returns a head with a long field, and a content.
fn request(start: &str, content: &str) -> String {
    let length = content.len();
    let long = "x".repeat(LONG);
    format!(
        "{start} HTTP/1.1\r\nHost: t\r\nLong: {long}\r\nContent-Length: {length}\r\n\r\n{content}"
    )
}

fn send(server: &TestServer, count: usize, bytes: &str) -> Vec<Client> {
    send_from(Ipv4Addr::LOCALHOST, server, count, bytes)
}

fn send_from(from: Ipv4Addr, server: &TestServer, count: usize, bytes: &str) -> Vec<Client> {
    let send = |_| {
        let mut client = Client::connect_from(from, server.address());
        client.send(bytes);
        client
    };
    (0..count).map(send).collect()
}

/// Returns how often something was refused for want of memory.
fn refused(server: &TestServer) -> usize {
    let metrics = server.metrics();
    let mut refusals = metrics.refusals();
    let count = refusals.find(|(refusal, _)| *refusal == Refusal::Memory);
    usize::try_from(count.map_or(0, |(_, count)| count)).unwrap()
}

/// Asserts that each client is answered and that all memory is given back.
#[track_caller]
fn are_answered(server: &TestServer, clients: &mut [Client]) {
    for client in clients {
        assert_eq!(client.response().status, 200);
    }
    eventually("all memory is given back", || server.metrics().memory_used == 0);
}

#[test]
fn a_request_that_runs_at_once_charges_nothing() {
    let (server, gate) = server(ServerConfig::default());
    gate.open();
    let mut client = server.client();
    for bytes in [request("GET /", ""), request("POST /", "content"), request("GET /gate", "")] {
        client.send(bytes);
        assert_eq!(client.response().text(), "0");
    }
}

#[test]
fn a_request_that_waits_for_a_thread_is_charged_until_it_runs() {
    let (server, gate) = server(ServerConfig::default());
    let mut clients = send(&server, 1000, &request("GET /gate", ""));
    eventually("all but one wait", || server.metrics().waiting == 999);
    let used = server.metrics().memory_used;
    assert!((999 * LONG..999 * 5 * LONG).contains(&used), "{used}");
    gate.open();
    are_answered(&server, &mut clients);
}

#[test]
fn a_content_that_came_with_its_head_is_charged_while_it_waits() {
    let (server, gate) = server(ServerConfig::default());
    let content = "x".repeat(20_000);
    let mut clients = send(&server, 21, &request("POST /gate", &content));
    eventually("all but one wait", || server.metrics().waiting == 20);
    let used = server.metrics().memory_used;
    assert!(used >= 20 * (LONG + content.len()), "{used}");
    gate.open();
    are_answered(&server, &mut clients);
}

#[test]
fn a_head_is_charged_while_its_content_is_awaited() {
    let (server, _gate) = server(ServerConfig::default());
    let whole = request("POST /", "content");
    let mut clients = send(&server, 200, &whole[..whole.len() - 7]);
    eventually("each head is charged", || server.metrics().memory_used >= 200 * LONG);
    for client in &mut clients {
        client.send("content");
    }
    are_answered(&server, &mut clients);
}

#[test]
fn without_memory_a_request_is_refused_instead_of_queued_and_its_connection_kept() {
    const MEMORY: usize = 1 << 20;
    const COUNT: usize = 300;
    let (server, gate) = server(ServerConfig::default().memory_max(MEMORY));
    let mut clients = send(&server, COUNT, &request("GET /gate", ""));
    eventually("each of them runs, waits or is refused", || {
        server.metrics().waiting + refused(&server) == COUNT - 1
    });
    let metrics = server.metrics();
    assert!((MEMORY / LONG / 5..=MEMORY / LONG).contains(&metrics.waiting), "{metrics:?}");
    assert!(metrics.memory_used <= MEMORY, "{metrics:?}");
    assert_eq!(metrics.overloaded, 0);
    // A request that need not wait is served.
    assert_eq!(server.client().get("/").status, 200);
    gate.open();
    let mut answers = [0, 0];
    for client in &mut clients {
        let response = client.response();
        answers[usize::from(response.status == 200)] += 1;
        assert!(response.status == 200 || response.header("retry-after").is_some());
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(answers, [COUNT - 1 - metrics.waiting, metrics.waiting + 1]);
    eventually("all memory is given back", || server.metrics().memory_used == 0);
}

/// Two clients that are counted, although they are on this machine.
const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

#[test]
fn requests_and_contents_of_one_client_leave_memory_to_others() {
    const MEMORY: usize = 1 << 20;
    const COUNT: usize = 300;
    let config = ServerConfig::default().memory_max(MEMORY).connections_per_client_max(10 * COUNT);
    let (server, gate) = server(config);
    let waiting = send_from(ONE, &server, COUNT, &request("GET /gate", ""));
    eventually("each of them runs, waits or is refused", || {
        server.metrics().waiting + refused(&server) == COUNT - 1
    });
    let used = server.metrics().memory_used;
    assert!((MEMORY / 2..=MEMORY / 3 * 2 + 1).contains(&used), "{used}");

    let (before, content) = (refused(&server), "x".repeat(40_000));
    let whole = request("POST /", &content);
    let (start, end) = whole.split_at(whole.len() - 10_000);
    let mut of_one = send_from(ONE, &server, 1, start);
    assert_eq!(of_one[0].response().status, 503);
    let mut of_other = send_from(OTHER, &server, 3, start);
    of_other.extend(send_from(OTHER, &server, 3, &request("GET /gate", "")));
    eventually("requests of the other client wait", || {
        server.metrics().waiting + refused(&server) == COUNT + 3
    });
    assert_eq!(refused(&server), before + 1, "only a content of the first client");
    gate.open();
    for client in &mut of_other[..3] {
        client.send(end);
    }
    drop((waiting, of_one));
    are_answered(&server, &mut of_other);
}

#[test]
fn responses_that_one_client_does_not_read_leave_memory_to_others() {
    const MEMORY: usize = 4 * LARGE;
    let config = ServerConfig::default().memory_max(MEMORY).connections_per_client_max(100);
    let (server, _gate) = server(config);
    let large = "GET /large HTTP/1.1\r\nHost: t\r\n\r\n";
    let mut unread = Vec::new();
    for _ in 0..12 {
        unread.extend(send_from(ONE, &server, 1, large));
        let used = server.metrics().memory_used;
        assert!(used <= MEMORY / 3 * 2 + 1, "{used}");
    }
    let mut other = send_from(OTHER, &server, 1, large);
    let response = other[0].response();
    assert_eq!((response.status, response.body.len()), (200, LARGE));
    drop(unread);
    eventually("all memory is given back", || server.metrics().memory_used == 0);
}
