//! What a server measures of a request: where its time went.
//!
//! The bounds are measured from outside in the same run, so that a busy machine widens them.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{
    Exchange, Plan, Ran, Refusal, Request, Response, ServerConfig, Service, StatusCode, Timing,
};
use filoplume_tests::{Client, Gate, TestServer, eventually};

const DEADLINE: Duration = Duration::from_secs(20);

/// The maximum difference between a measured phase and what happened: a tenth, or this time if that
/// is more.
const TOLERANCE: Duration = Duration::from_micros(200);

/// How often a phase is measured. A virtual machine may be stopped for some milliseconds at any
/// moment, so the median counts.
const ROUNDS: usize = 9;

/// Handlers that take known times. They report how long they really took.
struct Lab {
    gate: Gate,
    took: Sender<Duration>,
    completed: Sender<Exchange>,
    is_timed: bool,
}

struct Observed {
    server: TestServer,
    gate: Gate,
    took: Receiver<Duration>,
    completed: Receiver<Exchange>,
}

impl Service for Lab {
    fn plan(&self, request: &mut Request) -> Plan {
        let plan = if self.is_timed { Plan::new().timed() } else { Plan::new() };
        match request.path() {
            "/gate" => plan.on_pool().route(1),
            "/sleep" => plan.route(2),
            "/spin" => plan.on_loop().route(3),
            "/collect" => plan.buffered().route(4),
            "/large" => plan.route(5),
            "/panic" => plan.route(6),
            _ => plan.route(0),
        }
    }

    fn measures(&self) -> bool {
        true
    }

    fn answered(&self, response: &mut Response, exchange: &mut Exchange) {
        assert_eq!(exchange.timing.write, Duration::ZERO);
        exchange.note = Some(Arc::new("noted".to_owned()));
        let timing = format!("{:?}", exchange.timing.total());
        response.set_header("x-time", &timing).unwrap();
    }

    fn completed(&self, exchange: &Exchange) {
        let note = exchange.note.as_ref().unwrap().downcast_ref::<String>();
        assert_eq!(note.map(String::as_str), Some("noted"));
        let _ = self.completed.send(exchange.clone());
    }

    fn call(&self, request: Request) -> Response {
        let time = request.query_value("us").and_then(|us| us.parse().ok()).unwrap_or(0);
        let time = Duration::from_micros(time);
        let started = Instant::now();
        match request.path() {
            "/gate" => self.gate.pass(),
            "/sleep" => thread::sleep(time),
            "/spin" => while started.elapsed() < time {},
            "/large" => {
                let mut response = Response::default();
                response.set_bytes(vec![b'x'; 32 << 20]);
                return response;
            }
            "/panic" => panic!("as planned"),
            _ => return Response::from("brief"),
        }
        let _ = self.took.send(started.elapsed());
        Response::from(request.queued().as_micros().to_string())
    }
}

impl Observed {
    fn with(config: ServerConfig, is_timed: bool) -> Self {
        let (took_sender, took) = channel();
        let (completed_sender, completed) = channel();
        let gate = Gate::new();
        let lab =
            Lab { gate: gate.clone(), took: took_sender, completed: completed_sender, is_timed };
        Self { server: TestServer::with(config, lab), gate, took, completed }
    }

    fn timed() -> Self {
        Self::with(ServerConfig::default(), true)
    }

    #[track_caller]
    fn next(&self) -> Exchange {
        self.completed.recv_timeout(DEADLINE).expect("an exchange completes")
    }

    /// Requests `target` several times. Returns the median of the results of `error_of`, which is
    /// given the timing of an exchange and the time that its handler took.
    fn median_error(
        &self,
        target: &str,
        error_of: impl Fn(&Timing, Duration) -> Duration,
    ) -> Duration {
        let mut client = self.server.client();
        let mut errors: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                client.get(target);
                let took = self.took.recv_timeout(DEADLINE).unwrap();
                error_of(&self.next().timing, took)
            })
            .collect();
        errors.sort();
        errors[ROUNDS / 2]
    }
}

fn tolerance(time: Duration) -> Duration {
    TOLERANCE.max(time / 10)
}

#[test]
fn computing_and_waiting_are_told_apart() {
    for us in [0, 100, 1_000, 20_000, 100_000] {
        for loops in [1, 2] {
            let observed = Observed::with(ServerConfig::default().event_loops(loops), true);
            let time = Duration::from_micros(us);
            let slept = observed.median_error(&format!("/sleep?us={us}"), |timing, took| {
                timing.waiting.abs_diff(took) + timing.turn + timing.queue
            });
            assert!(slept <= tolerance(time), "sleeping {time:?}: off by {slept:?}");
            // A thread that is preempted does not compute, so its time may be less on the loop.
            let spun = observed.median_error(&format!("/spin?us={us}"), |timing, took| {
                (timing.computing + timing.waiting).abs_diff(took) + timing.queue
            });
            assert!(spun <= tolerance(time), "spinning {time:?}: off by {spun:?}");
        }
    }
}

#[test]
fn spinning_is_computing() {
    let observed = Observed::timed();
    // A thread that is preempted does not compute, and other tests need the processors too.
    eventually("a call has computed for nearly all of its time", || {
        observed.server.client().get("/spin?us=5000");
        let timing = observed.next().timing;
        timing.computing > (timing.computing + timing.waiting).mul_f64(0.9)
    });
}

#[test]
fn the_wait_for_a_thread_is_the_queue() {
    let observed = Observed::with(ServerConfig::default().threads_max(1), true);
    let mut holder = observed.server.client();
    holder.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    observed.gate.holds(1);
    let mut waiting = observed.server.client();
    let sent = Instant::now();
    waiting.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("a request waits", || observed.server.metrics().waiting == 1);
    let seen = Instant::now();
    thread::sleep(Duration::from_millis(50));
    let at_least = seen.elapsed();
    observed.gate.open();
    let told = waiting.response();
    let at_most = sent.elapsed();
    assert_eq!(holder.response().text(), "0", "it did not wait");
    let told: u128 = told.text().parse().unwrap();
    assert!(told >= at_least.as_micros() && told <= at_most.as_micros(), "{told} us");
    let first = observed.next();
    assert!(first.timing.waiting >= at_least, "{:?}", first.timing);
    let second = observed.next();
    let queue = second.timing.queue;
    assert!(queue >= at_least && queue <= at_most, "{queue:?}: {at_least:?} to {at_most:?}");
    assert_eq!((second.ran, second.stands_for), (Some(Ran::OnPool), 1));
    assert_eq!((second.route, second.status), (Some(1), StatusCode::OK));
}

#[test]
fn a_head_and_a_content_that_arrive_slowly_are_phases_of_their_own() {
    let observed = Observed::with(ServerConfig::default(), false);
    let mut client = observed.server.client();
    client.get("/");
    client.send("POST /collect HTTP/1.1\r\n");
    let pause = Duration::from_millis(30);
    thread::sleep(pause);
    let head_sent = Instant::now();
    client.send("Host: a\r\nContent-Length: 4\r\n\r\n12");
    thread::sleep(pause * 2);
    client.send("34");
    client.response();
    let at_most = head_sent.elapsed();
    let exchange = loop {
        let exchange = observed.next();
        if exchange.route == Some(4) {
            break exchange;
        }
    };
    let Timing { head, content, .. } = exchange.timing;
    // The server may notice the first bytes a little late.
    assert!(head > pause / 2, "{:?}", exchange.timing);
    assert!(content > pause && content <= at_most, "{:?}", exchange.timing);
    assert_eq!(exchange.stands_for, 1);
}

#[test]
fn a_client_that_reads_slowly_is_seen_in_the_write() {
    let observed = Observed::timed();
    let mut client = observed.server.client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let pause = Duration::from_millis(50);
    thread::sleep(pause);
    assert!(observed.completed.try_recv().is_err(), "the response is not written yet");
    client.response();
    let timing = observed.next().timing;
    assert!(timing.write > pause / 2, "{timing:?}");
}

#[test]
fn a_client_that_leaves_breaks_the_exchange() {
    let observed = Observed::timed();
    let mut client = observed.server.client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_exactly(1);
    drop(client);
    assert!(observed.next().is_broken);
}

#[test]
fn a_refused_request_tells_how_long_it_waited() {
    let config = ServerConfig::default().threads_max(1).queue_timeout(Duration::from_millis(20));
    let observed = Observed::with(config, false);
    let mut holder = observed.server.client();
    holder.send("GET /gate HTTP/1.1\r\nHost: a\r\n\r\n");
    observed.gate.holds(1);
    let response = observed.server.client().get("/gate");
    assert_eq!(response.status, 503);
    let exchange = observed.next();
    assert_eq!((exchange.refusal, exchange.ran), (Some(Refusal::Overloaded), None));
    assert_eq!((exchange.status, exchange.route), (StatusCode::SERVICE_UNAVAILABLE, Some(1)));
    assert_eq!((exchange.timing.computing, exchange.timing.waiting), Default::default());
    observed.gate.open();
    holder.response();
    assert_eq!(observed.next().refusal, None);
}

#[test]
fn a_panic_is_an_exchange_with_a_500() {
    let observed = Observed::timed();
    observed.server.client().get("/panic");
    assert_eq!(observed.next().status, StatusCode::INTERNAL_SERVER_ERROR);
}

/// Of 4,000 requests that compute briefly, about 1/16 are samples, and together they stand for
/// about all of them.
#[test]
fn samples_stand_for_the_others() {
    const REQUESTS: usize = 4_000;
    let observed = Observed::with(ServerConfig::default().event_loops(1), false);
    let mut client = observed.server.client();
    for _ in 0..REQUESTS {
        client.get("/");
    }
    drop(client);
    observed.server.is_left_by_all();
    let exchanges: Vec<_> = observed.completed.try_iter().collect();
    let stands_for: usize = exchanges.iter().map(|one| one.stands_for as usize).sum();
    assert!(exchanges.len() < REQUESTS / 4, "{} exchanges", exchanges.len());
    assert!((REQUESTS / 2..REQUESTS * 2).contains(&stands_for), "they stand for {stands_for}");
}

/// Pipelined responses are written together. Each is an exchange of its own.
#[test]
fn pipelined_requests_are_measured_one_by_one() {
    let observed = Observed::timed();
    let mut client = observed.server.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(10));
    for _ in 0..10 {
        assert!(client.response().lines.iter().any(|line| line.starts_with("x-time: ")));
        assert!(observed.next().is_timed);
    }
    assert!(observed.completed.try_recv().is_err());
}

/// A connection whose request is never complete is no exchange.
#[test]
fn an_incomplete_request_is_not_reported() {
    let observed = Observed::timed();
    let mut client: Client = observed.server.client();
    client.send("GET / HT");
    eventually("the server has read it", || observed.server.metrics().parked == 1);
    drop(client);
    observed.server.is_left_by_all();
    assert!(observed.completed.try_recv().is_err());
}
