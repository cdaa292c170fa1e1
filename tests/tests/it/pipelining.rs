//! Pipelined requests on one connection: each is answered once, in order.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use filoplume_runtime::{Plan, Request, Response, Service};
use filoplume_tests::{Ended, Gate, TestServer, reset, site};

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")
}

#[test]
fn every_one_of_many_pipelined_requests_is_answered_in_order() {
    let server = TestServer::start(site);
    for count in [2, 16, 100, 3000] {
        let mut client = server.client();
        client.send((0..count).map(|n| get(&format!("/{n}"))).collect::<String>());
        for n in 0..count {
            assert_eq!(client.response().text(), format!("GET /{n}"), "of {count}");
        }
        client.is_alive();
    }
}

#[test]
fn pipelined_requests_in_odd_pieces_are_all_answered() {
    let server = TestServer::start(site);
    let requests: String = (0..40).map(|n| get(&format!("/{n}"))).collect();
    for piece in [7, 61, 100, 333] {
        let mut client = server.client();
        let mut answered = 0;
        for piece in requests.as_bytes().chunks(piece) {
            // Gives the server some time between two pieces, without reading its responses.
            client.send(piece);
            thread::sleep(Duration::from_millis(1));
        }
        while answered < 40 {
            assert_eq!(
                client.response().text(),
                format!("GET /{answered}"),
                "in pieces of {piece}"
            );
            answered += 1;
        }
        client.is_alive();
    }
}

#[test]
fn pipelined_requests_with_content_keep_their_bounds() {
    let server = TestServer::start(site);
    let mut client = server.client();
    let long = "l".repeat(200_000);
    client.send(format!(
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nfirstPOST /echo \
         HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecond\r\n0\r\n\r\nGET \
         /third HTTP/1.1\r\nHost: t\r\n\r\nPOST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: \
         {}\r\n\r\n{long}POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\nGET /last \
         HTTP/1.1\r\nHost: t\r\n\r\n",
        long.len()
    ));
    for text in ["first", "second", "GET /third", &long, "", "GET /last"] {
        assert_eq!(client.response().text(), text);
    }
}

/// A site with a gate. Paths below `/pool` run on the pool, and all others where the engine
/// decides.
struct Gated(Gate);

impl Service for Gated {
    fn plan(&self, request: &mut Request) -> Plan {
        if request.path().starts_with("/pool") { Plan::new().on_pool() } else { Plan::new() }
    }

    fn call(&self, request: Request) -> Response {
        if request.path().ends_with("/gate") {
            self.0.pass();
        }
        site(request)
    }
}

#[test]
fn requests_after_a_blocking_one_are_answered_without_further_input() {
    let gate = Gate::new();
    let server = TestServer::start(Gated(gate.clone()));
    for target in ["/gate", "/gate", "/gate", "/pool/gate"] {
        let mut client = server.client();
        client.send(get("/before") + &get(target) + &get("/after") + &get(target) + &get("/last"));
        gate.holds(1);
        gate.open();
        for path in ["/before", target, "/after", target, "/last"] {
            assert_eq!(client.response().text(), format!("GET {path}"), "behind {target}");
        }
        client.is_alive();
        gate.close();
    }
}

#[test]
fn requests_that_arrive_while_a_handler_blocks_are_answered() {
    for round in 0..5 {
        let gate = Gate::new();
        let server = TestServer::start({
            let gate = gate.clone();
            move |request: Request| {
                if request.path() == "/gate" {
                    gate.pass();
                }
                site(request)
            }
        });
        let mut client = server.client();
        client.send(get("/gate"));
        gate.holds(1);
        client.send(get("/a")).send(get("/b").as_bytes().split_at(9).0);
        gate.open();
        assert_eq!(client.response().text(), "GET /gate", "round {round}");
        assert_eq!(client.response().text(), "GET /a", "round {round}");
        client.send(get("/b").as_bytes().split_at(9).1);
        assert_eq!(client.response().text(), "GET /b", "round {round}");
    }
}

#[test]
fn requests_after_a_close_are_not_answered() {
    let server = TestServer::start(site);
    let rows = [
        "GET /first HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost: t\r\nConnection: x, CLOSE\r\n\r\n",
        "GET /first HTTP/1.1\r\nHost: t\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
        "GET /first HTTP/1.0\r\nHost: t\r\n\r\n",
    ];
    for row in rows {
        let mut client = server.client();
        client.send(format!("{row}{}", get("/second")));
        let response = client.response();
        assert_eq!(response.text(), "GET /first");
        assert!(response.closes(), "{row:?}: {response:?}");
        client.is_closed();
    }
}

#[test]
fn requests_after_a_response_that_closes_are_not_answered() {
    let server = TestServer::start(|request: Request| {
        let mut response = Response::from(request.path().to_owned());
        response.add_header("connection", "close").unwrap();
        response
    });
    let mut client = server.client();
    client.send(get("/first") + &get("/second"));
    assert_eq!(client.response().text(), "/first");
    client.is_closed();
}

#[test]
fn valid_requests_are_answered_before_the_refusal_of_the_next() {
    let gate = Gate::new();
    gate.open();
    let server = TestServer::start(move |request: Request| {
        if request.path() == "/blocks" {
            gate.pass();
            thread::sleep(Duration::from_millis(5));
        }
        site(request)
    });
    for good in ["/quick", "/blocks", "/blocks", "/blocks"] {
        let mut client = server.client();
        client.send(get(good) + &get(good) + "BAD\r\n\r\n" + &get("/behind"));
        assert_eq!(client.response().text(), format!("GET {good}"));
        assert_eq!(client.response().text(), format!("GET {good}"));
        assert_eq!(client.response().status, 400);
        client.is_closed();
    }
}

#[test]
fn an_unread_content_is_not_parsed_as_the_next_request() {
    let server = TestServer::start(site);
    let content = get("/smuggled");
    let mut client = server.client();
    client.send(format!(
        "POST /unread HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{content}",
        content.len()
    ));
    client.send(get("/next"));
    assert_eq!(client.response().text(), "unread");
    assert_eq!(client.response().text(), "GET /next");
    let chunks = format!("{:x}\r\n{content}\r\n0\r\n\r\n", content.len());
    client.send(format!(
        "POST /unread HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
    ));
    client.send(get("/next"));
    assert_eq!(client.response().text(), "unread");
    assert_eq!(client.response().text(), "GET /next");
}

#[test]
fn an_incomplete_last_request_is_not_answered_and_earlier_ones_are() {
    let server = TestServer::start(site);
    let mut client = server.client();
    client.send(get("/whole") + "GET /half HTTP/1.1\r\nHo").finish();
    assert_eq!(client.response().text(), "GET /whole");
    match client.try_response() {
        Err(Ended::Closed(rest)) => assert!(rest.is_empty(), "{}", rest.escape_ascii()),
        Ok(response) => assert_eq!(response.status, 400),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn more_than_one_read_of_requests_for_the_pool_is_answered_without_further_input() {
    let server = TestServer::start(Gated(Gate::new()));
    let mut client = server.client();
    let padding = "p".repeat(1000);
    let request = |n: usize| format!("GET /pool/{n} HTTP/1.1\r\nHost: t\r\nX: {padding}\r\n\r\n");
    client.send((0..600).map(request).collect::<String>());
    for n in 0..600 {
        let response = client.try_response().unwrap_or_else(|ended| panic!("{n} of 600: {ended}"));
        assert_eq!(response.text(), format!("GET /pool/{n}"));
    }
}

#[test]
fn requests_before_a_half_close_are_answered() {
    let gate = Gate::new();
    gate.open();
    let server = TestServer::start(Gated(gate));
    for target in
        ["/quick", "/gate", "/pool/quick", "/pool/gate", "/large?n=3000000", "/stream?n=3000000"]
    {
        for count in [1, 5] {
            let mut client = server.client();
            client.send((0..count).map(|_| get(target)).collect::<String>()).finish();
            for n in 0..count {
                let response = client.try_response();
                let response =
                    response.unwrap_or_else(|ended| panic!("{target}, {n} of {count}: {ended}"));
                assert_eq!(response.status, 200);
            }
            let end = client.read_until_end();
            assert!(
                matches!(&end, Ended::Closed(rest) if rest.is_empty()),
                "{target}, {count}: {end}"
            );
        }
    }
}

#[test]
fn a_response_does_not_wait_for_a_later_request_that_is_known_to_block() {
    let gate = Gate::new();
    let server = TestServer::start(Gated(gate.clone()));
    for before in ["/quick", "/pool/quick"] {
        let mut client = server.client();
        client.send(get(before) + &get("/pool/gate"));
        gate.holds(1);
        assert_eq!(client.response().text(), format!("GET {before}"));
        gate.open();
        assert_eq!(client.response().text(), "GET /pool/gate");
        gate.close();
    }
}

/// A service whose calls run on the pool and are counted. The first one waits at a gate.
struct Counted {
    gate: Gate,
    calls: Arc<AtomicUsize>,
}

impl Service for Counted {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().on_pool()
    }

    fn call(&self, request: Request) -> Response {
        if self.calls.fetch_add(1, Ordering::SeqCst) == 0 {
            self.gate.pass();
        }
        site(request)
    }
}

#[test]
fn the_pipeline_of_a_client_that_has_gone_ends() {
    let (gate, calls) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let server = TestServer::start(Counted { gate: gate.clone(), calls: Arc::clone(&calls) });
    let mut client = server.client();
    client.send(get("/").repeat(300));
    gate.holds(1);
    reset(client);
    gate.open();
    server.is_left_by_all();
    let calls = calls.load(Ordering::SeqCst);
    // The first response is written before the second call, and this write fails.
    assert!(calls <= 3, "{calls} calls");
}

/// As [`Counted`], with responses that fill the buffers of a connection.
struct Long(Counted);

impl Service for Long {
    fn plan(&self, request: &mut Request) -> Plan {
        self.0.plan(request)
    }

    fn call(&self, request: Request) -> Response {
        let _ = self.0.call(request);
        Response::from("x".repeat(8 * 1024))
    }
}

#[test]
fn a_pipeline_is_not_answered_further_than_its_client_reads() {
    const REQUESTS: usize = 4000;
    let (gate, calls) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Counted { gate: gate.clone(), calls: Arc::clone(&calls) };
    let server = TestServer::start(Long(counted));
    let mut client = server.client();
    // Short enough to be received at once, while the first call waits.
    client.send(get("/").repeat(REQUESTS));
    gate.holds(1);
    gate.open();
    let mut before = 0;
    while calls.load(Ordering::SeqCst) != before {
        before = calls.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
    }
    // The buffers of the system hold at most 10 MiB: 6 of the reader's and 4 of the writer's.
    assert!(before < REQUESTS / 2, "{before} calls for a client that reads nothing");
    assert!(server.metrics().memory_used < 1 << 20, "{:?}", server.metrics());
    for _ in 0..REQUESTS {
        assert_eq!(client.response().text().len(), 8 * 1024);
    }
    assert_eq!(client.send(get("/")).response().text().len(), 8 * 1024);
}
