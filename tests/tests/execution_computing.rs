//! Handlers that compute share the processors with everybody else. So only as many of them run at a
//! time as keep the processors busy, while any number of handlers that wait may run.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::hint::black_box;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Request, ServerConfig};
use filoplume_tests::{Load, TestServer, eventually, one_at_a_time, site};

const MS: Duration = Duration::from_millis(1);

/// How many clients call each route.
const CLIENTS: usize = 100;

/// A server whose routes count how many of their calls run at a time.
struct Counted {
    server: TestServer,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    running: AtomicUsize,
    most: AtomicUsize,
    ended: AtomicUsize,
    /// Whether calls have changed: those that computed before wait or end, and quick ones compute.
    is_changed: AtomicBool,
}

impl Counted {
    fn start() -> Self {
        let counts = Arc::new(Counts::default());
        let of_calls = Arc::clone(&counts);
        let config = ServerConfig::default().queue_timeout(MS * 60_000);
        let server = TestServer::with(config, move |request: Request| {
            let path = request.path();
            if path == "/computes" || path == "/changes" {
                of_calls.runs(|| {
                    if path == "/changes" && of_calls.is_changed.load(Ordering::SeqCst) {
                        thread::sleep(MS * 50);
                    } else {
                        compute(MS * 5);
                    }
                });
            } else if path == "/both" {
                of_calls.runs(|| {
                    compute(MS);
                    thread::sleep(MS * 100);
                });
            }
            site(request)
        });
        Self { server, counts }
    }

    fn load(&self, target: &'static str) -> Load {
        Load::start(self.server.address(), CLIENTS, target)
    }

    /// Returns the maximum number of calls that run at a time, from now on for `time`.
    fn most_within(&self, time: Duration) -> usize {
        self.counts.most.store(0, Ordering::SeqCst);
        thread::sleep(time);
        self.counts.most.load(Ordering::SeqCst)
    }
}

impl Counts {
    fn runs(&self, call: impl FnOnce()) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        call();
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Keeps its thread ready to run for about this time.
fn compute(time: Duration) {
    let end = Instant::now() + time;
    while black_box(Instant::now()) < end {}
}

/// The maximum number of calls that compute at a time: those that the engine allows, those that
/// each route may have in any case, and one for each loop, where a call of a known route may still
/// run.
fn computing_max() -> usize {
    let processors = thread::available_parallelism().unwrap().get();
    4 * processors + 2 + processors
}

#[test]
fn few_handlers_compute_at_a_time_and_all_are_answered() {
    let _alone = one_at_a_time();
    let counted = Counted::start();
    let load = counted.load("/computes");
    eventually("few handlers compute at a time", || {
        counted.most_within(MS * 200) <= computing_max()
    });
    load.each_reaches(2);
    load.stop();
    assert_eq!(counted.server.metrics().overloaded, 0);
}

/// For example, a route that parses contents is quick until somebody sends long ones.
#[test]
fn a_quick_route_that_begins_to_compute_does_not_get_a_thread_for_each_request() {
    let _alone = one_at_a_time();
    let clients = 8 * computing_max();
    // Some calls are caught on their loops before the route leaves these, and the checks of the
    // server correct the rest. Otherwise most of the clients would compute at a time. On a busy
    // machine the checks may be late, but not each time.
    let is_fine = (0..3).any(|_| {
        let most = most_after_a_change(clients);
        println!("{most} of {clients} computed at a time");
        most <= clients / 2
    });
    assert!(is_fine, "too many computed at a time");
}

/// Returns how many calls of a route computed at a time after it had been quick.
fn most_after_a_change(clients: usize) -> usize {
    let counts = Arc::new(Counts::default());
    let of_calls = Arc::clone(&counts);
    let config = ServerConfig::default().queue_timeout(MS * 60_000);
    let server = TestServer::with(config, move |request: Request| {
        if of_calls.is_changed.load(Ordering::SeqCst) {
            of_calls.runs(|| compute(MS * 200));
        }
        site(request)
    });
    let mut client = server.client();
    (0..500).for_each(|_| _ = client.get("/parses"));
    counts.is_changed.store(true, Ordering::SeqCst);
    let load = Load::start(server.address(), clients, "/parses");
    load.each_reaches(2);
    load.stop();
    counts.most.load(Ordering::SeqCst)
}

/// If the server learned only from calls that have returned, it would not know for a minute that
/// these compute, because all of them would run at the same time.
#[test]
fn handlers_that_compute_for_long_are_found_while_they_run() {
    let _alone = one_at_a_time();
    let counts = Arc::new(Counts::default());
    let of_calls = Arc::clone(&counts);
    let config = ServerConfig::default().queue_timeout(MS * 60_000);
    let server = TestServer::with(config, move |request: Request| {
        if request.path() == "/long" {
            of_calls.runs(|| {
                while !of_calls.is_changed.load(Ordering::SeqCst) {
                    compute(MS);
                }
            });
        }
        site(request)
    });
    let mut clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.client();
            client.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    eventually("several of them run", || counts.running.load(Ordering::SeqCst) > 2);
    // By then the server has seen that they compute.
    thread::sleep(MS * 400);
    clients.extend((0..80).map(|_| {
        let mut client = server.client();
        client.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    }));
    eventually("they wait", || server.metrics().waiting > 60);
    assert!(counts.running.load(Ordering::SeqCst) < 40, "{:?}", counts.running);
    counts.is_changed.store(true, Ordering::SeqCst);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn handlers_that_compute_and_wait_run_in_as_many_threads_as_keep_the_processors_busy() {
    let _alone = one_at_a_time();
    let counted = Counted::start();
    let load = counted.load("/both");
    // At least half of the clients are answered at a time: their handlers mostly wait.
    eventually("most of the clients have a thread", || counted.most_within(MS * 300) > CLIENTS / 2);
    load.each_reaches(3);
    load.stop();
}

#[test]
fn a_route_that_begins_to_wait_has_threads_for_all_and_one_that_computes_again_has_few() {
    let _alone = one_at_a_time();
    let counted = Counted::start();
    let load = counted.load("/changes");
    let few = || counted.most_within(MS * 200) <= computing_max();
    eventually("few compute", few);
    counted.counts.is_changed.store(true, Ordering::SeqCst);
    eventually("nearly all wait at a time", || counted.most_within(MS * 200) > CLIENTS * 4 / 5);
    counted.counts.is_changed.store(false, Ordering::SeqCst);
    eventually("few compute again", few);
    load.stop();
}

/// At first the threads of the handlers wait for their clients, and nothing is known of the route.
/// When the rest of all contents arrives, all handlers continue.
#[test]
fn few_handlers_compute_at_a_time_with_contents_that_arrive_meanwhile() {
    const CONTENT: usize = 4_000_000;
    const PIECE: usize = CONTENT / 20;
    /// More than the loops read before they call a handler. A handler is found to compute when it
    /// has done so twice.
    const FIRST: usize = PIECE * 5 / 2;
    let _alone = one_at_a_time();
    let counts = Arc::new(Counts::default());
    let of_calls = Arc::clone(&counts);
    let server = TestServer::with(ServerConfig::default(), move |mut request: Request| {
        let mut piece = vec![0; PIECE];
        while request.body_mut().read_exact(&mut piece).is_ok() {
            of_calls.runs(|| compute(MS * 2));
            of_calls.ended.fetch_add(1, Ordering::SeqCst);
        }
        site(request)
    });
    // With more clients than that, the loops collect contents before they call handlers.
    let clients = (8 * computing_max()).min(60);
    let mut clients: Vec<_> = (0..clients)
        .map(|_| {
            let mut client = server.client();
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {CONTENT}\r\n\r\n"));
            // One after the other: a thread that is preempted computes for less than it seems to.
            let ended = counts.ended.load(Ordering::SeqCst) + 2;
            client.send(vec![0; FIRST]);
            eventually("it has computed", || counts.ended.load(Ordering::SeqCst) >= ended);
            client
        })
        .collect();
    eventually("all of them read", || server.metrics().held_streams == clients.len());
    counts.most.store(0, Ordering::SeqCst);
    for client in &mut clients {
        client.send(vec![0; CONTENT - FIRST]);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let most = counts.most.load(Ordering::SeqCst);
    assert!(most <= computing_max(), "{most} of {} computed at a time", clients.len());
}
