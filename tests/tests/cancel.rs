//! A cancellable handler learns that its client has gone, wherever the handler runs.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Cancel, Plan, Request, Response, Server, ServerConfig, Service};
use filoplume_tests::{Client, DEADLINE, Gate, TestServer, ask, eventually, reset, site};

/// How soon a handler is told.
const SOON: Duration = Duration::from_secs(1);

/// Where handlers run.
#[derive(Clone, Copy, Debug)]
enum Runs {
    OnPool,
    /// On the loop, which is handed to another thread while they block.
    OnLoop,
    Learned,
}

/// Handlers of `/wait` block until they are cancelled, and `/sleep` sleeps. All others answer at
/// once.
#[derive(Clone)]
struct Waiting {
    runs: Runs,
    is_streamed: bool,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    waiting: AtomicUsize,
    called: AtomicUsize,
    cancelled: AtomicUsize,
    finished: AtomicUsize,
}

impl Waiting {
    fn new(runs: Runs) -> Self {
        Self { runs, is_streamed: false, seen: Arc::default() }
    }

    fn waits(&self, handlers: usize) {
        eventually("the handlers wait", || self.seen.waiting.load(Ordering::SeqCst) == handlers);
    }

    /// Waits until this many handlers were told in time, each by one callback.
    #[track_caller]
    fn are_told(&self, handlers: usize) {
        let seen = &self.seen;
        eventually("the handlers return", || seen.finished.load(Ordering::SeqCst) == handlers);
        assert_eq!(seen.cancelled.load(Ordering::SeqCst), handlers);
        assert_eq!(seen.called.load(Ordering::SeqCst), handlers);
    }
}

impl Service for Waiting {
    fn plan(&self, request: &mut Request) -> Plan {
        let mut plan = Plan::new();
        if request.path() == "/wait" {
            plan = plan.cancellable();
        }
        if self.is_streamed {
            return plan.streamed();
        }
        match self.runs {
            Runs::OnPool => plan.on_pool(),
            Runs::OnLoop => plan.on_loop(),
            Runs::Learned => plan,
        }
    }

    fn call(&self, mut request: Request) -> Response {
        if request.path() == "/sleep" {
            thread::sleep(Duration::from_millis(20));
        }
        if request.path() != "/wait" {
            return site(request);
        }
        let _ = std::io::copy(request.body_mut(), &mut std::io::sink());
        let seen = &self.seen;
        let interrupted = Gate::new();
        let _guard = request.cancel().on_cancel({
            let (interrupted, seen) = (interrupted.clone(), Arc::clone(seen));
            move || {
                seen.called.fetch_add(1, Ordering::SeqCst);
                interrupted.open();
            }
        });
        seen.waiting.fetch_add(1, Ordering::SeqCst);
        interrupted.pass();
        seen.cancelled.fetch_add(usize::from(request.cancel().is_cancelled()), Ordering::SeqCst);
        seen.finished.fetch_add(1, Ordering::SeqCst);
        Response::from("nobody reads this")
    }
}

/// How a client goes away.
const ENDS: [fn(Client); 3] = [
    |client| drop(client),
    |client| reset(client),
    // Until the server sends something, it cannot distinguish this from a close.
    |client| {
        client.tcp().shutdown(Shutdown::Write).unwrap();
        client.tcp().set_read_timeout(Some(DEADLINE)).unwrap();
        let mut client = client;
        let _ = client.read_until_end();
    },
];

#[test]
fn a_handler_is_told_within_a_second_wherever_it_runs() {
    for runs in [Runs::OnPool, Runs::OnLoop, Runs::Learned] {
        for (number, end) in ENDS.iter().enumerate() {
            for is_kept in [false, true] {
                let service = Waiting::new(runs);
                let config = ServerConfig::default().event_loops(2);
                let server = TestServer::with(config, service.clone());
                let mut client = server.client();
                if is_kept {
                    client.is_alive();
                }
                ask(&mut client, "/wait");
                service.waits(1);
                let started = Instant::now();
                end(client);
                service.are_told(1);
                let took = started.elapsed();
                assert!(took < SOON, "{runs:?}, end {number}, kept {is_kept}: {took:?}");
                assert_eq!(server.metrics().cancelled, 1);
                server.is_left_by_all();
            }
        }
    }
}

#[test]
fn a_handler_is_told_although_its_client_has_sent_more() {
    let service = Waiting::new(Runs::OnPool);
    let server = TestServer::start(service.clone());
    let mut client = server.client();
    ask(&mut client, "/wait");
    service.waits(1);
    ask(&mut client, "/pipelined");
    client.is_silent_for(Duration::from_millis(50));
    assert_eq!(service.seen.called.load(Ordering::SeqCst), 0, "pipelined data is no end");
    drop(client);
    service.are_told(1);
}

#[test]
fn a_handler_that_reads_its_content_is_told() {
    let service = Waiting { is_streamed: true, ..Waiting::new(Runs::OnPool) };
    let server = TestServer::start(service.clone());
    let mut client = server.client();
    client.send("POST /wait HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello");
    client.is_silent_for(Duration::from_millis(20));
    client.send("world");
    service.waits(1);
    drop(client);
    service.are_told(1);
}

/// With a lease, a thread keeps a connection whose requests block, and no poller has its socket.
#[test]
fn a_handler_on_a_lease_is_told() {
    let service = Waiting::new(Runs::Learned);
    let server = TestServer::start(service.clone());
    let mut handlers = 0;
    eventually("a handler runs on a lease", || {
        let mut client = server.client();
        for _ in 0..20 {
            client.get("/sleep");
        }
        // The thread may have given the connection back by now. Then the test tries again.
        ask(&mut client, "/wait");
        handlers += 1;
        service.waits(handlers);
        let is_leased = server.metrics().leased > 0;
        drop(client);
        service.are_told(handlers);
        is_leased
    });
}

#[test]
fn a_connection_continues_after_a_request_that_asked() {
    for runs in [Runs::OnPool, Runs::OnLoop, Runs::Learned] {
        let server = TestServer::start(Asking { runs });
        let mut client = server.client();
        for number in 0..200 {
            assert_eq!(client.get(&format!("/{number}")).text(), "here", "{runs:?}");
        }
        drop(client);
        server.is_left_by_all();
        assert_eq!(server.metrics().cancelled, 0);
    }
}

/// A handler that asks whether its client has gone, and returns soon.
struct Asking {
    runs: Runs,
}

impl Service for Asking {
    fn plan(&self, _: &mut Request) -> Plan {
        let plan = Plan::new().cancellable();
        match self.runs {
            Runs::OnPool => plan.on_pool(),
            Runs::OnLoop => plan.on_loop(),
            Runs::Learned => plan,
        }
    }

    fn call(&self, request: Request) -> Response {
        if request.path().ends_with('7') {
            thread::sleep(Duration::from_millis(2));
        }
        Response::from(if request.cancel().is_cancelled() { "gone" } else { "here" })
    }
}

#[test]
fn no_callback_begins_after_the_handler_has_returned() {
    struct Keeping(Arc<AtomicBool>);

    impl Service for Keeping {
        fn plan(&self, _: &mut Request) -> Plan {
            Plan::new().cancellable().on_pool()
        }

        fn call(&self, request: Request) -> Response {
            let called = Arc::clone(&self.0);
            request.cancel().on_cancel(move || called.store(true, Ordering::SeqCst)).keep();
            Response::from("done")
        }
    }

    let called = Arc::new(AtomicBool::new(false));
    let server = TestServer::start(Keeping(Arc::clone(&called)));
    for _ in 0..50 {
        let mut client = server.client();
        assert_eq!(client.get("/").text(), "done");
    }
    server.is_left_by_all();
    assert!(!called.load(Ordering::SeqCst));
}

#[test]
fn many_handlers_are_told_at_once() {
    const CLIENTS: usize = 64;
    let service = Waiting::new(Runs::OnPool);
    let config = ServerConfig::default().threads_max(CLIENTS * 4);
    let server = TestServer::with(config, service.clone());
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| ask(client, "/wait"));
    service.waits(CLIENTS);
    drop(clients);
    service.are_told(CLIENTS);
    assert_eq!(server.metrics().cancelled, CLIENTS as u64);
    assert_eq!(server.client().get("/next").status, 200);
}

#[test]
fn handlers_are_told_although_they_occupy_all_threads() {
    const THREADS: usize = 2;
    let service = Waiting::new(Runs::OnPool);
    let server = TestServer::with(ServerConfig::default().threads_max(THREADS), service.clone());
    let mut clients: Vec<Client> = (0..THREADS * 4).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| ask(client, "/wait"));
    eventually("they occupy all threads", || server.metrics().waiting > 0);
    drop(clients);
    service.are_told(THREADS * 4);
}

#[test]
fn a_pulled_request_tells_that_its_client_has_gone() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let mut incoming = server.incoming();
    let server = TestServer::of(server);
    let mut client = Client::connect(address);
    ask(&mut client, "/");
    let mut request = incoming.next().unwrap();
    let cancel: Cancel = request.cancel();
    assert!(!cancel.wait_timeout(Duration::from_millis(20)));
    drop(client);
    assert!(cancel.wait_timeout(SOON));
    request.respond("nobody reads this").unwrap();
    server.is_left_by_all();
    let mut client = server.client();
    ask(&mut client, "/");
    let mut request = incoming.next().unwrap();
    let cancel = request.cancel();
    request.respond("done").unwrap();
    assert_eq!(client.response().text(), "done");
    drop(client);
    server.is_left_by_all();
    assert!(!cancel.is_cancelled(), "the request was answered");
}

#[test]
fn a_handler_is_told_when_the_server_does_not_wait_for_it_any_more() {
    let service = Waiting::new(Runs::OnPool);
    let server = TestServer::start(service.clone());
    let mut client = server.client();
    ask(&mut client, "/wait");
    service.waits(1);
    server.server().shutdown_handle().shutdown_within(Duration::from_millis(100));
    server.server().wait();
    service.are_told(1);
}

/// A handler is called even if its client has gone before the call.
#[test]
fn a_handler_that_begins_late_finds_that_its_client_has_gone() {
    struct Late {
        gate: Gate,
        found: Arc<AtomicUsize>,
    }

    impl Service for Late {
        fn plan(&self, request: &mut Request) -> Plan {
            let plan = Plan::new().on_pool();
            if request.path() == "/late" { plan.cancellable() } else { plan }
        }

        fn call(&self, request: Request) -> Response {
            if request.path() == "/late" {
                let cancel = request.cancel();
                let ran = Arc::new(AtomicBool::new(false));
                let callback = {
                    let ran = Arc::clone(&ran);
                    move || ran.store(true, Ordering::SeqCst)
                };
                let _guard = cancel.on_cancel(callback);
                assert_eq!(ran.load(Ordering::SeqCst), cancel.is_cancelled());
                self.found.fetch_add(1 + usize::from(cancel.is_cancelled()), Ordering::SeqCst);
            } else {
                self.gate.pass();
            }
            Response::default()
        }
    }

    let (gate, found) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let service = Late { gate: gate.clone(), found: Arc::clone(&found) };
    let server = TestServer::with(ServerConfig::default().threads_max(1), service);
    let mut first = server.client();
    ask(&mut first, "/first");
    gate.holds(1);
    let mut late = server.client();
    ask(&mut late, "/late");
    eventually("it waits for a thread", || server.metrics().waiting == 1);
    drop(late);
    eventually("the engine has seen it", || server.metrics().cancelled == 1);
    gate.open();
    eventually("it was called", || found.load(Ordering::SeqCst) == 2);
    first.response();
}

#[test]
fn a_handler_of_an_app_is_told() {
    use filoplume::prelude::*;

    let (waits, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (waits, told) = (Arc::clone(&waits), Arc::clone(&told));
        move |cancel: Cancel| {
            waits.fetch_add(1, Ordering::SeqCst);
            told.fetch_add(usize::from(cancel.wait_timeout(DEADLINE)), Ordering::SeqCst);
            "nobody reads this"
        }
    };
    let app = App::new().get("/", handler).start("127.0.0.1:0").unwrap();
    let mut client = Client::connect(app.local_addr());
    ask(&mut client, "/");
    eventually("the handler waits", || waits.load(Ordering::SeqCst) == 1);
    drop(client);
    eventually("the handler was told", || told.load(Ordering::SeqCst) == 1);
    app.shutdown();
}
