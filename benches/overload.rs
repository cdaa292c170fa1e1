//! Does a server under a threefold overload still reach its full goodput, and in time?
//!
//! `cargo bench -p filoplume-benches --bench overload`
//!
//! The capacity is known from the number of threads and the duration of a handler. Each client has
//! its own connection and sends at a constant rate, whatever the result of its last request.
//! Goodput is the rate of responses with status 200. All other requests get a quick 503.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, Server, ServerConfig, Service};

/// How long each load lasts, after a warm-up of a tenth of that.
const LOAD: Duration = Duration::from_secs(3);

/// Requests per client and second.
const RATE_A_CLIENT: u64 = 20;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n";

/// How a handler spends its time.
#[derive(Clone, Copy)]
enum Work {
    /// Waits, as for a database.
    Waits(Duration),
    /// Computes on a core, which the clients and the refusals also use.
    Computes(Duration),
}

impl Service for Work {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().on_pool()
    }

    fn call(&self, _: Request) -> Response {
        match *self {
            Self::Waits(time) => thread::sleep(time),
            Self::Computes(time) => {
                let started = Instant::now();
                while started.elapsed() < time {
                    std::hint::spin_loop();
                }
            }
        }
        Response::from("done")
    }
}

/// The results of a load: the sorted latencies of accepted and of refused requests.
#[derive(Default)]
struct Outcome {
    accepted: Vec<Duration>,
    refused: Vec<Duration>,
    failed: usize,
}

fn main() {
    measure(
        "a handler that waits 10 ms, 16 threads",
        Work::Waits(Duration::from_millis(10)),
        16,
        1600,
    );
    measure(
        "a handler that computes 2 ms, 1 thread",
        Work::Computes(Duration::from_millis(2)),
        1,
        500,
    );
}

/// Loads a server with increasing multiples of its `capacity`, in requests per second.
fn measure(what: &str, work: Work, threads: usize, capacity: u64) {
    println!("{what}: at most {capacity} requests/s");
    let config = ServerConfig::default().threads_max(threads).queue_capacity(threads);
    let server =
        Server::builder().bind("127.0.0.1:0").and_then(|builder| builder.config(config).build());
    let server = server.expect("a free port");
    server.spawn(work).expect("it serves");
    let address = server.local_addr().expect("an address");
    let outcomes: Vec<Outcome> = (1..=3).map(|times| load(address, capacity * times)).collect();
    let best = outcomes.iter().map(|outcome| outcome.accepted.len()).max().unwrap_or(1).max(1);
    for (outcome, times) in outcomes.iter().zip(1..) {
        let (accepted, refused) = (outcome.accepted.len(), outcome.refused.len());
        println!(
            "  {times}x: goodput {:>7.1}/s, {:>5.1} % of the best; accepted p50 {:>6.2} ms, p99 \
             {:>6.2} ms; refused {:>7.1}/s, p99 {:>6.2} ms; failed {}",
            rate(accepted),
            accepted as f64 * 100.0 / best as f64,
            percentile(&outcome.accepted, 50),
            percentile(&outcome.accepted, 99),
            rate(refused),
            percentile(&outcome.refused, 99),
            outcome.failed,
        );
    }
    server.shutdown_handle().shutdown();
    server.wait();
}

fn rate(count: usize) -> f64 {
    count as f64 / LOAD.as_secs_f64()
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(at).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
}

fn load(address: SocketAddr, rate: u64) -> Outcome {
    let clients = rate.div_ceil(RATE_A_CLIENT);
    let outcome = Mutex::new(Outcome::default());
    let started = Instant::now() + Duration::from_millis(200);
    let measured = started + LOAD / 10;
    thread::scope(|scope| {
        for client in 0..clients {
            let outcome = &outcome;
            scope.spawn(move || {
                let offset = Duration::from_secs_f64(client as f64 / rate as f64);
                let own = ask(address, started + offset, measured);
                let mut outcome = outcome.lock().expect("no client panics");
                outcome.accepted.extend(own.accepted);
                outcome.refused.extend(own.refused);
                outcome.failed += own.failed;
            });
        }
    });
    let mut outcome = outcome.into_inner().expect("no client panics");
    outcome.accepted.sort();
    outcome.refused.sort();
    outcome
}

/// Sends requests at a constant rate. A late request is sent at once, and its time counts from when
/// it was due.
fn ask(address: SocketAddr, first: Instant, measured: Instant) -> Outcome {
    let mut outcome = Outcome::default();
    let mut socket = TcpStream::connect(address).expect("the server accepts");
    socket.set_nodelay(true).expect("a TCP socket");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a TCP socket");
    let mut due = first;
    while due < measured + LOAD {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut answer = [0; 1024];
        let read = socket.write_all(REQUEST).and_then(|()| socket.read(&mut answer)).unwrap_or(0);
        let latency = due.elapsed();
        if due >= measured {
            match answer.get(..read).unwrap_or_default() {
                answer if answer.starts_with(b"HTTP/1.1 200 ") => outcome.accepted.push(latency),
                answer if answer.starts_with(b"HTTP/1.1 503 ") => outcome.refused.push(latency),
                _ => outcome.failed += 1,
            }
        }
        due += Duration::from_secs(1) / u32::try_from(RATE_A_CLIENT).unwrap_or(1);
    }
    outcome
}
