//! Slow contents cost memory within a budget, and no threads.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Refusal, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Gate, TestServer, eventually, site};

/// The maximum number of threads of the server.
const THREADS: usize = 64;

/// Routes that receive contents in each way, and one that blocks briefly.
struct Uploads;

impl Service for Uploads {
    fn plan(&self, request: &mut Request) -> Plan {
        let plan = Plan::new().content_bytes_max(16 << 20);
        match request.path() {
            "/whole" => plan.buffered_content_bytes_max(2 << 20).route(1),
            "/long" => plan.route(2),
            "/stream" => plan.streamed().route(3),
            "/blocks" => Plan::new().on_pool().route(4),
            _ => Plan::new().route(5),
        }
    }

    fn call(&self, mut request: Request) -> Response {
        match request.path() {
            "/upgrade" => {
                return Response::upgrade(|mut socket| {
                    let _ = socket.read(&mut [0]);
                });
            }
            "/blocks" => thread::sleep(Duration::from_millis(5)),
            "/whole" | "/long" | "/stream" => {
                let mut bytes = Vec::new();
                return match request.body_mut().read_to_end(&mut bytes) {
                    Ok(_) => Response::from(format!("{} bytes", bytes.len())),
                    Err(error) => Response::new(match error.kind() {
                        std::io::ErrorKind::TimedOut => 408,
                        _ => 400,
                    }),
                };
            }
            _ => {}
        }
        site(request)
    }
}

fn server(config: ServerConfig) -> TestServer {
    TestServer::with(config.threads_max(THREADS), Uploads)
}

/// Connects clients that announce a content of `length` bytes and send only `sent` of them.
fn slow(
    server: &TestServer,
    count: usize,
    target: &str,
    length: usize,
    sent: usize,
) -> Vec<Client> {
    let content = vec![b'x'; sent];
    (0..count)
        .map(|_| {
            let mut client = server.client();
            client.send(format!(
                "POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n"
            ));
            client.send(&content);
            client
        })
        .collect()
}

/// Asserts that other clients are served without delay.
#[track_caller]
fn others_are_served(server: &TestServer) {
    let started = Instant::now();
    for _ in 0..5 {
        let mut client = server.client();
        client.is_alive();
        assert_eq!(client.get("/blocks").status, 200);
        assert_eq!(client.post("/whole", "{\"a\": 1}").text(), "8 bytes");
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn a_content_that_is_wanted_whole_holds_no_thread() {
    let server = server(ServerConfig::default());
    others_are_served(&server);
    let before = server.metrics().pool.threads;
    let mut slow = slow(&server, 400, "/whole", 1_500_000, 10);
    others_are_served(&server);
    let metrics = server.metrics();
    assert!(metrics.pool.threads <= before + 4, "{metrics:?}");
    assert!(metrics.memory_used < 400 * 64 * 1024, "memory depends on the bytes sent: {metrics:?}");
    // One of them sends the rest.
    slow[0].send(vec![b'x'; 1_500_000 - 10]);
    assert_eq!(slow[0].response().text(), "1500000 bytes");
    drop(slow);
    eventually("the memory is given back", || server.metrics().memory_used == 0);
}

#[test]
fn the_handler_of_a_long_content_starts_when_a_part_has_arrived() {
    let server = server(ServerConfig::default());
    others_are_served(&server);
    let before = server.metrics().pool.threads;
    let mut slow = slow(&server, 200, "/long", 8 << 20, 1000);
    others_are_served(&server);
    assert!(server.metrics().pool.threads <= before + 4, "{:?}", server.metrics());
    slow[0].send(vec![b'x'; (8 << 20) - 1000]);
    assert_eq!(slow[0].response().text(), format!("{} bytes", 8 << 20));
}

#[test]
fn few_threads_read_from_peers_and_further_contents_are_collected_first() {
    for target in ["/long", "/stream"] {
        let server = server(ServerConfig::default());
        others_are_served(&server);
        let before = server.metrics().pool.threads;
        let mut slow = slow(&server, 200, target, 8 << 20, 70_000);
        others_are_served(&server);
        let metrics = server.metrics();
        assert!(metrics.pool.threads <= before + THREADS / 8 + 4, "{target}: {metrics:?}");
        let last = slow.last_mut().unwrap();
        last.send(vec![b'x'; (8 << 20) - 70_000]);
        assert_eq!(last.response().text(), format!("{} bytes", 8 << 20));
    }
}

#[test]
fn stalled_peers_lose_their_threads_when_half_of_the_threads_wait_for_peers() {
    let server = server(ServerConfig::default());
    // Enough bytes for each handler to start.
    let mut slow = slow(&server, 60, "/stream", 8 << 20, (1 << 20) + 1000);
    let ended =
        |slow: &[Client]| slow.iter().filter(|client| client.tcp().peek(&mut [0]).is_ok()).count();
    eventually("some are refused as too slow", || ended(&slow) >= 60 - THREADS / 2);
    let told = slow.iter_mut().filter(|client| client.tcp().peek(&mut [0]).is_ok());
    for client in told {
        assert_eq!(client.response().status, 408);
    }
    others_are_served(&server);
}

#[test]
fn slow_peers_go_first_when_memory_is_short() {
    let server = server(ServerConfig::default().memory_max(8 << 20));
    let slow = slow(&server, 30, "/whole", 1_000_000, 200_000);
    eventually("much of it is used", || server.metrics().memory_used >= 4 << 20);
    others_are_served(&server);
    eventually("so many have gone that it is not", || server.metrics().memory_used < 4 << 20);
    let refusals: Vec<_> = server.metrics().refusals().map(|(refusal, _)| refusal).collect();
    assert!(refusals.contains(&Refusal::Late), "{refusals:?}");
    // Long contents are accepted again.
    let mut client = server.client();
    assert_eq!(client.post("/whole", vec![b'x'; 1_900_000]).text(), "1900000 bytes");
    drop(slow);
}

#[test]
fn without_memory_long_contents_are_refused_and_short_ones_are_not() {
    let gate = Gate::new();
    let holds = gate.clone();
    let config = ServerConfig::default().memory_max(1_600_000);
    let server = TestServer::with(config, move |request: Request| {
        if request.path() == "/hold" {
            holds.pass();
        }
        site(request)
    });
    let mut holder = server.client();
    holder.send("POST /hold HTTP/1.1\r\nHost: t\r\nContent-Length: 900000\r\n\r\n");
    holder.send(vec![b'x'; 900_000]);
    gate.holds(1);
    let metrics = server.metrics();
    assert!(metrics.memory_used >= 900_000 && metrics.memory_used <= 1_200_000, "{metrics:?}");
    let mut client = server.client();
    let refused = client.post("/", vec![b'x'; 600_000]);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(server.client().post("/", vec![b'x'; 20_000]).status, 200);
    assert!(server.metrics().refusals().any(|(refusal, _)| refusal == Refusal::Memory));
    gate.open();
    assert_eq!(holder.response().status, 200);
    eventually("the memory is given back", || server.metrics().memory_used == 0);
    assert_eq!(server.client().post("/", vec![b'x'; 300_000]).status, 200);
}

#[test]
fn peers_that_do_not_read_are_disconnected_when_memory_is_short() {
    // More than the system's buffers hold.
    let server = TestServer::with(ServerConfig::default().memory_max(32 << 20), |_: Request| {
        Response::from("x".repeat(16 << 20))
    });
    let mut stuck: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut stuck {
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    eventually("unread responses are counted", || server.metrics().memory_used >= 16 << 20);
    eventually("they are ended", || {
        server.metrics().refusals().any(|(refusal, _)| refusal == Refusal::Stalled)
    });
    eventually("memory is free again", || server.metrics().memory_used < 16 << 20);
    assert_eq!(server.client().get("/").body.len(), 16 << 20);
}

fn refused(server: &TestServer) -> u64 {
    server
        .metrics()
        .refusals()
        .find(|(refusal, _)| *refusal == Refusal::ClientThreads)
        .map_or(0, |found| found.1)
}

/// Returns a configuration that also counts clients on this machine.
fn counted() -> ServerConfig {
    ServerConfig::default().connections_per_client_max(1000)
}

#[test]
fn an_eighth_of_the_threads_read_from_one_client() {
    let server = server(counted());
    // More than the loop collects, so that a thread must read.
    let mut slow = slow(&server, THREADS / 8, "/stream", 8 << 20, 2 << 20);
    eventually("all of them have threads", || server.metrics().pool.threads >= THREADS / 8);
    others_are_served(&server);
    assert_eq!(refused(&server), 0);
    let mut one_more = server.client();
    one_more.send("POST /stream HTTP/1.1\r\nHost: t\r\nContent-Length: 8388608\r\n\r\n");
    one_more.send(vec![b'x'; (1 << 20) + 1]);
    let response = one_more.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    assert_eq!(refused(&server), 1);
    // One of them ends, and another one may start.
    slow[0].send(vec![b'x'; 6 << 20]);
    assert_eq!(slow[0].response().text(), format!("{} bytes", 8 << 20));
    assert_eq!(
        server.client().post("/stream", vec![b'x'; 2 << 20]).text(),
        format!("{} bytes", 2 << 20)
    );
}

#[test]
fn an_eighth_of_the_threads_have_upgraded_connections_of_one_client() {
    let server = server(counted());
    let ask = |client: &mut Client| {
        client.send("GET /upgrade HTTP/1.1\r\nHost: t\r\n\r\n");
    };
    let mut upgraded: Vec<_> = (0..THREADS / 8)
        .map(|_| {
            let mut client = server.client();
            ask(&mut client);
            assert_eq!(client.response().status, 101);
            client
        })
        .collect();
    eventually("all of them have threads", || server.metrics().upgraded == THREADS as u64 / 8);
    let mut one_more = server.client();
    ask(&mut one_more);
    assert_eq!(one_more.response().status, 503);
    one_more.is_alive();
    assert_eq!(refused(&server), 1);
    drop(upgraded.pop());
    eventually("its place is free", || {
        let mut client = server.client();
        ask(&mut client);
        client.response();
        server.metrics().upgraded > THREADS as u64 / 8
    });
}
