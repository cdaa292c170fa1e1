//! A request that waits for a thread is dropped when its connection is reset, and only then.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use filoplume_runtime::{Plan, Request, Response, ServerConfig, Service};
use filoplume_tests::{Client, Gate, TestServer, ask, eventually, reset};

/// Handlers of `/first` wait at the gate; all others are counted.
struct Counting {
    gate: Gate,
    called: Arc<AtomicUsize>,
}

impl Service for Counting {
    fn plan(&self, request: &mut Request) -> Plan {
        let plan = Plan::new().on_pool();
        if request.path() == "/streamed" { plan.streamed() } else { plan }
    }

    fn call(&self, request: Request) -> Response {
        if request.path() == "/first" {
            self.gate.pass();
        } else {
            self.called.fetch_add(1, Ordering::SeqCst);
        }
        Response::from("done")
    }
}

/// A server whose only thread is occupied.
fn occupied() -> (TestServer, Client, Gate, Arc<AtomicUsize>) {
    let (gate, called) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let service = Counting { gate: gate.clone(), called: Arc::clone(&called) };
    let server = TestServer::with(ServerConfig::default().threads_max(1), service);
    let mut first = server.client();
    ask(&mut first, "/first");
    gate.holds(1);
    (server, first, gate, called)
}

#[test]
fn a_waiting_request_whose_client_has_reset_is_dropped() {
    let (server, mut first, gate, called) = occupied();
    let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        if number == 2 {
            client.send("POST /streamed HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhello");
        } else {
            ask(client, "/waiting");
        }
    }
    eventually("they wait for a thread", || server.metrics().waiting == 6);
    let mut stay = clients.split_off(4);
    clients.into_iter().for_each(reset);
    // A client that has only closed its sending direction may still read the response.
    stay[0].tcp().shutdown(Shutdown::Write).unwrap();
    // Longer than the minimum wait after which the client of a request is checked.
    thread::sleep(Duration::from_millis(20));
    gate.open();
    assert_eq!(first.response().text(), "done");
    for client in &mut stay {
        assert_eq!(client.response().text(), "done");
    }
    eventually("the others were dropped", || server.metrics().abandoned == 4);
    assert_eq!(called.load(Ordering::SeqCst), 2);
    drop((first, stay));
    server.is_left_by_all();
}

/// The loop sees the reset together with the request, unless it reads the request before the reset
/// arrives.
#[test]
fn a_request_that_arrives_with_a_reset_waits_for_no_thread() {
    let (server, mut first, gate, called) = occupied();
    let mut sent = 0;
    eventually("the loop drops one", || {
        let mut client = server.client();
        // The loop has the connection before the request comes.
        client.send("GET /waiting HTTP/1.1\r\nHo");
        client.is_silent_for(Duration::from_millis(2));
        client.send("st: t\r\n\r\n");
        reset(client);
        sent += 1;
        server.metrics().abandoned > 0
    });
    gate.open();
    assert_eq!(first.response().text(), "done");
    let ended = || server.metrics().abandoned + called.load(Ordering::SeqCst) as u64;
    eventually("each is answered or dropped", || ended() == sent);
}
