//! Calls that wait do not affect others. A plain route beside them is quick, every client is
//! served, and only as many threads remain as the waits need.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, Server, ServerConfig, Service};
use filoplume_tests::{
    Client, Gate, Latencies, Load, TestServer, ask, eventually, one_at_a_time, site,
};

/// Maximum latency of a plain route.
const LONGEST: Duration = Duration::from_millis(250);

/// Maximum median latency of a plain route.
const MEDIAN: Duration = Duration::from_millis(20);

/// A site whose `/waits` waits for this time.
fn waits(config: ServerConfig, wait: Duration) -> TestServer {
    TestServer::with(config, move |request: Request| {
        if request.path() == "/waits" {
            thread::sleep(wait);
        }
        site(request)
    })
}

/// Sends requests to a plain route, and returns their latencies.
fn plain_answers(client: &mut Client, requests: usize) -> Latencies {
    let mut latencies = Latencies::default();
    for _ in 0..requests {
        let started = Instant::now();
        client.is_alive();
        latencies.add(started.elapsed());
    }
    latencies
}

#[test]
fn a_plain_route_is_quick_from_the_first_call_of_a_waiting_one_on() {
    let _alone = one_at_a_time();
    for (loops, wait_ms) in [(1, 1), (1, 10), (2, 1), (2, 10)] {
        // A new server each time, because the test is about the time before it has learned
        // anything.
        eventually("a plain client is answered at once", || {
            let config = ServerConfig::default().event_loops(loops);
            let server = waits(config, Duration::from_millis(wait_ms));
            let mut plain = server.client();
            let load = Load::start(server.address(), 8, "/waits");
            let latencies = plain_answers(&mut plain, 200);
            load.each_reaches(10);
            load.stop();
            latencies.longest() < LONGEST && latencies.median() < MEDIAN
        });
    }
}

/// The first calls of many clients that arrive together must not run one after the other on a loop.
/// They are too short for the watchdog.
#[test]
fn clients_that_arrive_together_teach_the_engine_that_a_route_waits() {
    let _alone = one_at_a_time();
    let server = Server::builder()
        .bind("127.0.0.1:0")
        .unwrap()
        .config(ServerConfig::default().event_loops(1))
        .build()
        .unwrap();
    let mut clients: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            client
        })
        .collect();
    server
        .spawn(|_: Request| {
            thread::sleep(Duration::from_millis(2));
            Response::from("waited")
        })
        .unwrap();
    for client in &mut clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("waited"), "{answer}");
    }
    let metrics = server.metrics().unwrap();
    assert!(metrics.dispatched >= 32, "{metrics:?}");
    server.shutdown_handle().shutdown_within(Duration::ZERO);
    server.wait();
}

/// A site with a lock that `/held` holds until the gate opens. Any path that ends with `/locked`
/// needs it.
struct Locking {
    gate: Gate,
    lock: Mutex<()>,
    /// The number of calls that have tried to get the lock.
    asked: Arc<AtomicUsize>,
    /// Whether all calls are planned inline.
    is_inline: bool,
}

impl Service for Locking {
    fn plan(&self, _: &mut Request) -> Plan {
        if self.is_inline { Plan::new().on_loop() } else { Plan::new() }
    }

    fn call(&self, request: Request) -> Response {
        if request.path() == "/held" {
            let _guard = self.lock.lock().unwrap();
            self.gate.pass();
        } else if request.path().ends_with("/locked") {
            self.asked.fetch_add(1, Ordering::Relaxed);
            drop(self.lock.lock().unwrap());
        }
        site(request)
    }
}

/// Lets a handler hold a lock, and more handlers wait for it than there are reserved threads for
/// leaders.
fn many_wait_for_one_lock(is_inline: bool, target: impl Fn(usize) -> String) {
    let _alone = one_at_a_time();
    for loops in [1, 2] {
        let (gate, asked) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
        let locking = Locking {
            gate: gate.clone(),
            lock: Mutex::new(()),
            asked: Arc::clone(&asked),
            is_inline,
        };
        let server = TestServer::with(ServerConfig::default().event_loops(loops), locking);
        let mut plain = server.client();
        let mut holder = server.client();
        ask(&mut holder, "/held");
        gate.holds(1);
        let mut latencies = Latencies::default();
        let mut blocked = Vec::new();
        for number in 0..5 * loops + 10 {
            let mut client = server.client();
            ask(&mut client, &target(number));
            eventually("it waits for the lock", || asked.load(Ordering::Relaxed) == number + 1);
            blocked.push(client);
            latencies.extend(&plain_answers(&mut plain, 2));
            latencies.extend(&plain_answers(&mut server.client(), 2));
        }
        assert!(latencies.longest() < Duration::from_secs(2), "{loops} loops: {latencies}");
        assert!(server.metrics().hand_overs >= 1, "the holder held a loop, too");
        gate.open();
        for client in blocked.iter_mut().chain([&mut holder]) {
            assert_eq!(client.response().status, 200);
            client.is_alive();
        }
    }
}

#[test]
fn a_held_lock_stops_only_the_calls_that_need_it() {
    many_wait_for_one_lock(false, |_| "/all/locked".to_owned());
}

#[test]
fn a_held_lock_that_many_routes_need_stops_no_other_route() {
    // Each route is new to the engine, so its first call blocks a loop.
    many_wait_for_one_lock(false, |number| {
        let letter = char::from(b'a' + u8::try_from(number).unwrap());
        format!("/{letter}/locked")
    });
}

#[test]
fn a_held_lock_that_inline_calls_need_stops_no_other_route() {
    many_wait_for_one_lock(true, |_| "/all/locked".to_owned());
}

/// Checks 64 clients of a handler that works while it holds one lock.
fn a_convoy_is_served(works: fn(Duration), median_max: Duration) {
    let _alone = one_at_a_time();
    let lock = Mutex::new(());
    let server =
        TestServer::with(ServerConfig::default().event_loops(2), move |request: Request| {
            if request.path() == "/convoy" {
                let guard = lock.lock().unwrap();
                works(Duration::from_micros(100));
                drop(guard);
            }
            site(request)
        });
    let mut plain = server.client();
    let load = Load::start(server.address(), 64, "/convoy");
    let latencies = plain_answers(&mut plain, 200);
    load.reaches(64 * 200);
    let served = load.stop();
    assert!(
        served[0] * 4 >= served[served.len() / 2],
        "the least served is far behind: {served:?}"
    );
    let is_quick = latencies.longest() < Duration::from_secs(1) && latencies.median() < median_max;
    assert!(is_quick, "{latencies}, median {:?}", latencies.median());
}

#[test]
fn a_lock_convoy_that_waits_is_served_fairly_and_delays_no_other_route() {
    a_convoy_is_served(thread::sleep, MEDIAN);
}

#[test]
fn a_lock_convoy_that_computes_is_served_fairly() {
    // As long as the calls rarely wait for each other, they count as computing and stay on the
    // loops, so the plain request is served after the 64 others.
    a_convoy_is_served(
        |time| {
            let end = Instant::now() + time;
            while Instant::now() < end {}
        },
        Duration::from_millis(100),
    );
}

/// One route per path. Routes with an odd number wait.
struct Numbered;

impl Service for Numbered {
    fn plan(&self, request: &mut Request) -> Plan {
        Plan::new().route(request.path()[1..].parse().unwrap())
    }

    fn call(&self, request: Request) -> Response {
        if request.route().is_some_and(|number| number % 2 == 1) {
            thread::sleep(Duration::from_millis(1));
        }
        site(request)
    }
}

/// The engine has half as many keys, so most routes share a key. This may cost speed, but no
/// response.
#[test]
fn two_thousand_routes_of_which_half_wait_are_all_answered() {
    let _alone = one_at_a_time();
    let server = TestServer::start(Numbered);
    let address = server.address();
    thread::scope(|scope| {
        for first in (0..2000).step_by(125) {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                for number in (first..first + 125).cycle().take(500) {
                    assert_eq!(client.get(&format!("/{number}")).text(), format!("GET /{number}"));
                }
            });
        }
    });
    let metrics = server.metrics();
    assert_eq!(metrics.requests, 8000);
    assert!(metrics.routes().len() <= 1024, "{} entries", metrics.routes().len());
}

#[test]
fn a_server_with_one_thread_beyond_its_loops_answers_every_client() {
    let _alone = one_at_a_time();
    for (loops, wait) in [(1, 300), (1, 5000), (2, 300), (2, 5000)] {
        let config = ServerConfig::default().event_loops(loops).threads_max(1);
        let server = waits(config, Duration::from_micros(wait));
        let load = Load::start(server.address(), 32, "/waits");
        load.each_reaches(15);
        load.stop();
        assert_eq!(server.metrics().overloaded, 0, "{loops} loops, {wait} us");
        server.client().is_alive();
    }
}

#[test]
fn a_crowd_whose_waits_are_short_shares_a_few_threads() {
    let _alone = one_at_a_time();
    let config = ServerConfig::default().thread_idle_timeout(Duration::from_millis(500));
    let server = waits(config, Duration::from_micros(200));
    let load = Load::start(server.address(), 300, "/waits");
    load.each_reaches(20);
    load.goes_on_until("no connection keeps a thread, and the spare ones end", || {
        let metrics = server.metrics();
        metrics.leased == 0 && metrics.pool.threads <= 200
    });
    let served = load.served();
    load.reaches(served + 3000);
    load.stop();
}

#[test]
fn a_request_whose_thread_does_not_return_gets_another_one() {
    let _alone = one_at_a_time();
    for loops in [1, 2] {
        let gate = Gate::new();
        let server = TestServer::with(ServerConfig::default().event_loops(loops), {
            let gate = gate.clone();
            move |request: Request| {
                match request.path() {
                    "/waits" => thread::sleep(Duration::from_micros(300)),
                    "/gate" => gate.pass(),
                    _ => {}
                }
                site(request)
            }
        });
        // Threads become free often, so waiting for one is worthwhile.
        let load = Load::start(server.address(), 64, "/waits");
        load.reaches(3000);
        let mut clients: Vec<Client> = (0..100).map(|_| server.client()).collect();
        for client in &mut clients {
            ask(client, "/gate");
        }
        load.stop();
        gate.holds(100);
        gate.open();
        for client in &mut clients {
            assert_eq!(client.response().text(), "GET /gate");
        }
    }
}

/// The route is known to wait, but an idle loop may run a single call of it. Calls that hang must
/// not do this repeatedly, because each one takes a leader.
#[test]
fn calls_that_hang_on_idle_loops_do_not_use_up_the_leaders() {
    let _alone = one_at_a_time();
    let gate = Gate::new();
    let server = TestServer::with(ServerConfig::default().event_loops(2).threads_max(4), {
        let (gate, lock) = (gate.clone(), Mutex::new(()));
        move |request: Request| {
            match request.path() {
                "/held" => {
                    let _guard = lock.lock().unwrap();
                    gate.pass();
                }
                "/locked" => drop(lock.lock().unwrap()),
                _ => {}
            }
            site(request)
        }
    });
    let mut plain = server.client();
    let mut holder = server.client();
    ask(&mut holder, "/held");
    gate.holds(1);
    let mut blocked = Vec::new();
    for number in 1..=20 {
        let mut client = server.client();
        ask(&mut client, "/locked");
        blocked.push(client);
        ask(&mut plain, "/still-there");
        if let Err(ended) = plain.try_response() {
            gate.open();
            panic!("after {number} calls that hang: {ended}, {:?}", server.metrics());
        }
    }
    gate.open();
    for client in &mut blocked {
        assert_eq!(client.response().status, 200);
    }
}
