//! Where the calls of a route run: what the engine measures, when it moves a route to the pool, and
//! when it moves it back. The effects on other routes are tested in `execution_neighbours`.
//!
//! Some tests start new servers until one shows the expected result. Another program on the machine
//! can delay a call, and the watchdog then rightly takes its loop. But nothing makes the engine
//! measure waits that do not exist.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use filoplume::prelude::{App, Next};
use filoplume::{Context, Error, FromRequest};
use filoplume_runtime::{Request, Runs, ServerConfig, Why};
use filoplume_tests::{Load, TestServer, eventually, one_at_a_time, site};

/// A wait that is far too short for the watchdog.
const SHORT: Duration = Duration::from_micros(300);

/// A wait that the watchdog, with a period of 3 ms, rarely sees.
const MILLISECOND: Duration = Duration::from_millis(1);

/// The number of requests of a single client. The waits of a third of them would suffice to move
/// their route away from a loop with other clients.
const ALONE: usize = 30;

/// A site whose `/waits` waits for this time.
fn waits(wait: Duration) -> TestServer {
    TestServer::start(move |request: Request| {
        if request.path() == "/waits" {
            thread::sleep(wait);
        }
        site(request)
    })
}

/// Sends requests over one connection. Returns how often they left the loop: the number of
/// dispatched requests and of leases.
fn left_the_loop_of_one_client(server: &TestServer, target: &str) -> u64 {
    let left = || server.metrics().dispatched + server.metrics().leases;
    let before = left();
    let mut client = server.client();
    for _ in 0..ALONE {
        assert_eq!(client.get(target).status, 200);
    }
    left() - before
}

/// Asserts that the requests of a single client stay on their loop, because nothing else needs it.
/// Only the watchdog may take the loop, from a call whose thread wakes up late.
#[track_caller]
fn stays_on_its_loop(server: &TestServer, target: &str) {
    let left = left_the_loop_of_one_client(server, target);
    let why = server.route(target).why;
    assert!(!matches!(why, Why::Waited(_)), "{why:?}");
    assert!(left == 0 || server.metrics().hand_overs > 0, "{left} requests left the loop");
}

/// Computes for about this time.
fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {}
}

#[test]
fn a_wait_that_is_shorter_than_the_watchdogs_period_is_measured() {
    let _alone = one_at_a_time();
    for wait in [SHORT, MILLISECOND] {
        eventually("the waits are the reason", || {
            let server = waits(wait);
            let load = Load::start(server.address(), 8, "/waits");
            load.goes_on_until("the route leaves the loops", || {
                server.metrics().routes_learned >= 1
            });
            load.reaches(2000);
            eventually("it is seen to wait rather than compute", || {
                let route = server.route("/waits");
                route.waiting > route.computing * 4
            });
            let route = server.route("/waits");
            assert_eq!(route.runs, Runs::OnPool, "{route:?}");
            load.stop();
            matches!(route.why, Why::Waited(waited) if waited >= wait / 2)
        });
    }
}

#[test]
fn short_waits_of_a_single_client_stay_on_its_loop() {
    let _alone = one_at_a_time();
    stays_on_its_loop(&waits(SHORT), "/waits");
}

#[test]
fn short_waits_leave_the_loops_with_several_clients() {
    let _alone = one_at_a_time();
    let server = waits(SHORT);
    left_the_loop_of_one_client(&server, "/waits");
    let load = Load::start(server.address(), 8, "/waits");
    eventually("all eight are served by the pool", || {
        let metrics = server.metrics();
        metrics.routes_learned >= 1 && metrics.dispatched + metrics.leases >= 8
    });
    load.each_reaches(100);
    load.stop();
    eventually("one that is left has its waits on its loop again", || {
        left_the_loop_of_one_client(&server, "/waits") == 0
    });
}

#[test]
fn a_contended_lock_moves_its_route_to_the_pool_under_load_only() {
    let _alone = one_at_a_time();
    if available_parallelism().map_or(1, usize::from) < 2 {
        skip::because("on one processor the holder of a lock is done before another asks for it");
        return;
    }
    let locks = || {
        let lock = Mutex::new(());
        TestServer::with(ServerConfig::default().event_loops(2), move |request: Request| {
            let guard = lock.lock().unwrap();
            compute(Duration::from_micros(100));
            drop(guard);
            site(request)
        })
    };
    stays_alone_and_leaves_under_load(locks);
}

#[test]
fn two_permits_move_their_route_to_the_pool_under_load_only() {
    let _alone = one_at_a_time();
    let permits = || {
        let (permits, returned) = (Mutex::new(2), Condvar::new());
        TestServer::with(ServerConfig::default().event_loops(2), move |request: Request| {
            let mut left = returned.wait_while(permits.lock().unwrap(), |left| *left == 0).unwrap();
            *left -= 1;
            drop(left);
            thread::sleep(Duration::from_micros(200));
            *permits.lock().unwrap() += 1;
            returned.notify_one();
            site(request)
        })
    };
    stays_alone_and_leaves_under_load(permits);
}

fn stays_alone_and_leaves_under_load(serve: impl Fn() -> TestServer) {
    let server = serve();
    stays_on_its_loop(&server, "/contended");
    let load = Load::start(server.address(), 16, "/contended");
    load.goes_on_until("the route leaves the loops", || server.metrics().routes_learned >= 1);
    load.each_reaches(50);
    load.stop();
}

/// An extractor that waits, like one that loads a session from a database.
struct Waiting;

impl FromRequest for Waiting {
    type Rejection = Error;

    fn from_request(_: &mut Request, _: &Context<'_>) -> Result<Self, Error> {
        thread::sleep(MILLISECOND);
        Ok(Self)
    }
}

#[test]
fn a_wait_in_middleware_or_in_an_extractor_is_measured() {
    let _alone = one_at_a_time();
    let middleware = App::new().get("/", || "hi").with(|request: Request, next: Next<'_>| {
        thread::sleep(MILLISECOND);
        next.run(request)
    });
    let extractor = App::new().get("/", |_: Waiting| "hi");
    for (what, app) in [("middleware", middleware), ("an extractor", extractor)] {
        let server = TestServer::start(app.build().unwrap());
        let load = Load::start(server.address(), 8, "/");
        load.goes_on_until(what, || server.metrics().routes_learned >= 1);
        load.reaches(1000);
        load.stop();
        let metrics = server.metrics();
        let [route] = metrics.routes() else { panic!("{what}: one route was called: {metrics:?}") };
        assert_eq!(route.runs, Runs::OnPool, "{what}: {route:?}");
        assert!(route.waiting > route.computing * 4, "{what}: {route:?}");
    }
}

/// A site whose calls wait for this time while `is_waiting` is set.
fn changes(is_waiting: &Arc<AtomicBool>, wait: Duration) -> TestServer {
    let is_waiting = Arc::clone(is_waiting);
    TestServer::start(move |request: Request| {
        if is_waiting.load(Ordering::Relaxed) {
            thread::sleep(wait);
        }
        site(request)
    })
}

#[test]
fn a_route_that_stops_waiting_comes_back_to_the_loops() {
    let _alone = one_at_a_time();
    let is_waiting = Arc::new(AtomicBool::new(true));
    let server = changes(&is_waiting, MILLISECOND);
    let load = Load::start(server.address(), 8, "/changes");
    load.goes_on_until("the route leaves the loops", || server.metrics().routes_learned >= 1);
    load.each_reaches(20);
    assert_eq!(server.route("/changes").runs, Runs::OnPool);
    is_waiting.store(false, Ordering::Relaxed);
    eventually("the route is back, because its calls are quick", || {
        let route = server.route("/changes");
        (route.runs, route.why) == (Runs::OnLoop, Why::Quick)
    });
    let served = load.served();
    load.reaches(served + 1000);
    load.stop();
}

#[test]
fn a_database_that_becomes_slow_is_known_within_a_tenth_of_a_second() {
    let _alone = one_at_a_time();
    for wait in [SHORT, MILLISECOND, MILLISECOND * 20] {
        eventually("a server learns it in time", || {
            let is_waiting = Arc::new(AtomicBool::new(false));
            let server = changes(&is_waiting, wait);
            let load = Load::start(server.address(), 16, "/changes");
            // Long enough for all credit that quick calls earn.
            load.reaches(5000);
            let is_known = || server.route("/changes").runs == Runs::OnPool;
            let was_quick = !is_known();
            is_waiting.store(true, Ordering::Relaxed);
            let changed = Instant::now();
            load.goes_on_until("the route leaves the loops", is_known);
            let took = changed.elapsed();
            load.stop();
            println!("a wait of {wait:?} is known after {took:?}");
            was_quick && took < Duration::from_millis(100)
        });
    }
}

#[test]
fn a_route_that_waits_in_long_phases_moves_about_once_per_phase() {
    let _alone = one_at_a_time();
    let is_waiting = Arc::new(AtomicBool::new(true));
    let server = changes(&is_waiting, MILLISECOND);
    let load = Load::start(server.address(), 8, "/changes");
    for phase in 0..6 {
        is_waiting.store(phase % 2 == 0, Ordering::Relaxed);
        let (began, served) = (Instant::now(), load.served());
        eventually("the phase ends", || began.elapsed() >= Duration::from_secs(1));
        let served = load.served() - served;
        assert!(served >= 100, "{served} answers in phase {phase}");
    }
    load.stop();
    assert!(server.moves() <= 12, "{} moves", server.moves());
}

#[test]
fn one_waiting_call_in_a_thousand_does_not_move_the_route() {
    let _alone = one_at_a_time();
    let calls = AtomicUsize::new(0);
    let server = TestServer::start(move |request: Request| {
        if calls.fetch_add(1, Ordering::Relaxed) % 1000 == 999 {
            thread::sleep(Duration::from_millis(20));
        }
        site(request)
    });
    let load = Load::start(server.address(), 16, "/rare");
    load.reaches(20_000);
    let (route, moves) = (server.route("/rare"), server.moves());
    assert!(route.runs == Runs::OnLoop || moves <= 4, "{moves} moves: {route:?}");
    load.stop();
}

#[test]
fn a_route_that_computes_is_not_mistaken_for_one_that_waits() {
    let _alone = one_at_a_time();
    eventually("it stays on the loops", || {
        let server = TestServer::start(|request: Request| {
            compute(Duration::from_micros(100));
            site(request)
        });
        let load = Load::start(server.address(), 4, "/computes");
        load.reaches(3000);
        let route = server.route("/computes");
        load.stop();
        route.runs == Runs::OnLoop && route.waiting * 4 < route.computing
    });
}
