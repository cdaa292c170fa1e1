//! Overload: accepted requests are answered in time, and all others are refused at once.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "a figure is for those who read the output of a test")]

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Refusal, Refused, Request, Response, ServerConfig, Service};
use filoplume_tests::{Gate, Latencies, Noise, TestServer, eventually};

/// The number of concurrent handlers, and of waiting requests.
const PLACES: usize = 4;

/// How long a handler takes.
const WORK: Duration = Duration::from_millis(10);

/// How long each load lasts.
const LOAD: Duration = Duration::from_millis(700);

/// Maximum additional latency, compared to a load without refusals on the same machine: this, in
/// addition to the delay that the machine itself causes. Without optimisation, everything takes
/// longer.
const MORE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 20 });

/// The maximum additional latency, whatever else the machine does.
const MORE_MAX: Duration = Duration::from_millis(250);

/// Waits, as for a database.
struct Waits;

impl Service for Waits {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().on_pool()
    }

    fn call(&self, _: Request) -> Response {
        thread::sleep(WORK);
        Response::from("done")
    }
}

fn server() -> TestServer {
    TestServer::with(ServerConfig::default().threads_max(PLACES).queue_capacity(PLACES), Waits)
}

/// The results of a load.
#[derive(Default)]
struct Outcome {
    accepted: Latencies,
    refused: Latencies,
}

/// Loads the server with closed-loop clients.
fn load(server: &TestServer, clients: usize) -> Outcome {
    let outcome = Mutex::new(Outcome::default());
    let until = Instant::now() + LOAD;
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = server.client();
                let mut own = Outcome::default();
                while Instant::now() < until {
                    let started = Instant::now();
                    let response = client.get("/");
                    let latency = started.elapsed();
                    match response.status {
                        200 => own.accepted.add(latency),
                        503 => {
                            assert_eq!(response.header("retry-after"), Some("1"), "{response:?}");
                            assert!(!response.closes(), "the connection is kept: {response:?}");
                            own.refused.add(latency);
                            // A refused client pauses before its next request.
                            thread::sleep(WORK / 2);
                        }
                        _ => panic!("{response:?}"),
                    }
                }
                let mut outcome = outcome.lock().unwrap();
                outcome.accepted.extend(&own.accepted);
                outcome.refused.extend(&own.refused);
            });
        }
        scope.spawn(|| {
            while Instant::now() < until {
                let queued = server.metrics().waiting;
                assert!(queued <= PLACES, "{queued} wait");
                thread::sleep(Duration::from_millis(2));
            }
        });
    });
    outcome.into_inner().unwrap()
}

#[test]
fn a_threefold_overload_does_not_delay_accepted_requests() {
    let server = server();
    let noise = Noise::start();
    // With as many clients as threads, all requests are accepted.
    let within = load(&server, PLACES);
    println!("{PLACES} clients: accepted {}", within.accepted);
    assert_eq!(within.refused.count(), 0);
    let over = load(&server, PLACES * 2 * 3);
    println!("{} clients: accepted {}; refused {}", PLACES * 6, over.accepted, over.refused);
    assert!(over.refused.count() > 0, "it was not too much");
    // A request waits for one round of earlier requests and for its own, which is twice its time
    // alone.
    let more = (MORE + noise.stop()).min(MORE_MAX);
    println!("up to {more:?} later than that");
    let longest = within.accepted.p99() * 2 + more;
    assert!(over.accepted.p99() < longest, "{} and {}", within.accepted, over.accepted);
    // A bench has the exact figure. Here the machine may be busy.
    assert!(over.accepted.count() * 3 > within.accepted.count() * 2, "the work is done as before");
    let metrics = server.metrics();
    let counted: Vec<_> = metrics.refusals().collect();
    assert_eq!(counted, [(Refusal::Overloaded, over.refused.count() as u64)]);
    // After the overload nothing is left waiting.
    eventually("nothing waits", || server.metrics().waiting == 0);
    assert_eq!(server.client().get("/").status, 200);
}

/// Holds each call at a gate.
struct Held(Gate);

impl Service for Held {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().on_pool()
    }

    fn call(&self, _: Request) -> Response {
        self.0.pass();
        Response::from("done")
    }
}

#[test]
fn a_refusal_waits_for_no_handler() {
    let gate = Gate::new();
    // No request is refused because it has waited for too long.
    let config = ServerConfig::default()
        .threads_max(PLACES)
        .queue_capacity(PLACES)
        .queue_timeout(Duration::from_secs(3600));
    let server = TestServer::with(config, Held(gate.clone()));
    let ask = || {
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        client
    };
    let mut accepted: Vec<_> = (0..PLACES).map(|_| ask()).collect();
    gate.holds(PLACES);
    accepted.extend((0..PLACES).map(|_| ask()));
    eventually("all places are taken", || server.metrics().waiting == PLACES);
    let refused = PLACES * 4;
    let mut client = server.client();
    for _ in 0..refused {
        let response = client.get("/");
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(response.header("retry-after"), Some("1"), "{response:?}");
        assert!(!response.closes(), "the connection is kept: {response:?}");
    }
    // No handler has returned meanwhile.
    assert_eq!((gate.waiting(), server.metrics().waiting), (PLACES, PLACES));
    gate.open();
    for mut client in accepted {
        assert_eq!(client.response().status, 200);
    }
    let counted: Vec<_> = server.metrics().refusals().collect();
    assert_eq!(counted, [(Refusal::Overloaded, refused as u64)]);
}

/// Holds its only thread at a gate, and blocks while it responds to a refused request.
struct Slow {
    thread: Gate,
    refusal: Gate,
}

impl Service for Slow {
    fn plan(&self, request: &mut Request) -> Plan {
        if request.path() == "/gate" { Plan::new().on_pool() } else { Plan::new() }
    }

    fn call(&self, request: Request) -> Response {
        if request.path() == "/gate" {
            self.thread.pass();
        }
        Response::from("done")
    }

    fn refused(&self, _: &Request, _: &Refused<'_>) -> Option<Response> {
        self.refusal.pass();
        Some(Response::from("later"))
    }
}

#[test]
fn a_response_to_a_refused_request_may_block() {
    let (thread, refusal) = (Gate::new(), Gate::new());
    let config = ServerConfig::default().event_loops(1).threads_max(1).queue_capacity(1);
    let slow = Slow { thread: thread.clone(), refusal: refusal.clone() };
    let server = TestServer::with(config, slow);
    let mut busy: Vec<_> = (0..3)
        .map(|number| {
            let mut client = server.client();
            client.send("GET /gate HTTP/1.1\r\nHost: t\r\n\r\n");
            if number == 0 {
                thread.holds(1);
            }
            client
        })
        .collect();
    refusal.holds(1);
    // The only loop has another leader now.
    for _ in 0..10 {
        assert_eq!(server.client().get("/").status, 200);
    }
    refusal.open();
    thread.open();
    let mut statuses = [0; 3].map(|_: i32| {
        let response = busy.pop().unwrap().response();
        response.status.to_string() + response.text()
    });
    statuses.sort();
    assert_eq!(statuses, ["200done", "200done", "503later"]);
}
