//! What a timeout of zero does where it is allowed.

#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{Plan, Request, Response, Server, ServerConfig, Service, tcp};

/// Longer than any step takes on a busy machine, and shorter than any other timeout.
const PATIENCE: Duration = Duration::from_secs(60);

fn bind(config: ServerConfig) -> Server {
    Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap()
}

/// Sends bytes on a connection of its own.
fn send(server: &Server, sent: &str) -> TcpStream {
    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(sent.as_bytes()).unwrap();
    client
}

/// Returns what comes until the server closes the connection.
fn rest(mut client: TcpStream) -> String {
    let mut received = Vec::new();
    let _ = client.read_to_end(&mut received);
    String::from_utf8(received).unwrap()
}

/// A handler that runs on the pool until the test lets it return.
struct Held {
    begun: mpsc::Sender<()>,
    ends: Mutex<Receiver<()>>,
}

impl Service for Held {
    fn plan(&self, _: &mut Request) -> Plan {
        Plan::new().route(0).on_pool()
    }

    fn call(&self, _: Request) -> Response {
        self.begun.send(()).unwrap();
        let _ = self.ends.lock().unwrap().recv_timeout(PATIENCE);
        Response::from("held")
    }
}

/// Returns a service, what it says when a handler begins, and what ends a handler.
fn held() -> (Held, Receiver<()>, mpsc::Sender<()>) {
    let (begun, begins) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    (Held { begun, ends: Mutex::new(ends) }, begins, end)
}

const GET_ONE: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[test]
fn without_keep_alive_a_connection_ends_after_the_requests_that_were_sent_at_once() {
    let server = bind(ServerConfig::default().keep_alive_timeout(Duration::ZERO));
    server.spawn(|request: Request| Response::from(request.path().to_owned())).unwrap();
    let began = Instant::now();
    let both =
        rest(send(&server, "GET /a HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n"));
    assert!(both.contains("/a") && both.ends_with("/b"), "{both}");
    assert!(began.elapsed() < PATIENCE);
    // A content that comes later than its head has its own deadline.
    let mut client = send(&server, "POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n");
    client.write_all(b"x").unwrap();
    thread::yield_now();
    client.write_all(b"y").unwrap();
    assert!(rest(client).ends_with("/c"));
    server.shutdown_handle().shutdown();
    server.wait();
}

#[test]
fn without_keep_alive_a_tcp_protocol_gets_nothing_that_comes_later() {
    let server = bind(ServerConfig::default().keep_alive_timeout(Duration::ZERO));
    let serving = server.clone();
    let served = thread::spawn(move || {
        serving.serve_tcp(tcp::lines(|line: &[u8]| tcp::Reply::from(line.to_vec())))
    });
    let began = Instant::now();
    let received = rest(send(&server, ""));
    assert_eq!(received, "");
    assert!(began.elapsed() < PATIENCE);
    server.shutdown_handle().shutdown();
    served.join().unwrap().unwrap();
}

/// Sends a request until one is served. The thread of an earlier one may become free a little after
/// its client has the response.
fn send_until_it_begins(server: &Server, begins: &Receiver<()>) -> TcpStream {
    let began = Instant::now();
    loop {
        let refused = || server.metrics().unwrap().overloaded;
        let before = refused();
        let client = send(server, GET_ONE);
        while refused() == before {
            if begins.recv_timeout(Duration::from_millis(1)).is_ok() {
                return client;
            }
            assert!(began.elapsed() < PATIENCE);
        }
    }
}

#[test]
fn without_time_in_the_queue_a_request_is_served_only_if_a_thread_is_free() {
    let server = bind(ServerConfig::default().threads_max(1).queue_timeout(Duration::ZERO));
    let (service, begins, end) = held();
    server.spawn(service).unwrap();
    for _ in 0..3 {
        let first = send_until_it_begins(&server, &begins);
        let second = rest(send(&server, GET_ONE));
        assert!(second.starts_with("HTTP/1.1 503 "), "{second}");
        end.send(()).unwrap();
        assert!(rest(first).ends_with("held"));
    }
    server.shutdown_handle().shutdown();
    server.wait();
}

/// Regression: requests were counted before they had a thread.
#[test]
fn requests_that_got_no_thread_are_not_counted_as_dispatched() {
    let server = bind(ServerConfig::default().threads_max(1).queue_timeout(Duration::ZERO));
    let (service, begins, end) = held();
    server.spawn(service).unwrap();
    let first = send_until_it_begins(&server, &begins);
    for _ in 0..100 {
        let refused = rest(send(&server, GET_ONE));
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    }
    end.send(()).unwrap();
    assert!(rest(first).ends_with("held"));
    let metrics = server.metrics().unwrap();
    assert_eq!((metrics.dispatched, metrics.overloaded), (1, 100));
    server.shutdown_handle().shutdown();
    server.wait();
}

#[test]
fn without_time_in_the_queue_one_request_waits_for_the_program() {
    let server = bind(ServerConfig::default().queue_timeout(Duration::ZERO));
    let (respond, responses) = mpsc::channel();
    let first = send(&server, GET_ONE);
    let busy = server.recv().unwrap();
    for _ in 0..2 {
        let (client, respond) = (send(&server, GET_ONE), respond.clone());
        thread::spawn(move || respond.send(rest(client)).unwrap());
    }
    let refused = responses.recv_timeout(PATIENCE).unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    for request in [busy, server.recv().unwrap()] {
        request.respond("pulled").unwrap();
    }
    assert!(responses.recv_timeout(PATIENCE).unwrap().ends_with("pulled"));
    assert!(rest(first).ends_with("pulled"));
    server.shutdown_handle().shutdown();
}

#[test]
fn without_time_to_drain_a_shutdown_waits_for_no_request() {
    let server = bind(ServerConfig::default().drain_timeout(Duration::ZERO));
    let (service, begins, end) = held();
    server.spawn(service).unwrap();
    let client = send(&server, GET_ONE);
    begins.recv_timeout(PATIENCE).unwrap();
    let began = Instant::now();
    server.shutdown_handle().shutdown();
    server.wait();
    assert!(began.elapsed() < PATIENCE / 2);
    let _ = end.send(());
    drop(client);
}
