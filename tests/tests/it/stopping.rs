//! The phases of a shutdown: who is told, what is still answered, and what runs at the end.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use filoplume::{App, Health, RunningApp, Stopping};
use filoplume_runtime::{Phase, Request, Server, ServerConfig};
use filoplume_tests::{Client, DEADLINE, Gate, TestServer, eventually, holds_for, site};

/// Longer than a test takes.
const LAME_DUCK: Duration = Duration::from_secs(60);

fn app(config: ServerConfig) -> RunningApp {
    App::new().get("/", || "hi").health(Health::new()).config(config).start("127.0.0.1:0").unwrap()
}

fn phase(app: &RunningApp) -> Phase {
    app.server().metrics().unwrap().phase
}

#[test]
fn a_lame_duck_says_that_it_is_not_ready_and_answers_everything_else() {
    let app = app(ServerConfig::default().lame_duck(LAME_DUCK));
    let mut idle = Client::connect(app.local_addr());
    assert_eq!(idle.get("/ready").status, 200);
    let mut silent = Client::connect(app.local_addr());
    assert_eq!(silent.get("/").status, 200);
    assert_eq!(phase(&app), Phase::Serving);
    app.shutdown_handle().shutdown();
    assert_eq!(phase(&app), Phase::LameDuck);
    // A kept connection is told that it ends, and a new one is accepted.
    let response = idle.get("/ready");
    let stopping = "{\"status\":\"stopping\"}\n";
    assert_eq!((response.status, response.text(), response.closes()), (503, stopping, true));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    idle.is_closed();
    for _ in 0..20 {
        let response = Client::connect(app.local_addr()).get("/");
        assert_eq!((response.status, response.text(), response.closes()), (200, "hi", true));
    }
    // An idle connection is not closed: its next request may be on its way.
    silent.is_silent_for(Duration::from_millis(100));
    assert!(silent.get("/").closes());
    app.shutdown_handle().shutdown_within(DEADLINE);
    app.wait();
    assert_eq!(phase(&app), Phase::Stopped);
    assert!(Client::try_connect(app.local_addr()).is_err());
}

#[test]
fn the_drain_follows_the_lame_duck_time() {
    const TIME: Duration = Duration::from_millis(400);
    let app = app(ServerConfig::default().lame_duck(TIME).event_loops(2));
    let mut idle: Vec<Client> = (0..20).map(|_| Client::connect(app.local_addr())).collect();
    idle.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    let started = Instant::now();
    app.shutdown_handle().shutdown();
    app.shutdown_handle().shutdown();
    app.wait();
    let took = started.elapsed();
    assert!(took >= TIME && took < TIME + Duration::from_secs(3), "{took:?}");
    idle.iter_mut().for_each(Client::is_closed);
}

#[test]
fn pipelined_requests_are_answered_by_a_lame_duck() {
    let app = app(ServerConfig::default().lame_duck(LAME_DUCK));
    app.shutdown_handle().shutdown();
    let mut client = Client::connect(app.local_addr());
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n".repeat(3));
    for number in 0..3 {
        assert_eq!(client.response().closes(), number == 2, "{number}");
    }
    client.is_closed();
    app.shutdown_handle().shutdown_within(DEADLINE);
    app.wait();
}

#[test]
fn everybody_is_told_when_the_shutdown_begins() {
    let (told, gate) = (Arc::new(AtomicUsize::new(0)), Gate::new());
    let server = Server::bind("127.0.0.1:0").unwrap();
    let stopping = server.stopping();
    let callback = {
        let told = Arc::clone(&told);
        move || _ = told.fetch_add(1, Ordering::SeqCst)
    };
    stopping.on_stopping(callback).keep();
    // A callback that blocks delays only the other callbacks.
    stopping
        .on_stopping({
            let gate = gate.clone();
            move || gate.pass()
        })
        .keep();
    let removed = Arc::new(AtomicBool::new(false));
    drop(stopping.on_stopping({
        let removed = Arc::clone(&removed);
        move || removed.store(true, Ordering::SeqCst)
    }));
    let thread = thread::spawn({
        let stopping = stopping.clone();
        move || stopping.wait_timeout(DEADLINE)
    });
    server.spawn(site).unwrap();
    assert!(!stopping.is_stopping());
    server.shutdown_handle().shutdown();
    assert!(stopping.is_stopping());
    assert!(thread.join().unwrap());
    eventually("the callback has run", || told.load(Ordering::SeqCst) == 1);
    server.wait();
    assert!(!removed.load(Ordering::SeqCst));
    gate.open();
}

#[test]
fn a_handler_that_waits_ends_when_the_server_stops() {
    let waits = Arc::new(AtomicUsize::new(0));
    let handler = {
        let waits = Arc::clone(&waits);
        move |stopping: Stopping| {
            waits.fetch_add(1, Ordering::SeqCst);
            if stopping.wait_timeout(DEADLINE) { "bye" } else { "too late" }
        }
    };
    let app = App::new().get("/events", handler).start("127.0.0.1:0").unwrap();
    let mut client = Client::connect(app.local_addr());
    client.send("GET /events HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually("the handler waits", || waits.load(Ordering::SeqCst) == 1);
    let started = Instant::now();
    app.shutdown();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(client.response().text(), "bye");
}

#[test]
fn hooks_run_in_order_after_the_last_request_and_before_the_end() {
    let (gate, (sender, receiver)) = (Gate::new(), mpsc::channel());
    let log = |what: &'static str| {
        let sender = sender.clone();
        move || sender.send(what).unwrap()
    };
    let (finished, first, second) = (log("request"), log("first"), log("second"));
    let handler = {
        let gate = gate.clone();
        let finished = std::sync::Mutex::new(finished);
        move || {
            gate.pass();
            finished.lock().unwrap()();
            "done"
        }
    };
    let app = App::new()
        .get("/", handler)
        .on_shutdown(first)
        .on_shutdown(|| panic!("on purpose"))
        .on_shutdown(second)
        .start("127.0.0.1:0")
        .unwrap();
    let mut client = Client::connect(app.local_addr());
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    gate.holds(1);
    app.shutdown_handle().shutdown();
    holds_for(Duration::from_millis(50), "no hook runs", || receiver.try_recv().is_err());
    gate.open();
    app.wait();
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["request", "first", "second"]);
}

#[test]
fn a_server_that_never_served_tells_that_it_stops() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let callback = {
        let told = Arc::clone(&told);
        move || told.store(true, Ordering::SeqCst)
    };
    server.stopping().on_stopping(callback).keep();
    server.shutdown_handle().shutdown();
    assert!(server.stopping().is_stopping() && told.load(Ordering::SeqCst));
}

#[test]
fn a_shutdown_from_a_handler_is_answered() {
    let server = TestServer::bound(ServerConfig::default());
    let handle = server.server().shutdown_handle();
    server
        .server()
        .spawn(move |_: Request| {
            handle.shutdown();
            "bye"
        })
        .unwrap();
    let response = server.client().get("/");
    assert_eq!((response.text(), response.closes()), ("bye", true));
    server.server().wait();
}
