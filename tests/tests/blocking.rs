//! Handlers that block: no other request waits for them, all are answered, and the engine uses what
//! it has learned.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, DEADLINE, Gate, TestServer, ask, eventually, gated, site};

/// How long a blocking handler takes at least: several periods of the watchdog.
const BLOCKS: Duration = Duration::from_millis(10);

fn sleeps_or_answers(request: Request) -> Response {
    if request.path() == "/sleep" {
        thread::sleep(BLOCKS);
    }
    site(request)
}

#[test]
fn two_hundred_blocked_handlers_delay_no_other_request() {
    for is_dispatched in [false, true] {
        let gate = Gate::new();
        let server = gated(ServerConfig::default(), &gate, is_dispatched);
        let mut blocked: Vec<Client> = (0..200).map(|_| server.client()).collect();
        for client in &mut blocked {
            ask(client, "/gate");
        }
        gate.holds(200);
        let started = Instant::now();
        for _ in 0..20 {
            let mut client = server.client();
            for _ in 0..10 {
                client.is_alive();
            }
        }
        let took = started.elapsed();
        assert!(took < Duration::from_secs(2), "200 quick requests took {took:?}");
        assert_eq!(gate.waiting(), 200, "all handlers still wait");
        gate.open();
        for client in &mut blocked {
            assert_eq!(client.response().text(), "GET /gate");
            client.is_alive();
        }
    }
}

#[test]
fn quick_requests_are_answered_while_handlers_begin_to_block() {
    // Each server is new, so the first call of the route blocks a loop.
    for _ in 0..10 {
        let gate = Gate::new();
        let server = gated(ServerConfig::default().event_loops(1), &gate, false);
        let mut quick: Vec<Client> = (0..8).map(|_| server.client()).collect();
        quick.iter_mut().for_each(Client::is_alive);
        let mut blocked: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for client in &mut blocked {
            ask(client, "/gate");
            quick.iter_mut().for_each(Client::is_alive);
        }
        gate.holds(4);
        assert!(server.metrics().hand_overs >= 1);
        gate.open();
        for client in &mut blocked {
            assert_eq!(client.response().text(), "GET /gate");
        }
    }
}

#[test]
fn every_one_of_four_hundred_connections_is_served_again_and_again() {
    let server = TestServer::start(sleeps_or_answers);
    let mut clients: Vec<Client> = (0..400).map(|_| server.client()).collect();
    for round in 0..5 {
        for client in &mut clients {
            ask(client, "/sleep");
        }
        let started = Instant::now();
        for (index, client) in clients.iter_mut().enumerate() {
            let response = client.try_response();
            let response =
                response.unwrap_or_else(|ended| panic!("client {index}, round {round}: {ended}"));
            assert_eq!(response.text(), "GET /sleep");
        }
        // One after the other they would take four seconds.
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "round {round}: {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn connections_with_independent_requests_are_all_served() {
    // Each client has its own thread and sends its next request after each response, so some
    // connections get leases and some requests wait for a thread.
    let server = TestServer::with(ServerConfig::default().threads_max(12), sleeps_or_answers);
    let address = server.address();
    let served = Arc::new((0..40).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
    let ends = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for index in 0..40 {
            let served = Arc::clone(&served);
            scope.spawn(move || {
                let mut client = Client::connect(address);
                while Instant::now() < ends {
                    assert_eq!(client.get("/sleep").text(), "GET /sleep");
                    served[index].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let mut served: Vec<usize> = served.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    served.sort_unstable();
    let median = served[served.len() / 2];
    assert!(served[0] * 2 >= median, "the slowest is served at least half as often: {served:?}");
}

#[test]
fn a_route_that_blocked_is_dispatched_from_then_on() {
    let server = TestServer::start(sleeps_or_answers);
    let mut client = server.client();
    // Once is enough, unless the watchdog was delayed for as long as the handler slept.
    eventually("the route is learned", || {
        assert_eq!(client.get("/sleep").status, 200);
        server.metrics().routes_learned >= 1
    });
    let hand_overs = server.metrics().hand_overs;
    assert!(hand_overs >= 1);
    // Each request uses a new connection, because requests of a leased connection are not
    // dispatched.
    for _ in 0..10 {
        assert_eq!(server.client().get("/sleep").status, 200);
    }
    let metrics = server.metrics();
    assert!(metrics.dispatched >= 10, "{metrics:?}");
    // A busy machine may delay a quick call too, but rarely.
    assert!(metrics.hand_overs <= hand_overs + 3, "{metrics:?}");
}

#[test]
fn a_route_that_became_quick_returns_to_the_event_loop() {
    let is_slow = Arc::new(AtomicBool::new(true));
    let server = TestServer::start({
        let is_slow = Arc::clone(&is_slow);
        move |request: Request| {
            if request.path() == "/changes" && is_slow.load(Ordering::Relaxed) {
                thread::sleep(BLOCKS);
            }
            site(request)
        }
    });
    let mut client = server.client();
    // Repeated, in case the watchdog was delayed for as long as the handler slept.
    eventually("the route is learned", || {
        client.get("/changes");
        server.metrics().routes_learned >= 1
    });
    is_slow.store(false, Ordering::Relaxed);
    eventually("the route is quick again", || {
        client.get("/changes");
        server.metrics().routes_forgotten >= 1
    });
}

#[test]
fn a_fixed_plan_is_kept_whatever_was_learned() {
    struct Fixed;
    impl Service for Fixed {
        fn plan(&self, request: &mut Request) -> Plan {
            if request.path() == "/inline" { Plan::new().on_loop() } else { Plan::new().on_pool() }
        }
        fn call(&self, request: Request) -> Response {
            if request.query() == Some("slow") {
                thread::sleep(BLOCKS);
            }
            site(request)
        }
    }
    let server = TestServer::start(Fixed);
    let mut client = server.client();
    for _ in 0..5 {
        client.get("/inline?slow");
    }
    let dispatched = server.metrics().dispatched;
    assert_eq!(dispatched, 0, "inline is inline");
    assert!(server.metrics().hand_overs >= 1, "the loop was handed over");
    for _ in 0..100 {
        server.client().get("/dispatched");
    }
    assert_eq!(server.metrics().dispatched, 100);
}

#[test]
fn other_connections_of_a_blocked_loop_are_served() {
    let gate = Gate::new();
    let server = gated(ServerConfig::default().event_loops(1), &gate, false);
    let mut others: Vec<Client> = (0..50).map(|_| server.client()).collect();
    others.iter_mut().for_each(Client::is_alive);
    let mut blocking = server.client();
    blocking.send("GET /gate HTTP/1.1\r\nHost: t\r\n\r\nGET /behind HTTP/1.1\r\nHost: t\r\n\r\n");
    gate.holds(1);
    for client in &mut others {
        client.send("GET /a HTTP/1.1\r\nHost: t\r\n\r\nGET /b HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    for client in &mut others {
        assert_eq!(client.response().text(), "GET /a");
        assert_eq!(client.response().text(), "GET /b");
    }
    gate.open();
    assert_eq!(blocking.response().text(), "GET /gate");
    assert_eq!(blocking.response().text(), "GET /behind");
}

#[test]
fn requests_beyond_a_full_queue_are_refused_at_once_and_the_others_answered() {
    let gate = Gate::new();
    let config = ServerConfig::default()
        .event_loops(1)
        .threads_max(4)
        .queue_capacity(3)
        .queue_timeout(Duration::from_secs(60));
    let server = gated(config, &gate, true);
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        ask(client, "/gate");
    }
    eventually("every request is with a handler, queued or refused", || {
        let metrics = server.metrics();
        usize::try_from(metrics.overloaded).unwrap() + metrics.waiting + gate.waiting() == 20
    });
    let metrics = server.metrics();
    let refused = usize::try_from(metrics.overloaded).unwrap();
    assert_eq!(metrics.waiting, 3, "{metrics:?}");
    assert!(gate.waiting() >= 3, "{metrics:?}");
    assert_eq!(refused + metrics.waiting + gate.waiting(), 20);
    // The refused requests are answered while the others wait.
    server.client().is_alive();
    let mut found = HashSet::new();
    eventually("all refused clients have a response", || {
        for (index, client) in clients.iter_mut().enumerate() {
            if client.tcp().peek(&mut [0]).is_ok() && found.insert(index) {
                let response = client.response();
                assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
                client.is_alive();
            }
        }
        found.len() == refused
    });
    gate.open();
    for (index, client) in clients.iter_mut().enumerate() {
        if !found.contains(&index) {
            assert_eq!(client.response().text(), "GET /gate", "client {index}");
        }
    }
    // Only now: a request could meet a queue that is still full.
    for client in &mut clients {
        assert_eq!(client.get("/gate").status, 200, "and all are well again");
    }
}

#[test]
fn the_smallest_pool_still_answers_blocking_requests() {
    for (loops, threads) in [(1, 1), (2, 1), (2, 2), (4, 4)] {
        let config = ServerConfig::default().event_loops(loops).threads_max(threads);
        let server = TestServer::with(config, sleeps_or_answers);
        let mut clients: Vec<Client> =
            (0..8).map(|_| server.client().patience(Duration::from_secs(5))).collect();
        for round in 0..3 {
            for client in &mut clients {
                ask(client, "/sleep");
            }
            for client in &mut clients {
                let response = client.try_response();
                let response = response.unwrap_or_else(|ended| {
                    panic!("{loops} loops, {threads} threads, round {round}: {ended}")
                });
                let what = format!("{loops} loops, {threads} threads, round {round}: {response:?}");
                assert_eq!(response.status, 200, "{what}");
            }
        }
    }
}

#[test]
fn a_connection_that_blocks_repeatedly_gets_a_lease_that_ends_when_it_is_idle() {
    let server = TestServer::start(sleeps_or_answers);
    let mut client = server.client();
    eventually("a lease is granted", || {
        assert_eq!(client.get("/sleep").status, 200);
        server.metrics().leases >= 1
    });
    // When it is idle, the lease ends.
    eventually("the lease ends", || server.metrics().leased == 0 && server.metrics().parked == 1);
    client.is_alive();
    for _ in 0..10 {
        client.get("/sleep");
    }
    drop(client);
    server.is_left_by_all();
    assert_eq!(server.metrics().leased, 0);
}

#[test]
fn a_client_that_pauses_does_not_get_a_lease_each_time() {
    let server = TestServer::start(sleeps_or_answers);
    let mut client = server.client();
    eventually("a lease is granted", || {
        assert_eq!(client.get("/sleep").status, 200);
        server.metrics().leases >= 1
    });
    // Each lease ends before the next request arrives.
    let before = server.metrics().leases;
    for _ in 0..24 {
        eventually("the lease ends", || server.metrics().leased == 0);
        assert_eq!(client.get("/sleep").status, 200);
    }
    // There are four if each lease ends unused. On a busy machine a lease may last until the next
    // request arrives, and counts as used.
    let leases = server.metrics().leases - before;
    assert!(leases <= 12, "{leases} leases for 24 requests with pauses");
}

#[test]
fn leases_do_not_starve_other_connections() {
    // Four threads for handlers, and as many connections that never pause, which get leases. Then
    // other connections follow.
    let config = ServerConfig::default().event_loops(1).threads_max(4);
    let server = TestServer::with(config, sleeps_or_answers);
    let address = server.address();
    let is_over = AtomicBool::new(false);
    // Otherwise a failed assertion below would leave the clients running forever.
    let ends = Instant::now() + DEADLINE;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                while !is_over.load(Ordering::Relaxed) && Instant::now() < ends {
                    assert_eq!(client.get("/sleep").status, 200);
                }
            });
        }
        eventually("leases are granted", || server.metrics().leases >= 1);
        let mut longest = Duration::ZERO;
        for _ in 0..50 {
            let mut other = server.client();
            let started = Instant::now();
            assert_eq!(other.get("/sleep").status, 200);
            longest = longest.max(started.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(longest < Duration::from_secs(1), "one waited {longest:?}");
    });
}
