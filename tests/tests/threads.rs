//! The threads of a server: how many there are, that they survive panics, and that they use no CPU
//! time while they wait.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Example, Gate, TestServer, ask, eventually, gated, site};

/// A site where every path below `/hang/` waits at a gate, on any thread.
fn hanging(config: ServerConfig, gate: &Gate) -> TestServer {
    let gate = gate.clone();
    TestServer::with(config, move |request: Request| {
        if request.path().starts_with("/hang/") {
            gate.pass();
        }
        site(request)
    })
}

#[test]
fn all_loops_have_leaders_however_many_routes_hang_at_once() {
    let gate = Gate::new();
    let server = hanging(ServerConfig::default().event_loops(2).threads_max(4), &gate);
    server.client().is_alive();
    let mut hanging = Vec::new();
    for first in 'a'..='h' {
        for second in 'a'..='h' {
            let mut client = server.client();
            ask(&mut client, &format!("/hang/{first}{second}"));
            hanging.push(client);
            let started = Instant::now();
            server.client().is_alive();
            assert!(
                started.elapsed() < Duration::from_secs(2),
                "{} hang, {:?}",
                hanging.len(),
                started.elapsed()
            );
        }
    }
    assert_eq!(server.metrics().hand_overs_failed, 0);
    gate.open();
    for client in &mut hanging {
        assert_eq!(client.response().status, 200);
        client.is_alive();
    }
    eventually("those that were caught retire", || server.metrics().pool.threads <= 4 + 2 + 2);
}

#[test]
fn the_pool_grows_to_its_limit_and_shrinks_again() {
    let gate = Gate::new();
    let config =
        ServerConfig::default().threads_max(30).thread_idle_timeout(Duration::from_millis(200));
    let server = gated(config, &gate, true);
    let before = server.metrics().pool.threads;
    let mut clients: Vec<Client> = (0..60).map(|_| server.client()).collect();
    for client in &mut clients {
        ask(client, "/gate");
    }
    // The pool has the leaders as well, and a ninth of the threads is kept for other routes.
    eventually("the route has all that it may", || server.metrics().pool.threads >= 27);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    eventually("idle threads retire", || server.metrics().pool.threads <= before + 1);
}

#[test]
fn a_panic_is_a_500_and_its_thread_continues() {
    let config = ServerConfig::default().thread_idle_timeout(Duration::from_millis(200));
    struct Panics;
    impl Service for Panics {
        fn plan(&self, request: &mut Request) -> Plan {
            match request.path() {
                "/plan" => resume_unwind(Box::new("asked to")),
                "/pool" => Plan::new().on_pool(),
                _ => Plan::new(),
            }
        }
        fn call(&self, request: Request) -> Response {
            match request.path() {
                // `resume_unwind` does not print a panic message.
                "/inline" | "/pool" => resume_unwind(Box::new("asked to")),
                _ => site(request),
            }
        }
    }
    let server = TestServer::with(config, Panics);
    let mut client = server.client();
    client.is_alive();
    let threads = server.metrics().pool.threads;
    for n in 0..1000 {
        for path in ["/inline", "/pool", "/plan"] {
            let response = client.get(path);
            assert_eq!(response.status, 500, "panic {n} of {path}");
            assert!(!response.closes(), "{response:?}");
        }
    }
    client.is_alive();
    let metrics = server.metrics();
    assert_eq!(metrics.panics, 3000);
    assert_eq!(metrics.connections, 1);
    assert_eq!(metrics.pool.panics, 0, "none reached the pool");
    eventually("as many threads as before", || server.metrics().pool.threads <= threads);
    client.is_alive();
}

#[test]
fn a_thousand_panics_leave_no_thread_and_no_descriptor_behind() {
    let child = Example("bench_engine").start();
    let storm = |count: usize| {
        let mut clients: Vec<Client> = (0..10).map(|_| child.client()).collect();
        for _ in 0..count / 10 {
            for client in &mut clients {
                ask(client, "/panic");
            }
            for client in &mut clients {
                assert_eq!(client.response().status, 500);
            }
        }
    };
    let process = child.process();
    storm(200);
    let mut stays = child.client();
    stays.get("/");
    let (descriptors, threads) = (process.descriptors(), process.threads());
    storm(1000);
    stays.get("/");
    eventually("as many descriptors as before", || process.descriptors() <= descriptors);
    // Idle threads end after a while.
    eventually("as many threads as before", || process.threads() <= threads);
}

#[test]
fn an_idle_server_uses_no_cpu() {
    let child = Example("bench_engine").start();
    let mut clients: Vec<Client> = (0..100).map(|_| child.client()).collect();
    for client in &mut clients {
        client.get("/");
    }
    child.client().get("/sleep?ms=5");
    let process = child.process();
    let mut last = process.cpu_time();
    let mut since = Instant::now();
    eventually("a second and a half pass without work", || {
        let now = process.cpu_time();
        // Pending work may still finish, and the watchdog checks a few times before it parks.
        if now > last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(1500)
    });
    clients[99].get("/");
}

#[test]
fn bytes_that_arrive_while_a_handler_blocks_use_no_cpu() {
    let child = Example("bench_engine").start();
    let process = child.process();
    let mut clients: Vec<Client> = (0..5).map(|_| child.client()).collect();
    for client in &mut clients {
        // The rest of the next request arrives later, so the socket stays readable meanwhile.
        ask(client, "/sleep?ms=1500");
        client.send("GET /plaintext HTTP/1.1\r\nHo");
    }
    for client in &mut clients {
        client.is_silent_for(Duration::from_millis(20));
        client.send("st: t\r\n\r\n");
    }
    let before = process.cpu_time();
    for client in &mut clients {
        assert_eq!(client.response().text(), "slept");
        assert_eq!(client.response().text(), "Hello, World!");
    }
    let used = process.cpu_time() - before;
    assert!(used < Duration::from_millis(300), "{used:?} of CPU time to wait");
}

#[test]
fn the_server_survives_threads_that_cannot_be_started() {
    // The server runs as a separate user with a limit of threads.
    let threads_max = thread::available_parallelism().map_or(1, usize::from) + 22;
    let Some(child) = Example("bench_engine").start_with_threads(threads_max) else { return };
    let mut quick = child.client();
    let mut clients: Vec<Client> = (0..100).map(|_| child.client()).collect();
    for round in 0..3 {
        for client in &mut clients {
            ask(client, "/sleep?ms=20");
        }
        for _ in 0..20 {
            assert_eq!(quick.get("/plaintext").status, 200, "round {round}");
        }
        for (index, client) in clients.iter_mut().enumerate() {
            let response = client.try_response();
            let response =
                response.unwrap_or_else(|ended| panic!("client {index}, round {round}: {ended}"));
            // The queue has room for all requests, which wait for the existing threads.
            assert_eq!(response.status, 200, "{response:?}");
        }
    }
    assert!(child.process().threads() <= threads_max);
}
