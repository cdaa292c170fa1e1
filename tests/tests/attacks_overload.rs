//! Overload, or a database that hangs: accepted requests are answered in time, and all others are
//! refused at once.
//!
//! Run with `--nocapture` to see the figures.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "a figure is for those who read the output of a test")]

use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::ServerConfig;
use filoplume_tests::attack::Site;
use filoplume_tests::{Client, Latencies, Noise, eventually_within, one_at_a_time};

/// The number of threads of the server.
const THREADS: usize = 16;

/// As many clients as one route may have threads.
const AT_CAPACITY: usize = 15;

/// How long each load lasts, and how long it runs before it is measured, so that the server knows
/// the rate of the route.
const LOAD: Duration = Duration::from_millis(1000);
const START: Duration = Duration::from_millis(150);

/// How long a request may wait for a thread where most have to be refused.
const PATIENCE: Duration = Duration::from_millis(40);

/// How long a refusal takes, if the server knows that a request would wait for too long.
const REFUSED_WITHIN: Duration = Duration::from_millis(5);

/// How long a database is slow, and how long is measured before and after that.
const OUTAGE: Duration = Duration::from_secs(2);
const BRIEFLY: Duration = Duration::from_millis(700);

/// A time slice on the processor, for which a thread that could run may have to wait.
const TURN: Duration = Duration::from_millis(4);

/// The minimum ratio of the responses during an overload or an outage to those without it.
const GOODPUT_MIN: f64 = 0.95;

/// How often a load is measured at most, if the figures are not as they should be.
const TRIES: usize = 5;

/// How long a refused client waits before its next request.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

fn configs() -> [(&'static str, ServerConfig); 2] {
    [("default", ServerConfig::default()), ("strict", ServerConfig::strict())]
}

/// Maximum 99th percentile of responses that wait for no handler, in addition to the delay that the
/// machine itself causes.
const AT_ONCE: Duration = Duration::from_millis(20);

/// The results of a load.
#[derive(Default)]
struct Outcome {
    accepted: Latencies,
    refused: Latencies,
    /// How much later than on a quiet machine a response may have arrived.
    noise: Duration,
}

impl Outcome {
    fn say(&self, name: &str) {
        println!("{name}: accepted {}", self.accepted);
        if self.refused.count() > 0 {
            println!("    refused {}", self.refused);
        }
        println!("    noise {:?}", self.noise);
    }
}

/// Returns a new address of this machine for each client: `strict()` counts clients that share an
/// address together.
fn new_address() -> Ipv4Addr {
    static CLIENTS: AtomicU32 = AtomicU32::new(0);
    let [_, a, b, c] = (CLIENTS.fetch_add(1, Ordering::Relaxed) % (1 << 24)).to_be_bytes();
    Ipv4Addr::new(127, a + 1, b, c)
}

/// Loads the site with closed-loop clients that request `target` until `is_over` returns `true`.
fn load(site: &Site, clients: usize, target: &str, is_over: impl Fn() -> bool + Sync) -> Outcome {
    let outcome = Mutex::new(Outcome::default());
    let noise = Noise::start();
    let begins = Instant::now() + START;
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Client::connect_from(new_address(), site.address());
                let mut own = Outcome::default();
                while !is_over() {
                    let started = Instant::now();
                    let response = client.get(target);
                    let took = started.elapsed();
                    let is_measured = started >= begins;
                    match response.status {
                        200 if is_measured => own.accepted.add(took),
                        200 => {}
                        503 => {
                            assert!(response.header("retry-after").is_some(), "{response:?}");
                            if is_measured {
                                own.refused.add(took);
                            }
                            thread::sleep(AGAIN_AFTER);
                        }
                        _ => panic!("{response:?}"),
                    }
                }
                let mut outcome = outcome.lock().unwrap();
                outcome.accepted.extend(&own.accepted);
                outcome.refused.extend(&own.refused);
            });
        }
    });
    Outcome { noise: noise.stop(), ..outcome.into_inner().unwrap() }
}

fn brief(site: &Site, clients: usize) -> Outcome {
    let end = Instant::now() + LOAD;
    load(site, clients, "/brief", || Instant::now() >= end)
}

/// Measures again if a time or a rate is not as it should be: another program may have had the
/// processors.
#[track_caller]
fn holds(name: &str, check: impl Fn() -> Result<(), String>) {
    for tries_left in (0..TRIES).rev() {
        let Err(defect) = check() else { return };
        println!("{name}: {defect}");
        assert!(tries_left > 0, "{name}: {defect}");
    }
}

fn is_as_much(over: &Outcome, at_capacity: &Outcome) -> Result<(), String> {
    let [over, enough] = [over, at_capacity].map(|outcome| outcome.accepted.count());
    let answers = format!("{over} answers where {enough} are possible");
    if over as f64 >= enough as f64 * GOODPUT_MIN { Ok(()) } else { Err(answers) }
}

fn is_within(bound: Duration, latency: Duration, what: &str) -> Result<(), String> {
    if latency <= bound { Ok(()) } else { Err(format!("{what}: {latency:?} over {bound:?}")) }
}

/// Asserts that the server is idle again in time.
#[track_caller]
fn is_normal_within(site: &Site, time: Duration) {
    eventually_within(time, "nothing waits, and nothing is held", || {
        let now = site.metrics();
        (now.connections, now.waiting, now.memory_used) == (0, 0, 0)
    });
}

#[test]
fn three_and_ten_times_as_many_clients_as_threads() {
    let _alone = one_at_a_time();
    for (name, config) in configs() {
        holds(name, || {
            let site = Site::start(config.clone().threads_max(THREADS));
            // The server learns that the route blocks.
            load(&site, 2, "/brief", || site.metrics().requests > 50);
            let at_capacity = brief(&site, AT_CAPACITY);
            at_capacity.say(&format!("{name}, {AT_CAPACITY} clients"));
            assert_eq!(at_capacity.refused.count(), 0);
            for times in [3, 10] {
                // The estimate of the backlog still comes from the previous load.
                is_normal_within(&site, Duration::from_secs(2));
                let over = brief(&site, THREADS * times);
                over.say(&format!("{name}, {} clients", THREADS * times));
                assert_eq!(over.refused.count(), 0, "all can be served in time");
                is_as_much(&over, &at_capacity)?;
                let round = at_capacity.accepted.p99() * u32::try_from(times).unwrap();
                is_within(round * 2 + over.noise, over.accepted.p99(), "accepted")?;
            }
            is_normal_within(&site, Duration::from_secs(2));
            Ok(())
        });
    }
}

/// A request that would wait too long is refused at once.
#[test]
fn more_than_can_be_served_in_time() {
    let _alone = one_at_a_time();
    for (name, config) in configs() {
        holds(name, || {
            let config = config.clone().threads_max(THREADS).queue_timeout(PATIENCE);
            let site = Site::start(config);
            load(&site, 2, "/brief", || site.metrics().requests > 50);
            let at_capacity = brief(&site, AT_CAPACITY);
            at_capacity.say(&format!("{name}, 40 ms, {AT_CAPACITY} clients"));
            for times in [5, 15] {
                let over = brief(&site, THREADS * times);
                over.say(&format!("{name}, 40 ms, {} clients", THREADS * times));
                assert!(over.refused.count() > 0, "it was not too much");
                is_as_much(&over, &at_capacity)?;
                let bound = PATIENCE + at_capacity.accepted.p99() * 2 + over.noise;
                is_within(bound, over.accepted.p99(), "accepted")?;
                // The estimate of the wait is wrong for some requests, which are refused only when
                // their time is over.
                is_within(bound, over.refused.p99(), "refused")?;
                let bound = REFUSED_WITHIN + over.noise;
                is_within(bound, over.refused.median(), "half of those refused")?;
            }
            is_normal_within(&site, Duration::from_secs(2));
            Ok(())
        });
    }
}

/// Eight of ten clients send requests that hang. The others, and the health check, are not
/// affected.
#[test]
fn a_database_that_hangs() {
    let _alone = one_at_a_time();
    for (name, config) in configs() {
        holds(name, || others_are_served_during_an_outage(name, config.clone()));
    }
}

fn others_are_served_during_an_outage(name: &str, config: ServerConfig) -> Result<(), String> {
    let site = Site::start(config.threads_max(64));
    let (is_over, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let [before, during, after] = thread::scope(|scope| {
        let database =
            scope.spawn(|| load(&site, 80, "/database", || is_done.load(Ordering::SeqCst)));
        let others = |clients, target: &'static str, time| {
            is_over.store(false, Ordering::SeqCst);
            let asking = scope.spawn({
                let (site, is_over) = (&site, &is_over);
                move || load(site, clients, target, || is_over.load(Ordering::SeqCst))
            });
            let health = scope.spawn({
                let (site, is_over) = (&site, &is_over);
                move || load(site, 1, "/health", || is_over.load(Ordering::SeqCst))
            });
            thread::sleep(time);
            is_over.store(true, Ordering::SeqCst);
            (asking.join().unwrap(), health.join().unwrap())
        };
        let before = others(20, "/brief", BRIEFLY);
        site.outage(true);
        let during = others(20, "/brief", OUTAGE);
        site.outage(false);
        let ended = Instant::now();
        eventually_within(Duration::from_secs(2), "the calls that hung are over", || {
            let now = site.metrics();
            now.waiting < 80
        });
        println!("{name}: the line is short after {:?}", ended.elapsed());
        let after = others(20, "/brief", BRIEFLY);
        is_done.store(true, Ordering::SeqCst);
        let database = database.join().unwrap();
        database.say(&format!("{name}, database"));
        [before, during, after]
    });
    for (when, (others, health)) in [("before", &before), ("during", &during), ("after", &after)] {
        others.say(&format!("{name}, others {when}"));
        health.say(&format!("{name}, health {when}"));
        assert_eq!((others.refused.count(), health.refused.count()), (0, 0), "{when}");
        let bound = before.0.accepted.p99() * 6 / 5 + TURN + others.noise;
        is_within(bound, others.accepted.p99(), &format!("{when}, others"))?;
        is_within(AT_ONCE + health.noise, health.accepted.p99(), &format!("{when}, health"))?;
    }
    let rate = |(others, _): &(Outcome, Outcome), time: Duration| {
        others.accepted.count() as f64 / (time - START).as_secs_f64()
    };
    let (before, during) = (rate(&before, BRIEFLY), rate(&during, OUTAGE));
    println!("{name}: others had {before:.0} answers per second before, {during:.0} during");
    if during < before * GOODPUT_MIN {
        return Err(format!("others: {during:.0} of {before:.0} answers per second"));
    }
    is_normal_within(&site, Duration::from_secs(2));
    Ok(())
}
