//! A server under mixed load, none of which is stuck: nothing is reported.
//!
//! ```sh
//! STUCK_LOAD_SECONDS=3600 cargo test -p filoplume-runtime --release --test stuck_load \
//!     -- --nocapture
//! ```

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{
    Plan, Request, Response, Server, ServerConfig, Service, Stuck, note_request_id,
};

/// Numbers that look random, by a linear congruential generator.
#[derive(Default)]
struct Chance(AtomicU64);

impl Chance {
    /// Returns a number from 0 to 1.
    fn next(&self) -> f64 {
        let step = |state: u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let state = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).unwrap();
        (state >> 40) as f64 / (1_u64 << 24) as f64
    }

    /// Returns a random time with this mean. Few are long, and none is longer than `most`.
    fn time(&self, mean: Duration, most: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.next()).ln()).min(most)
    }
}

struct Mixed {
    chance: Chance,
    lock: Mutex<()>,
    reports: mpsc::Sender<Stuck>,
}

const PATHS: [&str; 7] =
    ["/quick", "/computes", "/waits", "/rarely", "/locks", "/upload", "/report"];

impl Service for Mixed {
    fn plan(&self, request: &mut Request) -> Plan {
        let number = PATHS.iter().position(|&path| path == request.path()).unwrap();
        let plan = Plan::new().route(u32::try_from(number).unwrap());
        if request.path() == "/upload" { plan.streamed() } else { plan }
    }

    fn route_name(&self, route: u32) -> Option<String> {
        PATHS.get(route as usize).map(|&path| path.to_owned())
    }

    fn call(&self, mut request: Request) -> Response {
        let id = request.path().to_owned();
        let _id = note_request_id(&id);
        let millis = Duration::from_millis;
        match &*id {
            "/computes" => {
                let ends = Instant::now() + self.chance.time(millis(2), millis(20));
                while Instant::now() < ends {}
            }
            "/waits" => thread::sleep(self.chance.time(millis(20), millis(500))),
            "/rarely" if self.chance.next() < 0.01 => thread::sleep(millis(300)),
            "/locks" => {
                let held = self.lock.lock().unwrap();
                thread::sleep(millis(1));
                drop(held);
            }
            "/upload" => _ = std::io::copy(request.body_mut(), &mut std::io::sink()),
            // A route that is always slow.
            "/report" => thread::sleep(self.chance.time(millis(2000), millis(7000))),
            _ => {}
        }
        Response::from("done")
    }

    fn stuck(&self, stuck: &Stuck) {
        let _ = self.reports.send(stuck.clone());
    }
}

/// Sends requests to one route until the time is over. Returns their number.
fn load(address: SocketAddr, path: &str, ends: Instant) -> u64 {
    let mut client = TcpStream::connect(address).unwrap();
    let content = if path == "/upload" { "x".repeat(100_000) } else { String::new() };
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{content}",
        content.len()
    );
    let mut requests = 0;
    let mut response = [0; 1024];
    while Instant::now() < ends {
        client.write_all(request.as_bytes()).unwrap();
        let mut read = 0;
        while !response[..read].ends_with(b"done") {
            let more = client.read(&mut response[read..]).unwrap();
            assert!(more > 0, "{path}: the connection ended");
            read += more;
        }
        requests += 1;
    }
    requests
}

#[allow(clippy::print_stdout, reason = "`--nocapture` shows the number of requests")]
fn run(time: Duration) {
    let (sender, reports) = mpsc::channel();
    let server = Server::builder().bind("127.0.0.1:0").unwrap();
    let server = server.config(ServerConfig::default().event_loops(2)).build().unwrap();
    let service = Mixed { chance: Chance::default(), lock: Mutex::default(), reports: sender };
    server.spawn(service).unwrap();
    let address = server.local_addr().unwrap();
    let ends = Instant::now() + time;
    let loads: Vec<_> = PATHS
        .iter()
        .flat_map(|path| [path; 4])
        .map(|path| thread::spawn(move || (path, load(address, path, ends))))
        .collect();
    let mut requests = 0;
    for load in loads {
        let (path, count) = load.join().unwrap();
        assert!(count > 0, "{path}");
        requests += count;
    }
    let false_reports: Vec<_> = reports.try_iter().map(|stuck| stuck.to_string()).collect();
    assert!(false_reports.is_empty(), "{false_reports:#?}");
    println!("{requests} requests in {time:?}, none reported");
    server.shutdown_handle().shutdown();
}

/// Some seconds, or as long as `STUCK_LOAD_SECONDS` says.
#[test]
fn mixed_load_has_no_report() {
    let seconds = env::var("STUCK_LOAD_SECONDS").ok().and_then(|text| text.parse().ok());
    run(Duration::from_secs(seconds.unwrap_or(4)));
}
