//! What idle connections wait for, as a monitor tells it.

#![cfg(feature = "waits")]
#![allow(clippy::unwrap_used, reason = "a test may panic: that is a failure")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use filoplume_runtime::{
    IdleConnections, Monitor, Request, Response, Server, ServerConfig, Service,
};

/// For events that are due soon, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// More than the buffers of both sockets take.
const LONG: usize = 32 << 20;

#[derive(Clone, Default)]
struct Site(Arc<OnceLock<Monitor>>);

impl Service for Site {
    fn started(&self, monitor: &Monitor) {
        let _ = self.0.set(monitor.clone());
    }

    fn call(&self, request: Request) -> Response {
        if request.path() == "/long" {
            let mut response = Response::default();
            response.set_bytes(vec![b'x'; LONG]);
            return response;
        }
        Response::from("short")
    }
}

#[test]
fn idle_connections_are_told_apart_by_what_they_wait_for() {
    // No deadline passes while the test runs, on however slow a machine.
    let long = Duration::from_secs(600);
    let config = ServerConfig::default()
        .head_timeout(long)
        .content_timeout(long)
        .write_timeout(long)
        .keep_alive_timeout(long);
    let server = Server::builder().bind("127.0.0.1:0").unwrap().config(config).build().unwrap();
    let site = Site::default();
    server.spawn(site.clone()).unwrap();
    let monitor = site.0.get().unwrap();
    let address = server.local_addr().unwrap();
    let send = |bytes: &str| {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(bytes.as_bytes()).unwrap();
        client
    };
    let mut clients: Vec<TcpStream> = (0..3).map(|_| send("")).collect();
    clients.extend((0..2).map(|_| send("GET / HT")));
    clients.push(send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf"));
    clients.push(send("GET /long HTTP/1.1\r\nhost: a\r\n\r\n"));
    let mut served = send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_ne!(served.read(&mut [0; 512]).unwrap(), 0);
    until(monitor, |idle| {
        (idle.first_byte, idle.head, idle.content, idle.response, idle.request) == (3, 2, 1, 1, 1)
            && idle.total() == 8
    });
    drop((clients, served));
    until(monitor, |idle| idle.total() == 0);
    server.shutdown_handle().shutdown();
    server.wait();
}

#[track_caller]
fn until(monitor: &Monitor, is_met: impl Fn(&IdleConnections) -> bool) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let idle = monitor.idle_connections().unwrap();
        if is_met(&idle) {
            return;
        }
        assert!(Instant::now() < deadline, "{idle:?}");
        thread::yield_now();
    }
}
